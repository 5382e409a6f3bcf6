"""What came of one part of a test, as its journal keeps it: what was measured, and all else follows from."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

from opwatch.fields import Fields
from opwatch.frozen import frozen
from opwatch.pts.loads import ROUND
from opwatch.pts.order import PtsOrder
from opwatch.pts.samples import PtsSample, sample_of
from opwatch.steady.pts import PtsRule, PtsVerdict, judge_pts
from opwatch.steady.pts_tests import PtsTest


class PtsEnd(StrEnum):
    """What ended the rounds of a part, or all of it."""

    STEADY = "steady"
    ROUNDS = "rounds"  # as many as there may be, and not steady
    CAPACITY = "capacity"  # four times the capacity was written, and not steady
    BUDGET = "budget"  # what may be written is gone: not all of it was done
    DONE = "done"  # a test that has no steady state of its own


@frozen
class PtsRecord:
    """All that was measured of one part. `totals` are of loads that were measured stretch by stretch, whole.
    `logical_bytes` is the block of the drive: smaller points were left out."""

    place: int
    end: PtsEnd
    samples: tuple[PtsSample, ...]
    totals: tuple[PtsSample, ...]
    logical_bytes: int
    fio_version: str

    def rounds(self) -> list[list[PtsSample]]:
        """The samples of each round, in order."""
        by_round: dict[int, list[PtsSample]] = {}
        for sample in self.samples:
            if sample.stage == ROUND:
                by_round.setdefault(sample.number, []).append(sample)
        return [by_round[number] for number in sorted(by_round)]

    def stages(self) -> dict[str, list[PtsSample]]:
        """What came behind the rounds, by name, in order."""
        stages: dict[str, list[PtsSample]] = {}
        for sample in self.samples:
            if sample.stage != ROUND:
                stages.setdefault(sample.stage, []).append(sample)
        return stages

    def document(self) -> dict[str, Any]:
        return {
            "part": self.place,
            "end": self.end.value,
            "samples": [sample.document() for sample in self.samples],
            "totals": [sample.document() for sample in self.totals],
            "logical_bytes": self.logical_bytes,
            "fio_version": self.fio_version,
        }


def record_of_part(fields: Fields) -> PtsRecord:
    """The record that document() wrote; BadInput for all else."""
    return PtsRecord(
        place=fields.count("part"),
        end=fields.kind("end", PtsEnd),
        samples=_samples(fields, "samples"),
        totals=_samples(fields, "totals"),
        logical_bytes=fields.count("logical_bytes"),
        fio_version=fields.text("fio_version"),
    )


def _samples(fields: Fields, key: str) -> tuple[PtsSample, ...]:
    samples = []
    for row in fields.rows(key):
        if not isinstance(row, dict):
            raise fields.bad(f"{key} is no list of tables")
        samples.append(sample_of(Fields(row, f"{fields.where}: {key}")))
    return tuple(samples)


def verdict_of(order: PtsOrder, part: PtsTest, rounds: Sequence[Sequence[PtsSample]]) -> PtsVerdict | None:
    """What SNIA's rule says of these rounds; None where there are too few of them, or the test has none. A
    round that was not done whole is none."""
    rule = PtsRule(most_rounds=order.most_rounds(part))
    tracks: dict[str, list[float]] = {f"{part.variable}, {point}": [] for point in part.steady}
    for samples in rounds:
        values = {f"{part.variable}, {sample.point}": sample.value(part.variable) for sample in samples}
        if not tracks.keys() <= values.keys() or len(samples) < len(rounds[0]):
            break
        for name, track in tracks.items():
            track.append(values[name])
    if not tracks or min(map(len, tracks.values())) < rule.window:
        return None
    return judge_pts(tracks, rule)
