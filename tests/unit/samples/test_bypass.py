"""Pages that a kernel passes to the driver without a bio."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from opwatch.collectors.block.bypass import unseen_pages
from opwatch.host.device import BlockDevice, Leaf

OLD = "ffffffff81000000 T bdev_read_page\nffffffff81000010 t bdev_write_page\n"
NEW = "ffffffff81000000 T bdev_read_folio\nffffffff81000020 t x_bdev_read_page\n"


class Disk:
    """A whole disk with requests or without."""

    def __init__(self, name: str, *, is_request_based: bool = False) -> None:
        self.name, self.is_request_based = name, is_request_based
        self.disk = self


def leaf_of(disk: Disk) -> Leaf:
    device = cast("BlockDevice", disk)
    return Leaf(device, device)


@pytest.mark.parametrize("name", ["zram0", "ram15", "pmem0", "pmem1s"])
def test_a_kernel_with_page_calls_hides_some_io_of_memory_disks(tmp_path: Path, name: str) -> None:
    symbols = tmp_path / "old"
    symbols.write_text(OLD)
    [sentence] = unseen_pages(leaf_of(Disk(name)), symbols)
    assert "rw_page" in sentence


def test_a_newer_kernel_hides_nothing(tmp_path: Path) -> None:
    symbols = tmp_path / "new"
    symbols.write_text(NEW)
    assert unseen_pages(leaf_of(Disk("zram0")), symbols) == ()


@pytest.mark.parametrize(
    "disk", [Disk("nvme0n1", is_request_based=True), Disk("md0"), Disk("ram0", is_request_based=True)]
)
def test_other_drivers_have_no_page_calls(tmp_path: Path, disk: Disk) -> None:
    symbols = tmp_path / "old-too"
    symbols.write_text(OLD)
    assert unseen_pages(leaf_of(disk), symbols) == ()


def test_a_kernel_whose_symbols_are_hidden_may_have_page_calls(tmp_path: Path) -> None:
    assert unseen_pages(leaf_of(Disk("zram0")), tmp_path / "missing")
