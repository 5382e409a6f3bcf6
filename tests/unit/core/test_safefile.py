"""Files written by root are written to the intended place, completely or not at all."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from pathlib import Path

import pytest

from opwatch.errors import RefusedError
from opwatch.safefile import is_locked, open_own_file, safe_write


def test_file_is_private_for_any_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        safe_write(tmp_path / "state", b"all")
        descriptor, made = open_own_file(tmp_path / "other")
    finally:
        os.umask(before)
    os.close(descriptor)
    assert made
    assert (tmp_path / "state").read_bytes() == b"all"
    for name in ("state", "other"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600


def test_a_planted_link_is_neither_followed_nor_replaced(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    (tmp_path / "state").symlink_to(victim)
    with pytest.raises(RefusedError, match=r"/state .*link"):
        safe_write(tmp_path / "state", b"mine")
    with pytest.raises(RefusedError, match=r"/state .*link"):
        open_own_file(tmp_path / "state")
    assert victim.read_bytes() == b"precious"
    assert (tmp_path / "state").is_symlink()


def test_dangling_link_is_refused_without_creating_a_file(tmp_path: Path) -> None:
    (tmp_path / "state").symlink_to(tmp_path / "made")
    with pytest.raises(RefusedError, match=r"/state .*link"):
        open_own_file(tmp_path / "state")
    assert not (tmp_path / "made").exists()


def test_hard_link_is_not_written_through(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    (tmp_path / "state").hardlink_to(victim)
    with pytest.raises(RefusedError, match=r"/state .*\b2\b"):
        open_own_file(tmp_path / "state")
    safe_write(tmp_path / "state", b"mine")
    assert (victim.read_bytes(), (tmp_path / "state").read_bytes()) == (b"precious", b"mine")


@pytest.mark.parametrize("kind", ["pipe", "folder"])
def test_special_files_are_refused_immediately(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "state"
    os.mkfifo(path) if kind == "pipe" else path.mkdir()
    with pytest.raises(RefusedError, match=f"{path} .*regular"):
        open_own_file(path)
    with pytest.raises(RefusedError, match=f"{path} .*regular"):
        safe_write(path, b"mine")


@pytest.mark.skipif(os.geteuid() != 0, reason="a file of another user can be made by root alone")
def test_foreign_file_is_not_appended_to(tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.write_bytes(b"theirs")
    os.chown(path, 65534, 65534)
    with pytest.raises(RefusedError, match=rf"{path} .*\b65534\b"):
        open_own_file(path)
    assert path.read_bytes() == b"theirs"


def test_failed_write_keeps_the_old_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write, calls = os.write, []

    def write_until_full(descriptor: int, content: bytes) -> int:
        calls.append(content)
        if len(calls) > 1:
            raise OSError(errno.ENOSPC, "full")
        return write(descriptor, content[:2])

    path = tmp_path / "state"
    safe_write(path, b"old")
    monkeypatch.setattr(os, "write", write_until_full)
    with pytest.raises(OSError, match="full"):
        safe_write(path, b"half")
    assert len(calls) == 2
    assert [entry.name for entry in tmp_path.iterdir()] == ["state"]
    assert path.read_bytes() == b"old"


def test_file_and_folder_are_synced_before_the_write_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    sync, rename = os.fsync, os.rename

    def record_fsync(descriptor: int) -> None:
        calls.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        sync(descriptor)

    def record_rename(old: str, new: str, src_dir_fd: int, dst_dir_fd: int) -> None:
        calls.append("rename")
        rename(old, new, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

    monkeypatch.setattr(os, "fsync", record_fsync)
    monkeypatch.setattr(os, "rename", record_rename)
    safe_write(tmp_path / "state", b"all")
    assert calls == ["file", "rename", "folder"]


@pytest.mark.parametrize(
    ("taken", "probe", "is_kept"),
    [
        (None, fcntl.LOCK_EX, False),
        (fcntl.LOCK_SH, fcntl.LOCK_SH, False),
        (fcntl.LOCK_SH, fcntl.LOCK_EX, True),
        (fcntl.LOCK_EX, fcntl.LOCK_SH, True),
    ],
)
def test_asking_for_a_lock_takes_none(tmp_path: Path, taken: int | None, probe: int, is_kept: bool) -> None:
    path = tmp_path / "lock"
    path.touch()
    with path.open("r+b") as owner:
        if taken is not None:
            fcntl.flock(owner, taken)
        for _ in range(2):
            assert is_locked(os.open(path, os.O_RDWR), probe) is is_kept
        # Only the owner holds the lock, so the lock can be converted.
        fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
