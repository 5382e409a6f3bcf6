"""Pages that a kernel passes to the driver without a bio."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from opwatch.collectors.block.bypass import find_refused_clones, find_uncounted_pages, find_uncounted_remaps
from opwatch.collectors.block.diskstats import StatReader
from opwatch.host.device import BlockDevice, Leaf
from tests.unit.support.sysfs import Tree, write_attributes

OLD = "ffffffff81000000 T bdev_read_page\nffffffff81000010 t bdev_write_page\n"
NEW = "ffffffff81000000 T bdev_read_folio\nffffffff81000020 t x_bdev_read_page\n"


class Disk:
    """A whole disk, request-based or not."""

    def __init__(self, name: str, *, is_request_based: bool = False) -> None:
        self.name, self.is_request_based = name, is_request_based
        self.disk = self


def make_leaf(disk: Disk) -> Leaf:
    device = cast("BlockDevice", disk)
    return Leaf(device, device)


@pytest.mark.parametrize("name", ["zram0", "ram15", "pmem0", "pmem1s"])
def test_page_calls_hide_some_io_of_memory_disks(tmp_path: Path, name: str) -> None:
    symbols = tmp_path / "old"
    symbols.write_text(OLD)
    [sentence] = find_uncounted_pages(make_leaf(Disk(name)), symbols)
    assert "rw_page" in sentence


def test_newer_kernels_have_no_hidden_page_io(tmp_path: Path) -> None:
    symbols = tmp_path / "new"
    symbols.write_text(NEW)
    assert find_uncounted_pages(make_leaf(Disk("zram0")), symbols) == ()


@pytest.mark.parametrize(
    "disk", [Disk("nvme0n1", is_request_based=True), Disk("md0"), Disk("ram0", is_request_based=True)]
)
def test_other_drivers_have_no_page_calls(tmp_path: Path, disk: Disk) -> None:
    symbols = tmp_path / "old-too"
    symbols.write_text(OLD)
    assert find_uncounted_pages(make_leaf(disk), symbols) == ()


def test_kernel_with_hidden_symbols_may_have_page_calls(tmp_path: Path) -> None:
    assert find_uncounted_pages(make_leaf(Disk("zram0")), tmp_path / "missing")


ARRAYS = "ffffffff81000000 T md_account_bio\n"


def add_holder(
    tree: Tree, disk: str, name: str, *, attributes: dict[str, str | bytes], tags: list[int]
) -> None:
    """Stack a device on the disk."""
    folder = tree.add_disk(name, None, tags=tags, attributes=attributes)
    (tree[disk].sysfs / "holders" / name).symlink_to(folder)


@pytest.mark.parametrize(("level", "count"), [("raid0", 1), ("linear", 1), ("raid1", 0)])
def test_array_that_remaps_its_bios_hides_requests(tmp_path: Path, level: str, count: int) -> None:
    tree, symbols = Tree(tmp_path), tmp_path / "symbols"
    tree.add_disk("zram0", "252:0")
    add_holder(tree, "zram0", "md0", attributes={"md/level": level}, tags=[])
    leaf = Leaf(tree["zram0"], tree["zram0"])
    symbols.write_text(OLD)
    assert len(find_uncounted_remaps(leaf, symbols)) == count
    symbols.write_text(ARRAYS)
    assert find_uncounted_remaps(leaf, symbols) == ()


def test_only_bytes_are_compared_on_a_request_based_multipath_path(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    stat = b"9 0 72 1 0 0 0 0 0 1 1 0 0 0 0 0 0\n"
    for name, dev in (("sda", "8:0"), ("sdb", "8:16")):
        write_attributes(
            tree.add_disk(name, dev, tags=[32], attributes={"stat": stat}), {"queue/iostats": "1"}
        )
    add_holder(tree, "sda", "dm-0", attributes={"dm/uuid": "mpath-x"}, tags=[32])
    add_holder(tree, "sdb", "dm-1", attributes={"dm/uuid": "mpath-y"}, tags=[])
    samples = {}
    for name in ("sda", "sdb"):
        reader = StatReader(tree[name])
        samples[name] = reader.read_stats()
        reader.close()
    path, other = samples["sda"], samples["sdb"]
    assert path and other
    assert (path.requests, path.bytes["read"]) == ({}, 72 * 512)
    assert (other.requests["read"], other.bytes["read"]) == (9, 72 * 512)
    assert find_refused_clones(Leaf(tree["sda"], tree["sda"]))
    assert find_refused_clones(Leaf(tree["sdb"], tree["sdb"])) == ()
