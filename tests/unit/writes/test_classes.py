"""Layouts of the tracer's counters, and addresses of end functions."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from opwatch.collectors.writes.kernel_functions import find_function_addresses
from opwatch.collectors.writes.tracer import make_write_target
from opwatch.errors import BadInput
from opwatch.host.device import BlockDevice
from opwatch.writes.classes import (
    COUNTS,
    END_FUNCTIONS,
    GROUP,
    WriteClass,
    WriteCount,
    WriteGroup,
    WriteRule,
    WriteTarget,
    decode_counts,
    decode_groups,
    encode_end_functions,
    encode_targets,
)

SYMBOLS = """\
ffffffff81000010 t ext4_end_bio
ffffffff81000020 T end_buffer_write_sync
ffffffff81000030 t ext4_end_bio.cold
ffffffff81000040 d ext4_end_bio
ffffffffc0000010 t xfs_end_bio\t[xfs]
ffffffffc0000020 t xlog_bio_end_io.isra.0\t[xfs]
ffffffffc0000030 t other_function\t[xfs]
malformed
zz t xfs_buf_bio_end_io
"""


def test_find_function_addresses_takes_functions_and_their_copies_but_no_cold_parts(tmp_path: Path) -> None:
    symbols = tmp_path / "kallsyms"
    symbols.write_text(SYMBOLS)
    found = find_function_addresses(END_FUNCTIONS.keys(), symbols)
    assert found == {
        "ext4_end_bio": [0xFFFFFFFF81000010],
        "end_buffer_write_sync": [0xFFFFFFFF81000020],
        "xfs_end_bio": [0xFFFFFFFFC0000010],
        "xlog_bio_end_io": [0xFFFFFFFFC0000020],
    }


def test_find_function_addresses_is_empty_when_the_kernel_hides_them(tmp_path: Path) -> None:
    symbols = tmp_path / "kallsyms"
    symbols.write_text("0000000000000000 t ext4_end_bio\n")
    assert find_function_addresses(END_FUNCTIONS.keys(), symbols) == {}
    assert find_function_addresses(END_FUNCTIONS.keys(), tmp_path / "missing") == {}


def test_encode_end_functions_has_one_entry_per_address() -> None:
    raw = encode_end_functions({"ext4_end_bio": [1, 2], "end_bio_bh_io_sync": [3]})
    assert list(struct.iter_unpack("=QII", raw)) == [
        (1, WriteClass.DATA, 0),
        (2, WriteClass.DATA, 0),
        (3, WriteRule.BUFFER, 0),
    ]


def test_encode_targets_uses_the_kernels_device_numbers() -> None:
    raw = encode_targets([WriteTarget((8, 0), (8, 1), 2048, 4096, has_filesystem=True)])
    assert struct.unpack("=QQ4I", raw) == (2048, 4096, 8 << 20, 8 << 20 | 1, 1, 0)


def test_decode_counts_returns_bytes_and_bios_of_each_class_and_target() -> None:
    numbers = range(2 * len(WriteClass))
    first, second = decode_counts(COUNTS.pack(*numbers, 70, 7) + bytes(COUNTS.size))
    assert first.classes[WriteClass.DATA] == WriteCount(0, 1)
    assert first.classes[WriteClass.OTHER] == WriteCount(16, 17)
    assert (first.journal_blocks, first.journal_commits) == (70, 7)
    assert set(second.classes.values()) == {WriteCount(0, 0)}


def test_decode_groups_returns_counters_by_group_target_and_class() -> None:
    raw = GROUP.pack(77, 1, WriteClass.JOURNAL, 4096, 2)
    assert decode_groups(raw) == {WriteGroup(77, 1, WriteClass.JOURNAL): WriteCount(4096, 2)}


def test_decoders_reject_other_lengths_and_unknown_classes() -> None:
    with pytest.raises(BadInput, match="multiple"):
        decode_counts(b"x")
    with pytest.raises(BadInput, match="multiple"):
        decode_groups(b"x")
    with pytest.raises(BadInput, match="99"):
        decode_groups(GROUP.pack(77, 1, 99, 4096, 2))


def test_a_partition_is_a_range_of_its_disk_and_a_disk_has_no_end(tmp_path: Path) -> None:
    disk, partition = tmp_path / "sda", tmp_path / "sda/sda1"
    partition.mkdir(parents=True)
    (disk / "dev").write_text("8:0\n")
    (disk / "size").write_text("100\n")
    for name, text in {"dev": "8:1", "partition": "1", "start": "10", "size": "20"}.items():
        (partition / name).write_text(text)
    whole = make_write_target(BlockDevice("sda", (8, 0), disk), has_filesystem=False)
    part = make_write_target(BlockDevice("sda1", (8, 1), partition), has_filesystem=True)
    assert whole == WriteTarget((8, 0), (8, 0), 0, 1 << 63, has_filesystem=False)
    assert part == WriteTarget((8, 0), (8, 1), 10, 30, has_filesystem=True)
