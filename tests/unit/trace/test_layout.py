"""Constants and names that Python repeats from C headers, and packed structures."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest

from opwatch.trace.abi import LATENCY, MAX_TARGETS, SIZE, STATUSES, Target, pack_disk_key, pack_targets
from opwatch.trace.ops import STATUS_NAMES
from opwatch.trace.programs import Attachment

ROOT = Path(__file__).parents[3]


def test_sizes_are_those_of_the_header() -> None:
    text = (ROOT / "bpf" / "abi" / "block.h").read_text()
    defined = {name: int(value) for name, value in re.findall(r"#define OW_(\w+)\s+(\d+)$", text, re.M)}
    assert (LATENCY.bits, LATENCY.slots) == (defined["LAT_BITS"], defined["LAT_SLOTS"])
    assert (SIZE.bits, SIZE.slots) == (defined["SIZE_BITS"], defined["SIZE_SLOTS"])
    assert (defined["NR_STATUS"], defined["MAX_TARGETS"]) == (STATUSES, MAX_TARGETS)


def test_attachments_are_those_of_the_header() -> None:
    text = (ROOT / "opwatch" / "_native" / "common" / "programs.h").read_text()
    assert re.findall(r"OW_ATTACHMENT_(\w+),", text) == [kind.name for kind in sorted(Attachment)]
    assert [kind.value for kind in Attachment] == [0, 1, 2]


def test_statuses_have_the_numbers_of_the_kernel() -> None:
    """The numbers of the newest kernels, which leave out 18."""
    names = [STATUS_NAMES.get(number) for number in range(20)]
    assert names == [
        *(None, "not supported", "timeout", "no space", "transport", "target", "reservation conflict"),
        *("medium", "protection", "resource", "I/O", "dm requeue", "again", "device resource"),
        *("zone resource", "zone resource", "offline", "duration limit", None, "invalid"),
    ]
    assert len(STATUS_NAMES) == 18


def test_targets_are_packed_with_their_index() -> None:
    plain = Target(8, 15, 64, 2, 32)
    special = Target(0, 7, 96, 1, 16, next=1, bio_based=True, ends_twice=True, stamp_mask=15)
    assert pack_targets([plain, special]) == struct.pack("=QQIIIIIIII", 8, 15, 64, 2, 32, 0, 0, 0, 0, 0) + (
        struct.pack("=QQIIIIIIII", 0, 7, 96, 1, 16, 1, 1, 1, 15, 1)
    )


@pytest.mark.parametrize(
    ("dev", "key"),
    [
        ((259, 3), struct.pack("=QQII", 259 << 20 | 3, 0, 6, 0)),
        ((0, 0), struct.pack("=16sII", b"nvme0c1n1", 6, 0)),
    ],
)
def test_disk_is_found_by_number_or_by_name(dev: tuple[int, int], key: bytes) -> None:
    assert pack_disk_key(dev, "nvme0c1n1", 5) == key
