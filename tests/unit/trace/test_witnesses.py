from __future__ import annotations

import json

import pytest

from opwatch.collectors.block.diskstats import decode_stat, without_what_is_not_kept
from opwatch.errors import OpwatchError
from opwatch.host.fio import decode_fio

STAT_6_1 = "  7 0 56 3 11 2 88 9 0 12 14 5 0 2048 1 3 2\n"
STAT_4_18 = "  7 0 56 3 11 2 88 9 0 12 14\n"


def test_every_group_of_a_stat_file() -> None:
    requests, bytes_ = decode_stat(STAT_6_1)
    assert requests == {"read": 7, "write": 11, "discard": 5, "flush": 3}
    assert bytes_ == {"read": 56 * 512, "write": 88 * 512, "discard": 2048 * 512}


def test_groups_an_old_kernel_lacks_are_left_out() -> None:
    requests, bytes_ = decode_stat(STAT_4_18)
    assert set(requests) == set(bytes_) == {"read", "write"}


@pytest.mark.parametrize("text", ["", "1 2 3", "a b c d e f g h i j k"])
def test_a_bad_stat_file_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"stat file|invalid literal"):
        decode_stat(text)


def test_fio_warns_before_its_json() -> None:
    job = {"job_runtime": 2000, **{k: {"total_ios": 0, "io_bytes": 0} for k in ("read", "write", "trim")}}
    job["trim"] = {"total_ios": 5, "io_bytes": 5 << 20}
    result = decode_fio("fio: a warning\n" + json.dumps({"jobs": [job]}))
    assert result.requests == {"read": 0, "write": 0, "discard": 5}
    assert result.bytes["discard"] == 5 << 20
    assert result.iops == 2.5


def test_fio_without_json_is_an_error() -> None:
    with pytest.raises(OpwatchError, match="no JSON"):
        decode_fio("fio: file not found\n")


def test_what_a_driver_of_bios_never_counted_it_does_not_keep() -> None:
    counts = {"read": 16, "write": 16, "discard": 0, "flush": 0}
    kept = without_what_is_not_kept(counts, {"read": 1 << 20, "write": 1 << 20, "discard": 0})
    assert kept == ({"read": 16, "write": 16}, {"read": 1 << 20, "write": 1 << 20})
    assert without_what_is_not_kept({"read": 0, "write": 0}, {"read": 0, "write": 0}) == ({}, {})
