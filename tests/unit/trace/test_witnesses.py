from __future__ import annotations

import pytest

from opwatch.collectors.block.diskstats import decode_stat, drop_unmaintained

STAT_6_1 = "  7 0 56 3 11 2 88 9 0 12 14 5 0 2048 1 3 2\n"
STAT_4_18 = "  7 0 56 3 11 2 88 9 0 12 14\n"


def test_every_stat_file_group_is_read() -> None:
    requests, bytes_ = decode_stat(STAT_6_1)
    assert requests == {"read": 7, "write": 11, "discard": 5, "flush": 3}
    assert bytes_ == {"read": 56 * 512, "write": 88 * 512, "discard": 2048 * 512}


def test_groups_an_old_kernel_lacks_are_left_out() -> None:
    requests, bytes_ = decode_stat(STAT_4_18)
    assert set(requests) == set(bytes_) == {"read", "write"}


@pytest.mark.parametrize("text", ["", "1 2 3", "a b c d e f g h i j k"])
def test_invalid_stat_file_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"stat file|invalid literal"):
        decode_stat(text)


def test_groups_that_a_bio_driver_never_counted_are_left_out() -> None:
    counts = {"read": 16, "write": 16, "discard": 0, "flush": 0}
    kept = drop_unmaintained(counts, {"read": 1 << 20, "write": 1 << 20, "discard": 0})
    assert kept == ({"read": 16, "write": 16}, {"read": 1 << 20, "write": 1 << 20})
    assert drop_unmaintained({"read": 0, "write": 0}, {"read": 0, "write": 0}) == ({}, {})
