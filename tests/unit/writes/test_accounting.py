"""The kernel's count of control groups against ours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from opwatch.writes.accounting import find_disagreements, parse_accounted_writes
from opwatch.writes.classes import WriteClass, WriteCount, WriteGroup
from opwatch.writes.reading import AccountedWrites, WritesReading

from .readings import make_reading

NAMES = {7: "/db", 8: "/db/wal", 9: "/dbx"}


def make_accounted(counted: Mapping[int, int], accounted: Mapping[str, tuple[int, int]]) -> WritesReading:
    return replace(
        make_reading({}, {}),
        groups={
            WriteGroup(group, 0, WriteClass.DATA): WriteCount(size, 1) for group, size in counted.items()
        },
        accounted={name: AccountedWrites(*pair) for name, pair in accounted.items()},
    )


def list_disagreeing(counted: Mapping[int, int], accounted: Mapping[str, tuple[int, int]]) -> list[str]:
    begin = make_accounted({7: 50}, {"/": (0, 0), "/db": (1000, 1000)})
    end = make_accounted(counted, accounted)
    return [text.split(":")[0] for text in find_disagreements(begin, end, NAMES)]


def test_a_group_has_the_bytes_of_the_groups_below_it() -> None:
    accounted = {"/": (9, 9), "/db": (1130, 1130), "/db/wal": (30, 30), "/dbx": (5, 5)}
    assert not list_disagreeing({7: 150, 8: 30, 9: 5}, accounted)
    assert list_disagreeing({7: 150, 8: 29, 9: 5}, accounted) == ["/db", "/db/wal"]


@pytest.mark.parametrize(("counted", "agrees"), [(149, False), (150, True), (160, True), (161, False)])
def test_writes_between_the_readings_may_be_on_either_side(counted: int, agrees: bool) -> None:
    assert (not list_disagreeing({7: counted}, {"/db": (1100, 1110)})) is agrees


def test_bytes_of_removed_groups_may_be_in_any_group_above() -> None:
    assert not list_disagreeing({7: 150, 77: 12}, {"/db": (1112, 1112)})
    assert list_disagreeing({7: 150, 77: 12}, {"/db": (1113, 1113)}) == ["/db"]


def test_io_stat_is_read_for_the_given_devices() -> None:
    text = "8:0 rbytes=1 wbytes=20 rios=1 wios=1\n8:16 wbytes=300\n7:0 \n\n9:1 wbytes=x\n"
    assert parse_accounted_writes(text, {"8:0", "8:16", "7:0", "9:1"}) == 320
    assert parse_accounted_writes(text, {"8:16"}) == 300
