"""A round: an interval of the workload, with the host and drive figures measured in it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Round:
    """The figures of one interval of the workload. `p99_ns` and `nand_bytes` are None if not measured."""

    host_bytes: int
    seconds: float
    ios: int
    p99_ns: float | None = None
    nand_bytes: int | None = None

    def find_flaw(self) -> str | None:
        return None if self.seconds else "a round has a duration of 0"

    @property
    def iops(self) -> float:
        return self.ios / self.seconds

    @property
    def waf(self) -> float | None:
        """Return NAND bytes per host byte, or None if nothing was written or counted."""
        if self.nand_bytes is None or not self.host_bytes:
            return None
        return self.nand_bytes / self.host_bytes


class RoundSums:
    """Running sums over rounds, from which any stretch of them is merged in constant time."""

    def __init__(self, rounds: Sequence[Round]) -> None:
        self.host_bytes = _accumulate(one.host_bytes for one in rounds)
        self._seconds = _accumulate(one.seconds for one in rounds)
        self._ios = _accumulate(one.ios for one in rounds)
        self._tails = _accumulate(one.p99_ns or 0 for one in rounds)
        self._nand = _accumulate(one.nand_bytes or 0 for one in rounds)
        # Rounds without the value so far.
        self._lost_tails = _accumulate(one.p99_ns is None for one in rounds)
        self._lost_nand = _accumulate(one.nand_bytes is None for one in rounds)

    def merge(self, begin: int, end: int) -> Round:
        """Merge the rounds from `begin` to before `end`, as merge_rounds() does."""

        def subtract(sums: Sequence[float]) -> float:
            return sums[end] - sums[begin]

        has_tails, has_nand = not subtract(self._lost_tails), not subtract(self._lost_nand)
        return Round(
            int(subtract(self.host_bytes)),
            subtract(self._seconds),
            int(subtract(self._ios)),
            subtract(self._tails) / (end - begin) if has_tails else None,
            int(subtract(self._nand)) if has_nand else None,
        )


def _accumulate(values: Iterable[float]) -> list[float]:
    return list(itertools.accumulate(values, initial=0))


def merge_rounds(rounds: Sequence[Round]) -> Round:
    """Merge consecutive rounds.

    The merged p99 is the mean of the rounds' values: it shows a trend, but is not a percentile.
    """
    tails = [one.p99_ns for one in rounds if one.p99_ns is not None]
    nand = [one.nand_bytes for one in rounds if one.nand_bytes is not None]
    return Round(
        sum(one.host_bytes for one in rounds),
        sum(one.seconds for one in rounds),
        sum(one.ios for one in rounds),
        sum(tails) / len(tails) if len(tails) == len(rounds) else None,
        sum(nand) if len(nand) == len(rounds) else None,
    )
