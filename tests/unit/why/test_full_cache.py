"""A full pseudo-SLC cache: when it is named, and when slow sequential writes remain unknown."""

from __future__ import annotations

import random

import pytest

from opwatch.why.candidate import CauseName
from opwatch.why.decision import CauseVerdict, decide_causes
from tests.unit.why.witnessed_runs import (
    MS,
    Second,
    list_names,
    make_disk,
    make_drive,
    make_seconds,
    make_slowness,
)

SECONDS = 120


def make_spells(seed: int, cache_mb: float, *, is_sequential: bool = True) -> list[Second]:
    """Return sequential writes of 50 MB/s with idle times, slow after `cache_mb`; 0: at random times."""
    chance = random.Random(seed)
    seconds = make_seconds(SECONDS, seed)
    written, left = 0.0, chance.randint(5, 12)
    for one in seconds:
        left -= 1
        if left < 0:
            one.reads = one.writes = one.write_bytes = written = 0.0
            left = chance.randint(5, 12) if chance.random() < 0.4 else -1
            continue
        one.sequential, one.write_bytes = float(is_sequential), 50e6 * chance.uniform(0.9, 1.1)
        is_full = written > cache_mb * 1e6 if cache_mb else chance.random() < 0.4
        one.write_ns = 3 * MS if is_full else one.write_ns
        written += one.write_bytes
    return seconds


def decide(seconds: list[Second], throttled: range = range(0)) -> CauseVerdict:
    drive = make_drive(seconds, throttled=throttled)
    return decide_causes(make_slowness(make_disk(seconds), "write", drive))


@pytest.mark.parametrize("seed", range(10))
def test_cache_is_named_if_the_same_bytes_are_fast_after_each_idle_time(seed: int) -> None:
    assert list_names(decide(make_spells(seed, 120))) == [CauseName.SLC_CACHE]


@pytest.mark.parametrize("seed", range(10))
def test_cache_is_not_named_if_writes_are_slow_at_random_times(seed: int) -> None:
    assert CauseName.SLC_CACHE not in list_names(decide(make_spells(seed, 0)))


def test_cache_is_not_named_for_random_writes() -> None:
    assert CauseName.SLC_CACHE not in list_names(decide(make_spells(1, 120, is_sequential=False)))


def test_cache_is_not_named_if_the_drive_throttled_by_heat() -> None:
    assert CauseName.SLC_CACHE not in list_names(decide(make_spells(1, 120), throttled=range(20, 25)))
