"""Processes and mounts hidden in /proc are reported; if /proc hides none, the list is empty."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from opwatch.collectors.check.open_files import find_deleted_files
from opwatch.host import capabilities
from opwatch.host.mountspaces import MountedIn, MountSpace, find_foreign_mounts
from opwatch.host.sight import list_hidden_processes
from opwatch.host.usage import Mount, parse_mountinfo
from opwatch.sinks.unseen import Unseen, build_unseen_document, format_unseen

FIRST = {"pid": "pid:[4026531836]", "user": "user:[4026531837]"}


def _make_proc(folder: Path, options: str = "", **namespaces: str) -> Path:
    """A /proc mounted with these options, seen from these namespaces."""
    (folder / "self" / "ns").mkdir(parents=True)
    for name, identity in {**FIRST, "mnt": "mnt:[1]", **namespaces}.items():
        (folder / "self" / "ns" / name).symlink_to(identity)
    line = f"52 22 0:5 / {folder} rw - proc proc rw{options}\n"
    (folder / "self" / "mountinfo").write_text("22 1 254:0 / / rw - ext4 /dev/vda rw\n" + line)
    return folder


def _list_unseen(proc: Path) -> list[str]:
    return list_hidden_processes(proc, parse_mountinfo((proc / "self" / "mountinfo").read_text()))


@pytest.fixture
def hold(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """Grant or drop CAP_SYS_PTRACE."""

    def set_capability(holds: bool) -> None:
        monkeypatch.setattr(capabilities, "has_capability", lambda name: holds and name == "CAP_SYS_PTRACE")

    return set_capability


@pytest.mark.parametrize(
    "options",
    [",hidepid=1", ",hidepid=2", ",hidepid=noaccess", ",gid=77777,hidepid=invisible", ",hidepid=ptraceable"],
)
def test_hidepid_hides_processes_without_ptrace_capability(
    options: str, tmp_path: Path, hold: Callable[[bool], None]
) -> None:
    proc = _make_proc(tmp_path, options)
    hold(True)
    assert _list_unseen(proc) == []
    hold(False)
    [words] = _list_unseen(proc)
    assert str(proc) in words and "(hidepid)" in words


@pytest.mark.parametrize(
    "options", ["", ",hidepid=off", ",hidepid=0", f",gid={os.getegid()},hidepid=invisible"]
)
def test_proc_without_hiding_options_is_complete(
    options: str, tmp_path: Path, hold: Callable[[bool], None]
) -> None:
    hold(False)
    assert _list_unseen(_make_proc(tmp_path, options)) == []


def test_group_membership_does_not_help_with_ptraceable_mode(
    tmp_path: Path, hold: Callable[[bool], None]
) -> None:
    hold(False)
    assert len(_list_unseen(_make_proc(tmp_path, f",gid={os.getegid()},hidepid=ptraceable"))) == 1


def test_root_of_a_user_namespace_does_not_see_all(tmp_path: Path, hold: Callable[[bool], None]) -> None:
    hold(True)
    assert len(_list_unseen(_make_proc(tmp_path, ",hidepid=2", user="user:[4026532222]"))) == 1


def test_container_is_reported(tmp_path: Path) -> None:
    [words] = _list_unseen(_make_proc(tmp_path, pid="pid:[4026532000]"))
    assert "PID namespace" in words


def test_processes_that_may_not_be_looked_into_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kernel threads and ended processes have no open files."""
    proc = _make_proc(tmp_path)
    for number, command in ((5, b"bash\0"), (6, b"sh\0"), (7, b""), (8, b"gone\0"), (9, b"cat\0")):
        (proc / str(number)).mkdir()
        (proc / str(number) / "cmdline").write_bytes(command)
        (proc / str(number) / "comm").write_text("it\n")
    (proc / "9" / "fd").mkdir()
    real = Path.iterdir

    def list_or_deny(path: Path) -> object:
        if path in [proc / number / "fd" for number in ("5", "6", "7")]:
            raise PermissionError
        return real(path)

    monkeypatch.setattr(Path, "iterdir", list_or_deny)
    [words] = find_deleted_files(proc).unseen
    assert words.startswith("2 processes ")


def test_mounts_that_only_others_have_are_found_once(tmp_path: Path) -> None:
    proc = _make_proc(tmp_path)
    for number, space in ((7, 2), (8, 3), (9, 1)):
        (proc / str(number) / "task" / str(number) / "ns").mkdir(parents=True)
        (proc / str(number) / "task" / str(number) / "ns" / "mnt").symlink_to(f"mnt:[{space}]")
        (proc / str(number) / "mountinfo").write_text(
            "22 1 254:0 / / rw - ext4 /dev/vda rw\n"
            "40 22 7:3 / /mnt/a\\040b rw - xfs /dev/loop3 rw\n"
            "41 22 0:44 / /srv rw - btrfs /dev/loop4 rw\n"
            "42 22 0:45 / /proc rw - proc proc rw\nnonsense\n"
        )
    mounted = find_foreign_mounts(parse_mountinfo((proc / "self" / "mountinfo").read_text()), proc)
    assert [(mount.mount.source, mount.mount.point) for mount in mounted.mounts] == [
        ("/dev/loop3", "/mnt/a b"),
        ("/dev/loop4", "/srv"),
    ]
    assert {mount.space.pid for mount in mounted.mounts} <= {7, 8}
    assert mounted.unseen == ()


def test_unseen_mounts_are_listed_with_a_remedy_and_a_limit() -> None:
    mounts = [
        MountedIn(Mount(f"7:{at}", f"/m{at}", "ext4", f"/dev/loop{at}"), MountSpace("mnt:[2]", 77))
        for at in range(13)
    ]
    unseen = Unseen(tuple(mounts), ("2 processes with unreadable open files",))
    text = "\n".join(format_unseen(unseen))
    flat = " ".join(text.split())
    assert all(str(mount) in flat for mount in mounts[:10])
    assert "opwatch trim check --dev /dev/loop9" in text and "loop10" not in text and " 3 more" in text
    assert unseen.processes[0] in flat and max(map(len, text.split("\n"))) <= 80
    assert len(build_unseen_document(unseen)["elsewhere"]) == 13
    assert list(format_unseen(Unseen((), ()))) == []
    assert build_unseen_document(Unseen((), ())) == {"elsewhere": [], "unseen": []}
