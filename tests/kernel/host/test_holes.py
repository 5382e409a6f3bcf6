"""fio on a mounted disk compared with the kernel's claim on the disk; each case was measured."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from opwatch.host.mountspaces import is_claimed
from opwatch.host.scratch import ScratchDisk
from tests.kernel.support.drives import fio
from tests.kernel.support.filesystems import make, mounted
from tests.kernel.support.trims import MIB


def _by_link(disk: ScratchDisk, folder: Path) -> str:
    link = folder / "link"
    link.symlink_to(disk.node)
    return str(link)


@pytest.mark.parametrize(
    ("name", "load"),
    [
        pytest.param(lambda disk, _: disk.node, "--rw=randtrim", id="trim"),
        pytest.param(_by_link, "--rw=randwrite", id="link"),
    ],
)
def test_fio_runs_where_the_kernel_says_that_it_is_in_use(
    name: Callable[[ScratchDisk, Path], str],
    load: str,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    point = tmp_path / "point"
    point.mkdir()
    with ScratchDisk(128 * MIB) as disk:
        make("ext4", disk.node)
        path = name(disk, tmp_path)
        assert not is_claimed(path)
        with mounted(disk.node, point):
            assert is_claimed(path)
            # Later fio versions may refuse, and so do kernels that block writes to mounted devices.
            ran = fio(path, "--size=4m", "--offset=96m", load).returncode == 0
            record_property("fio ran", ran)
            assert is_claimed(disk.path)
        assert not is_claimed(path)
