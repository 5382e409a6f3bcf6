"""The measurements of one part of a test in a journal, from which all results are derived."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from opwatch.pts.loads import ROUND
from opwatch.pts.order import PtsOrder
from opwatch.pts.samples import PtsSample
from opwatch.steady.pts import PtsRule, PtsVerdict, judge_pts
from opwatch.steady.pts_tests import PtsTest


class PtsEnd(StrEnum):
    """The condition for the end of a part or of the rounds."""

    STEADY = "steady"
    ROUNDS = "rounds"  # round limit reached without steady state
    CAPACITY = "capacity"  # four times the capacity was written without steady state
    BUDGET = "budget"  # write budget used up: the part is incomplete
    DONE = "done"  # a test without a steady state


@dataclass(frozen=True, slots=True)
class PtsRecord:
    """All measurements of one part.

    `totals` are the complete results of loads measured in intervals. `logical_bytes` is the drive's block
    size: test points with smaller blocks were left out.
    """

    place: int = field(metadata={"key": "part"})
    end: PtsEnd
    samples: tuple[PtsSample, ...]
    totals: tuple[PtsSample, ...]
    logical_bytes: int
    fio_version: str

    def group_rounds(self) -> list[list[PtsSample]]:
        """Return the samples of each round, in order."""
        by_round: dict[int, list[PtsSample]] = {}
        for sample in self.samples:
            if sample.stage == ROUND:
                by_round.setdefault(sample.number, []).append(sample)
        return [by_round[number] for number in sorted(by_round)]

    def group_stages(self) -> dict[str, list[PtsSample]]:
        """Return the samples of each stage after the rounds, by name and in order."""
        stages: dict[str, list[PtsSample]] = {}
        for sample in self.samples:
            if sample.stage != ROUND:
                stages.setdefault(sample.stage, []).append(sample)
        return stages


def judge_rounds(order: PtsOrder, part: PtsTest, rounds: Sequence[Sequence[PtsSample]]) -> PtsVerdict | None:
    """Apply SNIA's rule to the rounds.

    Returns None if there are too few rounds or the test has no steady state. Incomplete rounds do not count.
    """
    rule = PtsRule(most_rounds=order.most_rounds(part))
    tracks: dict[str, list[float]] = {f"{part.variable}, {point}": [] for point in part.steady}
    for samples in rounds:
        values = {
            f"{part.variable}, {sample.point_name}": sample.find_value(part.variable) for sample in samples
        }
        if not tracks.keys() <= values.keys() or len(samples) < len(rounds[0]):
            break
        for name, track in tracks.items():
            track.append(values[name])
    if not tracks or min(map(len, tracks.values())) < rule.window:
        return None
    return judge_pts(tracks, rule)
