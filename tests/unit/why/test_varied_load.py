"""Housekeeping and saturation while the load varies by itself, is near the limit, or is slow for a half."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable

import pytest

from opwatch.why.candidate import CauseName
from opwatch.why.decision import decide_causes
from tests.unit.why.witnessed_runs import (
    MS,
    US,
    Second,
    draw_bursts,
    list_names,
    make_disk,
    make_seconds,
    make_slowness,
)

SECONDS = 120
SEEDS = range(10)


def count_names(runs: Iterable[list[Second]]) -> Counter[tuple[CauseName, ...]]:
    """Return how often each answer is given for the reads of runs."""
    return Counter(tuple(list_names(decide_causes(make_slowness(make_disk(one), "read")))) for one in runs)


def make_stalled_run(
    seed: int, *, busy_ns: float = 100 * US, late: int = 0, delayed: int = 0
) -> list[Second]:
    """Return a run with a stall each 6.5 s, whose load halves half-way; `busy_ns` is the usual time of reads
    in the busier half. A few answers are late in `late` seconds. In the busier half, `delayed` seconds after
    a stall are slow as well, and have more requests."""
    seconds = make_seconds(SECONDS, seed)
    chosen = set(random.Random(seed).sample(range(SECONDS), late))
    stalled = {int(3 + 6.5 * number) for number in range(SECONDS // 7)}
    for at, one in enumerate(seconds):
        if at < SECONDS // 2:
            one.reads, one.writes = 2 * one.reads, 2 * one.writes
            one.read_ns *= busy_ns / (100 * US)
        one.read_ns = 10 * MS if at in stalled else one.read_ns * (1.7 if at in chosen else 1)
    for at in (stall + after for stall in stalled for after in range(1, delayed + 1)):
        if at < SECONDS // 2:
            seconds[at].reads, seconds[at].writes, seconds[at].read_ns = 2200, 2200, 4 * MS
    return seconds


def test_housekeeping_is_found_where_a_busier_half_is_slow_as_a_whole() -> None:
    answers = count_names(make_stalled_run(seed, busy_ns=300 * US) for seed in SEEDS)
    assert answers[(CauseName.HOUSEKEEPING,)] == len(SEEDS), answers


def test_housekeeping_is_found_among_a_few_late_answers() -> None:
    answers = count_names(make_stalled_run(seed, late=15) for seed in SEEDS)
    assert answers[(CauseName.HOUSEKEEPING,)] == len(SEEDS), answers


def test_housekeeping_is_found_if_held_up_requests_are_slow_as_well() -> None:
    answers = count_names(make_stalled_run(seed, busy_ns=300 * US, delayed=3) for seed in SEEDS)
    assert answers[(CauseName.HOUSEKEEPING,)] == len(SEEDS), answers


def test_one_busier_half_is_not_saturation() -> None:
    def make_run(seed: int) -> list[Second]:
        seconds = make_seconds(SECONDS, seed)
        source = random.Random(seed)
        for one in seconds[: SECONDS // 2]:
            one.reads, one.read_ns, one.depth = 2 * one.reads, source.choice([100, 400]) * US, 4.0
        return seconds

    answers = count_names(make_run(seed) for seed in SEEDS)
    assert answers[()] == len(SEEDS), answers


def make_stepped_run(seed: int, read_ns: float) -> list[Second]:
    """Return a run with a load in steps, and six bursts of a higher one with this time of a read."""
    source = random.Random(seed)
    seconds = make_seconds(SECONDS, seed)
    for begin in range(0, SECONDS, 8):
        share = source.uniform(0.3, 1.0)
        for one in seconds[begin : begin + 8]:
            one.reads, one.writes, one.depth = share * one.reads, share * one.writes, 0.2 * share
    for at in draw_bursts(SECONDS, seed):
        one = seconds[at]
        one.reads, one.writes, one.read_ns, one.depth = 1400, 300, read_ns, 4.0
    return seconds


@pytest.mark.parametrize(
    ("read_ns", "names"), [(1 * MS, (CauseName.SATURATION,)), (200 * US, ())], ids=["limit", "busier"]
)
def test_load_that_varies_is_saturation_only_at_the_limit_of_the_drive(
    read_ns: float, names: tuple[CauseName, ...]
) -> None:
    answers = count_names(make_stepped_run(seed, read_ns) for seed in SEEDS)
    assert answers[names] >= 0.9 * len(SEEDS), answers
    assert set(answers) <= {names, ()}


def test_load_near_the_limit_is_saturation_if_reads_displace_writes() -> None:
    def saturate(second: Second) -> None:
        second.reads, second.writes, second.read_ns, second.depth = 1700, 500, 1 * MS, 4.0

    runs = [make_seconds(SECONDS, seed, draw_bursts(SECONDS, seed), saturate) for seed in SEEDS]
    answers = count_names(runs)
    assert answers[(CauseName.SATURATION,)] == len(SEEDS), answers
