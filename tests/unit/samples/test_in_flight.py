"""The number in flight and its integral, from sums that wrap and from sums read at different times."""

from __future__ import annotations

import random

import pytest

from opwatch.collectors.block.in_flight import MODULUS, TIME_MARK, measure_in_flight
from opwatch.trace.abi import SCALARS

BOOT_NS = 77 * 86400 * 10**9


def make_counts(requests: list[tuple[int, int | None]]) -> dict[str, int]:
    """Return the programs' counts for requests given as (issue, completion or None)."""
    ended = [(issue, end) for issue, end in requests if end is not None]
    return dict.fromkeys(SCALARS, 0) | {
        "issued": len(requests),
        "ends": len(ended),
        "sum_ns": sum(end - issue for issue, end in ended),
        "issue_sum_ns": sum(issue + TIME_MARK for issue, _ in requests) % MODULUS,
        "end_sum_ns": sum(end + TIME_MARK for _, end in ended) % MODULUS,
    }


@pytest.fixture
def requests() -> list[tuple[int, int | None]]:
    chance = random.Random(5)
    ended: list[tuple[int, int | None]] = []
    for _ in range(20_000):
        issue = BOOT_NS + chance.randrange(10**10)
        ended.append((issue, issue + chance.randrange(10**7)))
    return [*ended, (BOOT_NS + 10**9, None), (BOOT_NS + 10**10, None)]


NOW_NS = BOOT_NS + 2 * 10**10


def sum_in_flight_ns(requests: list[tuple[int, int | None]]) -> int:
    return sum((NOW_NS if end is None else end) - issue for issue, end in requests)


def test_integral_is_exact_for_completed_and_waiting_requests(
    requests: list[tuple[int, int | None]],
) -> None:
    assert measure_in_flight(make_counts(requests), NOW_NS) == (2, sum_in_flight_ns(requests))


@pytest.mark.parametrize("torn", [-5, -1, 1, 7])
def test_count_read_before_its_sum_is_corrected(requests: list[tuple[int, int | None]], torn: int) -> None:
    counts = make_counts(requests)
    counts["issued"] += torn
    assert measure_in_flight(counts, NOW_NS) == (2, sum_in_flight_ns(requests))


def test_requests_without_a_known_issue_are_in_neither_sum(requests: list[tuple[int, int | None]]) -> None:
    counts = make_counts(requests)
    for name, by in (("unmatched", 3), ("flush_tails", 2), ("never_issued", 4), ("refused", 1)):
        counts[name] += by
        counts["ends"] += by
    counts["issued"] += 6
    counts["map_full"] += 6
    assert measure_in_flight(counts, NOW_NS) == (2, sum_in_flight_ns(requests))


def test_freed_or_lost_request_counts_until_then(
    requests: list[tuple[int, int | None]],
) -> None:
    counts = make_counts(requests)
    counts["abandoned"], counts["overwritten"] = 1, 1
    counts["lost_sum_ns"] = 2 * BOOT_NS + (3 + 15) * 10**9 + 2 * TIME_MARK
    waited = (3 - 1) * 10**9 + (15 - 10) * 10**9
    without = sum_in_flight_ns([one for one in requests if one[1] is not None])
    assert measure_in_flight(counts, NOW_NS) == (0, without + waited)
