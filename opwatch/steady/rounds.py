"""A round: an interval of the workload, with the host and drive figures measured in it."""

from __future__ import annotations

from collections.abc import Sequence
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
