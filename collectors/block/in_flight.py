"""Compute completed requests and requests in flight from counters and sums of times.

For samples that the extension does not make; opwatch/_native/block/sample.c computes the same.
"""

from __future__ import annotations

from collections.abc import Mapping

MODULUS = 1 << 64
# OW_TIME_MARK of bpf/abi/block.h, added to each term of a sum of absolute times.
TIME_MARK = 1 << 57
_MAX_TORN = 32
# Sums used only in this computation.
TIME_SUMS = ("issue_sum_ns", "end_sum_ns", "lost_sum_ns")


def count_ended(counts: Mapping[str, int]) -> int:
    """Return the number of completed requests whose issue was seen. Pure."""
    unseen = sum(counts[name] for name in ("never_issued", "flush_tails", "unmatched", "refused"))
    return sum(counts[name] for name in ("ends", "first_ends", "missed")) - unseen


def count_completed(counts: Mapping[str, int]) -> int:
    """Return the number of completed requests with a latency in `sum_ns`. Pure."""
    return count_ended(counts) - (counts["taken_back"] - counts["refused"]) - counts["missed"]


def measure_in_flight(counts: Mapping[str, int], now_ns: int) -> tuple[int, int]:
    """Return the requests in flight, and the integral of their number over time up to `now_ns`. Pure.

    A count and its sum may be read at different moments. They then differ by whole terms, which TIME_MARK
    makes visible: the integral exceeds the latencies of completed requests only by the ages of those in
    flight.
    """
    left = count_ended(counts) + counts["overwritten"] + counts["abandoned"]
    number, marked = counts["issued"] - counts["map_full"] - left, now_ns + TIME_MARK
    left_ns = counts["end_sum_ns"] + counts["lost_sum_ns"]
    integral = number * marked - counts["issue_sum_ns"] + left_ns
    for torn in sorted(range(-_MAX_TORN, _MAX_TORN + 1), key=abs):
        excess = (integral - torn * marked - counts["sum_ns"] + TIME_MARK // 4) % MODULUS
        if excess < TIME_MARK // 2:
            return max(number - torn, 0), (integral - torn * marked) % MODULUS
    return max(number, 0), integral % MODULUS
