"""fio on a mounted disk compared with the kernel's claim on the disk; each case was measured."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from opwatch.host.mountspaces import is_in_use
from opwatch.host.scratch import ScratchDisk
from tests.kernel.support.drives import run_plain_fio
from tests.kernel.support.filesystems import make_filesystem, mount_device
from tests.kernel.support.trims import MIB


def _make_link(disk: ScratchDisk, folder: Path) -> str:
    link = folder / "link"
    link.symlink_to(disk.node)
    return str(link)


@pytest.mark.parametrize(
    ("name", "load"),
    [
        pytest.param(lambda disk, _: disk.node, "--rw=randtrim", id="trim"),
        pytest.param(_make_link, "--rw=randwrite", id="link"),
    ],
)
def test_kernel_claim_detects_a_mount_that_fio_misses(
    name: Callable[[ScratchDisk, Path], str],
    load: str,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    point = tmp_path / "point"
    point.mkdir()
    with ScratchDisk(128 * MIB) as disk:
        make_filesystem("ext4", disk.node)
        path = name(disk, tmp_path)
        assert not is_in_use(path)
        with mount_device(disk.node, point):
            assert is_in_use(path)
            # Later fio versions may refuse, and so do kernels that block writes to mounted devices.
            ran = run_plain_fio(path, "--size=4m", "--offset=96m", load).returncode == 0
            record_property("fio ran", ran)
            assert is_in_use(disk.path)
        assert not is_in_use(path)
