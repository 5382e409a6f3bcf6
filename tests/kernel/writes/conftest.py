"""A file system for the tests of `opwatch writes`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kernel.support.drives import MIB, Drive, create_drive
from tests.kernel.support.filesystems import make_filesystem, mount_device

Mounted = tuple[Drive, Path]


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Mounted]:
    """Yield a drive with ext4, mounted."""
    with create_drive(64 * MIB) as drive:
        make_filesystem("ext4", drive.device)
        with mount_device(drive.device, tmp_path) as point:
            yield drive, point
