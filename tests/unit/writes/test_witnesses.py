"""Counters of file systems."""

from __future__ import annotations

import pytest

from opwatch.errors import BadInput
from opwatch.writes.witnesses import Witness, parse_f2fs_iostat, parse_xfs_stats

XFS = """\
extent_alloc 4 1034 0 0
trans 0 35 1
log 12 116 0 3 3
rw 2080 0
xpc 2097152 10485760 4096
debug 0
"""
F2FS = """\
time:\t\t1764440000
\t\t\tio_bytes         count            avg_bytes
[WRITE]
app buffered data:\t1048576         256             4096
app direct data:\t8192            2               4096
app mapped data:\t4096            1               4096
app buffered cdata:\t0               0               0
fs data:\t\t1052672         3               350890
fs cdata:\t\t4096            1               4096
fs node:\t\t12288           3               4096
fs meta:\t\t0               0               0
fs gc data:\t\t4096            1               4096
fs gc node:\t\t0               0               0
fs cp data:\t\t0               0               0
fs cp node:\t\t8192            2               4096
fs cp meta:\t\t16384           4               4096
[READ]
fs node:\t\t999             1               999
"""


def test_xfs_counts_application_and_log_bytes() -> None:
    counters = parse_xfs_stats(XFS)
    assert (counters.application, counters.journal) == (10_485_760, 59_392)
    assert counters.data is None


def test_f2fs_counts_each_class_and_ignores_reads() -> None:
    counters = parse_f2fs_iostat(F2FS)
    assert counters.application == 1_056_768
    assert counters.data == 8192 + 1_052_672 + 4096
    assert (counters.node, counters.metadata) == (20_480, 16_384)


def test_f2fs_of_older_kernels_has_other_names_and_no_heading_of_reads() -> None:
    old = """\
time:		1764440000
app buffered:	1048576
app direct:	8192
app mapped:	4096
fs data:	1052672
fs node:	12288
fs meta:	0
fs gc data:	4096
fs gc node:	0
fs cp data:	0
fs cp node:	8192
fs cp meta:	16384
app buffered:	77
app direct:	77
fs data:	77
fs node:	77
fs meta:	77
"""
    assert parse_f2fs_iostat(old) == parse_f2fs_iostat(F2FS)


@pytest.mark.parametrize("text", ["", "log 1", "xpc 1 2 3", "log 1 2\nxpc x y"])
def test_incomplete_statistics_are_refused(text: str) -> None:
    with pytest.raises(BadInput):
        parse_xfs_stats(text)
    with pytest.raises(BadInput):
        parse_f2fs_iostat(text)


def test_a_witness_agrees_only_to_the_byte() -> None:
    assert Witness("jbd2", 4096, 4096).agrees
    assert not Witness("jbd2", 4096, 4097).agrees
