"""The first granule's offset from the drive's own page, because Linux shows a different value for a whole
disk."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opwatch.collectors.stack.discard_limits import read_queue_limits
from opwatch.host.alignment import parse_unmap_alignment, read_discard_alignment
from opwatch.host.details import read_limits
from tests.unit.support.sysfs import Tree, write_attributes

# Page B0h of scsi_debug with granules of 2048 blocks; the first granule starts at block 256.
PAGE = bytes.fromhex(
    "00b0003c00000001000200000000040000000000ffffffff0000010000000800"
    "8000010000000000000000000000ffff00000000000000000000000000000000"
)


def _change_page(at: int, data: bytes) -> bytes:
    return PAGE[:at] + data + PAGE[at + len(data) :]


@pytest.mark.parametrize(
    ("page", "blocks"),
    [
        (PAGE, 256),
        (_change_page(32, b"\x00\x00\x01\x00"), None),  # not valid
        (_change_page(32, b"\x80\0\0\0"), 0),
        (_change_page(1, b"\xb2"), None),
        (_change_page(2, b"\0\x0c"), None),  # the page length from before the field existed
        (PAGE[:35], None),
        (b"", None),
    ],
)
def test_block_limits_page_is_decoded(page: bytes, blocks: int | None) -> None:
    assert parse_unmap_alignment(page) == blocks


@given(st.binary(max_size=70) | st.binary(max_size=70).map(lambda rest: PAGE[:4] + rest))
def test_any_page_is_decoded_or_refused(page: bytes) -> None:
    blocks = parse_unmap_alignment(page)
    assert blocks is None or 0 <= blocks < 1 << 31


def test_alignment_of_a_whole_disk_comes_from_its_own_page(tmp_path: Path) -> None:
    """Linux 6.1 and 6.12 show 0 for this disk, and 126,976 for a partition at its sector 8."""
    tree = Tree(tmp_path)
    tree.add_disk("sda", "8:0", attributes={"discard_alignment": "0", "queue/logical_block_size": "512"})
    tree.add_partition("sda", "sda1", "8:1", start=8, sectors=10240)
    write_attributes(tree["sda"].sysfs / "device", {"vpd_pgb0": PAGE})
    write_attributes(tree["sda1"].sysfs, {"discard_alignment": "126976"})
    assert read_discard_alignment(tree["sda"]) == 256 * 512
    assert read_discard_alignment(tree["sda1"]) == 126976
    for device, alignment in (("sda", 131072), ("sda1", 126976)):
        assert read_queue_limits(tree[device]).alignment == alignment
        assert read_limits(tree[device]).discard_alignment_bytes == alignment


def test_disk_without_the_page_uses_the_kernels_value(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.add_disk("vda", "254:0", attributes={"discard_alignment": "4096"})
    assert read_discard_alignment(tree["vda"]) == 4096
    write_attributes(tree["vda"].sysfs, {"discard_alignment": "-1"})
    assert read_discard_alignment(tree["vda"]) is None
