"""Witnesses match slow episodes beyond chance if they cause them, and rarely otherwise."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import pytest

from opwatch.why.statistics.bursts import flag_bursts, list_runs
from opwatch.why.statistics.matching import adjust_holm, match_witnesses
from tests.unit.support.noise import draw_ar1

Flags = list[bool]


def draw_bursts(chance: random.Random, count: int, bursts: int, length: int) -> Flags:
    flags = [False] * count
    for _ in range(bursts):
        begin = chance.randrange(count)
        for place in range(begin, min(begin + length, count)):
            flags[place] = True
    return flags


def draw_sparse(chance: random.Random, count: int) -> Flags:
    return draw_bursts(chance, count, count // 30, 1)


def draw_long(chance: random.Random, count: int) -> Flags:
    return draw_bursts(chance, count, count // 40, 7)


def draw_periodic(chance: random.Random, count: int) -> Flags:
    first = chance.randrange(30)
    return [place % 30 == first for place in range(count)]


KINDS = (draw_sparse, draw_long, draw_periodic)


@pytest.mark.parametrize("draw_slow", KINDS)
@pytest.mark.parametrize("draw_witness", KINDS)
def test_match_witnesses_rarely_finds_unrelated_ones(
    draw_slow: Callable[[random.Random, int], Flags], draw_witness: Callable[[random.Random, int], Flags]
) -> None:
    false = 0
    for seed in range(60):
        chance = random.Random(seed)
        slow, witness = draw_slow(chance, 120), draw_witness(chance, 120)
        false += match_witnesses(slow, {"witness": witness})["witness"].is_beyond_chance()
    assert false <= 2


def test_match_witnesses_finds_the_cause_among_twenty() -> None:
    found = false = 0
    for seed in range(20):
        chance = random.Random(seed)
        witnesses = {f"other {number}": draw_sparse(chance, 300) for number in range(19)}
        cause = draw_sparse(chance, 300)
        # One burst in five has no effect, and the effect is one second late.
        slow = [False, *(flag and chance.random() < 0.8 for flag in cause[:-1])]
        matches = match_witnesses(slow, witnesses | {"cause": cause})
        found += matches["cause"].is_beyond_chance()
        false += any(match.is_beyond_chance() for name, match in matches.items() if name != "cause")
    assert found >= 18
    assert false <= 1


def test_match_witnesses_counts_matched_episodes_and_lone_bursts() -> None:
    slow, witness = [False] * 200, [False] * 200
    for place in (20, 70, 120, 170):
        slow[place] = slow[place + 1] = True
    for place in (20, 70, 120, 40, 140):
        witness[place] = True
    match = match_witnesses(slow, {"witness": witness})["witness"]
    assert (match.episodes, match.matched, match.bursts, match.alone) == (4, 3, 5, 2)
    assert match.coverage == pytest.approx(6 / 8)
    assert 0 < match.score < 3 / 5
    assert match.unmatched > 80


def test_match_witnesses_allows_no_conclusion_from_one_episode() -> None:
    flags = [place == 50 for place in range(200)]
    match = match_witnesses(flags, {"witness": flags})["witness"]
    assert match.reason == "seen together once"
    assert not match.is_beyond_chance(1.0)


def test_match_witnesses_refuses_a_short_run() -> None:
    flags = [place % 8 == 0 for place in range(30)]
    match = match_witnesses(flags, {"witness": flags})["witness"]
    assert match.p == 1
    assert match.reason and "39" in match.reason


def test_match_witnesses_has_no_result_for_a_witness_that_is_always_present() -> None:
    slow = [place % 40 == 0 for place in range(400)]
    match = match_witnesses(slow, {"witness": [True] * 400})["witness"]
    assert (match.p, match.score) == (1.0, 0.0)


def test_match_witnesses_ignores_witnesses_without_bursts_in_the_adjustment() -> None:
    chance = random.Random(3)
    slow = draw_sparse(chance, 300)
    alone = match_witnesses(slow, {"cause": slow})["cause"]
    quiet = {str(number): [False] * 300 for number in range(9)}
    matches = match_witnesses(slow, {"cause": slow, **quiet})
    assert matches["cause"] == alone
    assert matches["0"].adjusted_p == 1


def test_match_witnesses_of_an_hour_take_less_than_a_second() -> None:
    chance = random.Random(1)
    slow = draw_long(chance, 3600)
    witnesses = {str(number): draw_long(chance, 3600) for number in range(20)}
    begin = time.process_time()
    match_witnesses(slow, witnesses)
    assert time.process_time() - begin < 1


def test_adjust_holm_multiplies_by_the_number_of_remaining_tests() -> None:
    adjusted = adjust_holm({"a": 0.01, "b": 0.04, "c": 0.03})
    assert adjusted == pytest.approx({"a": 0.03, "c": 0.06, "b": 0.06})


def test_flag_bursts_finds_values_far_above_noise() -> None:
    values = [100 + value for value in draw_ar1(random.Random(1), 200, 0.5)]
    assert not any(flag_bursts(values))
    values[50] = values[51] = 140
    assert list_runs(flag_bursts(values)) == [(50, 52)]
    assert list_runs(flag_bursts([0, 0, 3, 0, 0, 1])) == [(2, 3), (5, 6)]
