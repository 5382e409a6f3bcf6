"""Checks before a FITRIM call. No test here trims anything."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from opwatch.errors import RefusedError, UsageError
from opwatch.host.usage import Mount, Usage
from opwatch.tools.acting.trim.fitrim import check_mount, send_fitrim
from opwatch.trim.audit.fitrim import Asked, FitrimAnswer
from tests.unit.house.test_architecture import read_package


def make_usage(*mounts: Mount) -> Usage:
    return Usage(list(mounts), [], {})


def format_dev(path: Path) -> str:
    number = path.stat().st_dev
    return f"{number >> 8 & 0xFFF}:{number & 0xFF | number >> 12 & 0xFFF00}"


def test_mount_point_is_accepted(tmp_path: Path) -> None:
    mount = Mount(format_dev(tmp_path), str(tmp_path), "ext4", "/dev/sda1", ("rw",))
    assert check_mount(str(tmp_path), make_usage(mount)) is mount


def test_the_topmost_of_two_mounts_counts(tmp_path: Path) -> None:
    below = Mount("8:1", str(tmp_path), "ext4", "/dev/sda1", ("rw",))
    above = Mount(format_dev(tmp_path), str(tmp_path), "xfs", "/dev/sdb1", ("rw",))
    assert check_mount(str(tmp_path), make_usage(below, above)) is above


def test_folder_is_not_treated_as_its_filesystem(tmp_path: Path) -> None:
    """FITRIM on a folder trims the whole filesystem."""
    inside = tmp_path / "folder"
    inside.mkdir()
    holder = Mount("8:1", str(tmp_path), "ext4", "/dev/sda1", ("rw",))
    with pytest.raises(RefusedError, match=rf"^{inside} .* {tmp_path}: "):
        check_mount(str(inside), make_usage(Mount("8:2", "/", "ext4", "/dev/sda2"), holder))


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("nfs4", "network"),
        ("fuse.sshfs", "user-space"),
        ("9p", "network"),
        ("overlay", "layer"),
    ],
)
def test_unsupported_filesystems_are_refused(tmp_path: Path, kind: str, words: str) -> None:
    with pytest.raises(RefusedError, match=words):
        check_mount(str(tmp_path), make_usage(Mount("0:40", str(tmp_path), kind, "x", ("rw",))))


@pytest.mark.parametrize("options", [{"options": ("ro",)}, {"super_options": ("ro",)}])
def test_read_only_mount_is_refused(tmp_path: Path, options: dict[str, tuple[str, ...]]) -> None:
    mount = Mount(
        "8:1",
        str(tmp_path),
        "ext4",
        "/dev/sda1",
        options.get("options", ()),
        options.get("super_options", ()),
    )
    with pytest.raises(RefusedError, match="read-only"):
        check_mount(str(tmp_path), make_usage(mount))


def test_missing_path_is_refused() -> None:
    with pytest.raises(UsageError, match=rf"^/nonexistent/point: {os.strerror(errno.ENOENT)}"):
        check_mount("/nonexistent/point", make_usage())


def test_fitrim_error_has_no_claim() -> None:
    """Call FITRIM on a pipe, which is in no trimmable filesystem."""
    descriptors = os.pipe()
    try:
        assert send_fitrim(descriptors[0], Asked()) == FitrimAnswer(None, errno.ENOTTY)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def test_single_module_issues_fitrim() -> None:
    calls = {
        name: source.count(", FITRIM,") for name, source in read_package().items() if ", FITRIM," in source
    }
    assert calls == {"opwatch.tools.acting.trim.fitrim": 1}
