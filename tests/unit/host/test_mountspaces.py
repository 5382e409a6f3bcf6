"""Mounts in every namespace, from a fake /proc."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from opwatch import foreign
from opwatch.drive import users
from opwatch.errors import BadInput
from opwatch.host import mountspaces
from opwatch.host.mountspaces import MountedIn, MountSpace, Survey, survey_mounts
from opwatch.host.usage import Mount
from tests.unit.support.sysfs import Tree

HOST = "22 1 254:0 / / rw - ext4 /dev/vda rw\n"
LOOP = "40 22 7:3 / /mnt/a\\040b rw - xfs /dev/loop3 rw\n"
BTRFS = "41 22 0:44 / /srv rw - btrfs /dev/loop4 rw\n"


def add_thread(proc: Path, number: int, space: int, table: str | None, leader: int | None = None) -> None:
    """Add a thread of a process, which /proc also lists under its own number. Without a table mountinfo is
    unreadable."""
    (proc / str(leader or number) / "task" / str(number) / "ns").mkdir(parents=True)
    (proc / str(leader or number) / "task" / str(number) / "ns" / "mnt").symlink_to(f"mnt:[{space}]")
    (proc / str(number)).mkdir(exist_ok=True)
    if table is not None:
        (proc / str(number) / "mountinfo").write_text(table)


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    own = tmp_path / "self"
    (own / "ns").mkdir(parents=True)
    (own / "ns" / "mnt").symlink_to("mnt:[1]")
    (own / "ns" / "pid").symlink_to("pid:[4026531836]")
    (own / "mountinfo").write_text(HOST)
    add_thread(tmp_path, 1, 1, HOST)
    return tmp_path


def refuse_reads(monkeypatch: pytest.MonkeyPatch, path: Path, error: Callable[[], Exception]) -> None:
    """Make reads of this file fail."""
    real = foreign.read_names

    def read_or_refuse(file: Path) -> str:
        if file == path:
            raise error()
        return real(file)

    monkeypatch.setattr(mountspaces, "read_names", read_or_refuse)


def test_every_namespace_is_looked_at_once(proc: Path) -> None:
    (proc / "self" / "mountinfo").write_text(HOST + LOOP)
    add_thread(proc, 7, 2, HOST + LOOP + BTRFS)
    add_thread(proc, 8, 2, HOST + LOOP + BTRFS)
    add_thread(proc, 10, 3, LOOP, leader=9)  # not its first thread
    mounted = survey_mounts([(7, 3), (7, 4)], ["/dev/loop4"], proc)
    assert [
        (mount.mount.source, mount.mount.point, mount.space.pid)
        for mount in mounted.mounts
        if mount.space.pid in (None, 10)
    ] == [("/dev/loop3", "/mnt/a b", None), ("/dev/loop3", "/mnt/a b", 10)]
    [second] = {mount.space for mount in mounted.mounts if mount.space.identity == "mnt:[2]"}
    assert second.pid in (7, 8)
    points = [mount.mount.point for mount in mounted.mounts if mount.space == second]
    assert points == ["/mnt/a b", "/srv"]
    assert mounted.unseen == ()


def test_unmounted_device_has_no_mounts(proc: Path) -> None:
    assert survey_mounts([(7, 3)], (), proc).mounts == ()
    assert str(MountSpace("mnt:[1]", None)) == "here"


def test_ended_thread_does_not_hide_other_threads(proc: Path) -> None:
    for number in (7, 8, 9):
        add_thread(proc, number, 2, LOOP if number == 8 else None)
    mounted = survey_mounts([(7, 3)], (), proc)
    assert [mount.space.pid for mount in mounted.mounts] == [8]
    assert mounted.unseen == ()


def test_unreadable_namespaces_are_reported(proc: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add_thread(proc, 7, 2, LOOP)
    refuse_reads(monkeypatch, proc / "7" / "mountinfo", PermissionError)
    (proc / "self" / "ns" / "pid").unlink()
    (proc / "self" / "ns" / "pid").symlink_to("pid:[4026532000]")
    (proc / "self" / "mountinfo").write_text(
        HOST
        + "50 22 0:4 mnt:[99] /run/ns/x rw - nsfs nsfs rw\n"
        + "51 22 0:4 mnt:[2] /run/ns/y rw - nsfs nsfs rw\n"
        + f"52 22 0:5 / {proc} rw - proc proc rw,hidepid=invisible\n"
    )
    *hidden, outside, empty, unreadable = survey_mounts([(7, 3)], (), proc).unseen
    assert [str(proc) in words and "(hidepid)" in words for words in hidden] == [True] * bool(os.geteuid())
    assert "PID namespace" in outside
    assert "mnt:[99]" in empty
    assert unreadable.endswith(" process 7")


def test_threads_that_may_not_be_read_are_counted(proc: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add_thread(proc, 7, 2, LOOP)
    real = Path.readlink

    def deny_read(path: Path) -> Path:
        if "task/7" in str(path):
            raise PermissionError
        return real(path)

    monkeypatch.setattr(Path, "readlink", deny_read)
    mounted = survey_mounts([(7, 3)], (), proc)
    assert mounted.mounts == ()
    [unseen] = mounted.unseen
    assert unseen.startswith("a thread ")


@pytest.mark.parametrize(
    "error",
    [PermissionError, lambda: OSError(errno.ENOMEM, "no memory"), lambda: BadInput("too much")],
)
def test_unreadable_table_is_not_an_empty_table(
    proc: Path, monkeypatch: pytest.MonkeyPatch, error: Callable[[], Exception]
) -> None:
    add_thread(proc, 7, 2, LOOP)
    refuse_reads(monkeypatch, proc / "7" / "mountinfo", error)
    survey = survey_mounts([(7, 3)], (), proc)
    [unseen] = survey.unseen
    assert survey.mounts == () and unseen.endswith(" process 7")


def test_namespace_with_starting_and_ending_threads_is_read(
    proc: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A namespace's only thread starts another thread and ends before its table is read."""
    add_thread(proc, 7, 2, None)

    def start_thread() -> Exception:
        if not (proc / "8").exists():
            add_thread(proc, 8, 2, LOOP)
        return FileNotFoundError(errno.ENOENT, "it has ended")

    refuse_reads(monkeypatch, proc / "7" / "mountinfo", start_thread)
    looked = survey_mounts([(7, 3)], (), proc)
    assert [mount.space.pid for mount in looked.mounts] == [8]
    assert looked.unseen == ()


def test_namespace_that_is_never_read_is_reported(proc: Path) -> None:
    add_thread(proc, 7, 2, None)
    [unseen] = survey_mounts([(7, 3)], (), proc).unseen
    assert unseen.endswith(" process 7")


def test_threads_that_may_not_be_listed_are_counted(proc: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add_thread(proc, 7, 2, LOOP)
    real = Path.iterdir

    def deny_listing(path: Path) -> object:
        if path == proc / "7" / "task":
            raise PermissionError(errno.EPERM, "hidden")
        return real(path)

    monkeypatch.setattr(Path, "iterdir", deny_listing)
    [unseen] = survey_mounts([(7, 3)], (), proc).unseen
    assert unseen.startswith("a thread ")


def test_message_for_a_drive_in_use(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    elsewhere = MountSpace("mnt:[2]", 9)
    mounts = (
        MountedIn(Mount("7:3", "/a", "ext4", "/dev/disk/by-label/x"), MountSpace("mnt:[1]", None)),
        MountedIn(Mount("0:44", "/b", "btrfs", "/dev/loop3"), elsewhere),
        MountedIn(Mount("0:44", "/b", "btrfs", "/dev/loop3"), elsewhere),
    )
    monkeypatch.setattr(users, "survey_mounts", lambda *_: Survey(mounts, ("the host",)))
    tree = Tree(tmp_path)
    tree.add_disk("loop3", "7:3")
    found = users.find_users(tree["loop3"], tree.devices)
    here, there = found.uses
    assert here.startswith("/dev/loop3 ") and here.endswith(" /a")
    assert there == str(mounts[1])
    assert found.unseen == ("the host",)
