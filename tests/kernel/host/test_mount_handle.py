"""Mounts and disks that are exchanged between planning and acting: noticed, and left untouched."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from opwatch.collectors.space.device_handle import read_disk_sequence
from opwatch.collectors.space.mount_handle import open_mount, read_mount_number
from opwatch.collectors.space.raw_disk import RawDisk
from opwatch.collectors.stack.layers import LayerReader
from opwatch.errors import OpwatchError, RefusedError
from opwatch.host import loop
from opwatch.host.device import Devices
from opwatch.host.scratch import ScratchDisk
from opwatch.tools.acting.stale import sentinels
from opwatch.tools.acting.trim import fitrim_process
from opwatch.tools.acting.trim.fitrim import require_mount, trim_mount
from opwatch.tools.commands.trim.audit import audit_mount
from opwatch.tools.runs import trimming
from opwatch.trim.audit.fitrim import Asked
from opwatch.trim.stack.layers import Stack
from tests.kernel.support.filesystems import (
    find_free_extents,
    make_filesystem,
    mount_device,
    write_and_delete,
)
from tests.kernel.support.trims import MIB, count_allocated, run

_CHANGE_FD = 0x4C06


@contextlib.contextmanager
def mount_used_disk(point: Path, kind: str = "ext4") -> Iterator[ScratchDisk]:
    """Yield a disk with a mounted file system whose free space once held data, so the file shows trims."""
    with ScratchDisk(160 * MIB) as disk:
        make_filesystem(kind, disk.node)
        with mount_device(disk.node, point):
            write_and_delete(point, 1, written=8, kept=2)
            yield disk


@pytest.fixture
def over(tmp_path: Path) -> Iterator[tuple[Path, ScratchDisk, ScratchDisk]]:
    """Yield (mount point, planned disk, disk that will be mounted over it)."""
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    with mount_used_disk(first) as planned, mount_used_disk(second) as other:
        yield first, planned, other


def cover_mount(point: Path, disk: ScratchDisk) -> None:
    run("mount", disk.node, str(point))


@pytest.mark.parametrize("how", ["by itself", "in a process"])
def test_filesystem_mounted_over_the_point_is_not_trimmed(
    over: tuple[Path, ScratchDisk, ScratchDisk], how: str
) -> None:
    point, planned, other = over
    mount = require_mount(str(point))
    taken = [count_allocated(disk.backing_path) for disk in (planned, other)]
    cover_mount(point, other)
    try:
        with pytest.raises(RefusedError, match=r"\banother\b.* ext4\b"):
            if how == "by itself":
                trim_mount(mount)
            else:
                fitrim_process.trim_in_child(mount, Asked(), lambda _: None)
    finally:
        run("umount", str(point))
    assert [count_allocated(disk.backing_path) for disk in (planned, other)] == taken
    trim_mount(mount)
    assert count_allocated(planned.backing_path) < taken[0]


def test_trim_refuses_a_descriptor_of_another_mount(
    over: tuple[Path, ScratchDisk, ScratchDisk], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another mount covers the point when it is opened, and is gone when the mount table is read."""
    point, _, other = over
    mount = require_mount(str(point))
    taken = count_allocated(other.backing_path)
    cover_mount(point, other)
    real_open = os.open

    def open_and_unmount(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        descriptor = real_open(path, flags, mode, dir_fd=dir_fd)
        if str(path) == str(point):
            monkeypatch.undo()
            run("umount", "--lazy", str(point))
        return descriptor

    monkeypatch.setattr(os, "open", open_and_unmount)
    with pytest.raises(RefusedError, match=r"\bext4\b"):
        trim_mount(mount)
    assert count_allocated(other.backing_path) == taken


def test_audit_refuses_when_another_filesystem_is_mounted_over_the_point(
    over: tuple[Path, ScratchDisk, ScratchDisk], monkeypatch: pytest.MonkeyPatch
) -> None:
    point, _, other = over
    mount = require_mount(str(point))
    real = trimming._Witnesses

    def cover_and_continue(before: Stack, is_early: trimming.MayFreeLater) -> trimming._Witnesses:
        # The stack has been read and nothing trimmed yet; the audit keeps the mount busy.
        assert subprocess.run(["umount", str(point)], check=False, capture_output=True).returncode
        cover_mount(point, other)
        return real(before, is_early)

    monkeypatch.setattr(trimming, "_Witnesses", cover_and_continue)
    taken = count_allocated(other.backing_path)
    try:
        with pytest.raises(RefusedError, match=r"\banother\b"):
            audit_mount(mount)
    finally:
        run("umount", str(point))
    assert count_allocated(other.backing_path) == taken


def test_sentinels_are_created_only_in_the_planned_filesystem(
    over: tuple[Path, ScratchDisk, ScratchDisk],
) -> None:
    point, _, other = over
    mount = require_mount(str(point))
    stack = LayerReader().read_mount(mount)
    cover_mount(point, other)
    try:
        free = find_free_extents(point)
        with sentinels.Sentinels(mount, stack, (MIB,)) as planted, pytest.raises(RefusedError):
            planted.plant()
        assert find_free_extents(point) == free
    finally:
        run("umount", str(point))
    # A mount that appears while the sentinels are in place gets none either.
    with sentinels.Sentinels(mount, stack, (MIB,)) as planted:
        planted.plant()
        cover_mount(point, other)
        try:
            with pytest.raises(RefusedError):
                planted.delete_files()
            assert find_free_extents(point) == free
        finally:
            run("umount", str(point))


def test_a_link_in_the_place_of_a_sentinel_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    point, victim = tmp_path / "point", tmp_path / "victim"
    point.mkdir()
    victim.write_text("mine")
    real_open = os.open

    def refuse_tmpfile(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, "no such files here")
        return real_open(path, flags, mode, dir_fd=dir_fd)

    with mount_used_disk(point):
        mount = require_mount(str(point))
        monkeypatch.setattr(secrets, "token_hex", lambda _: "0123456789abcdef")
        link = point / ".opwatch-sentinel-0123456789abcdef"
        link.symlink_to(victim)
        monkeypatch.setattr(os, "open", refuse_tmpfile)
        with sentinels.Sentinels(mount, LayerReader().read_mount(mount), (MIB,)) as planted:
            with pytest.raises(OpwatchError, match=rf"{point}: "):
                planted.plant()
            link.unlink()
            planted.plant()  # created by name and unlinked at once
            assert not list(point.glob(".opwatch*"))
        monkeypatch.undo()
    assert victim.read_text() == "mine"


def test_mount_number_matches_the_mount_table(tmp_path: Path) -> None:
    with mount_used_disk(tmp_path):
        mount = require_mount(str(tmp_path))
        assert mount.number is not None
        with open_mount(mount) as descriptor:
            assert read_mount_number(descriptor) == mount.number


def test_raw_read_is_refused_when_the_disk_is_exchanged() -> None:
    files = [os.memfd_create("opwatch-test", os.MFD_CLOEXEC) for _ in range(2)]
    try:
        for file in files:
            os.truncate(file, MIB)
        with loop.attach_loop(files[0], loop.Binding(read_only=True, partscan=False)) as device:
            resolved = Devices().resolve(device.node)
            life = read_disk_sequence(resolved)
            if life is None:
                pytest.skip("this kernel numbers no disks (diskseq, Linux 5.15)")
            with pytest.raises(RefusedError, match=r"\banother\b"):
                RawDisk(device.name, life=life - 1)
            with RawDisk(device.name, life=life) as disk:
                assert disk.read(0, 4096) == bytes(4096)
                disk.require_same()
                fcntl.ioctl(device.fileno(), _CHANGE_FD, files[1])
                with pytest.raises(RefusedError, match=r"\breplaced\b"):
                    disk.require_same()
    finally:
        for file in files:
            os.close(file)


def test_a_node_of_another_device_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    with ScratchDisk(MIB) as disk, ScratchDisk(MIB) as other:
        number = Devices().resolve(other.node)
        monkeypatch.setattr(Devices, "by_name", lambda *_: number)
        with pytest.raises(RefusedError, match=r"\bnumber \S*\d"):
            RawDisk(disk.name)
