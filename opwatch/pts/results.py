"""The results of a part of a test: the tables required in the report. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from opwatch.pts.order import PtsOrder
from opwatch.pts.record import PtsEnd, PtsRecord, judge_rounds
from opwatch.pts.samples import PtsSample
from opwatch.steady.pts import PtsVerdict
from opwatch.steady.pts_tests import PtsTest

# Share of the original rate that counts as recovered, and final share of the stage that defines the rate.
_RECOVERED, _TAIL = 0.9, 0.1


@dataclass(frozen=True, slots=True)
class PtsFigures:
    """The figures of one test point over the window's rounds, or of one stage.

    `max_ns` and `five_nines_ns` (99.999 % latency) are the largest known values of the `loads`; all other
    figures are means.
    """

    name: str
    read_percent: int
    block_bytes: int
    loads: int
    iops: float
    megabytes_per_s: float
    mean_ns: float | None
    five_nines_ns: float | None
    max_ns: int | None


@dataclass(frozen=True, slots=True)
class PtsPart:
    """One part of a test with all results derived from its measurements.

    `verdict` may be None, with the reason in `unjudged`. `figures` are those of `window`, which holds the
    first and last round.
    """

    part: PtsTest
    record: PtsRecord
    verdict: PtsVerdict | None
    unjudged: str
    window: tuple[int, int] | None
    figures: tuple[PtsFigures, ...]
    stages: tuple[PtsFigures, ...]
    recovery_s: float | None

    @property
    def is_whole(self) -> bool:
        """Return True if the part ran to the end and reached steady state where required."""
        if not self.part.steady:
            return self.record.end is PtsEnd.DONE
        return self.verdict is not None and self.verdict.is_steady and self.record.end is not PtsEnd.BUDGET


def derive_part(order: PtsOrder, part: PtsTest, record: PtsRecord) -> PtsPart:
    rounds = record.group_rounds()
    verdict = judge_rounds(order, part, rounds)
    window = verdict.window if verdict else None
    chosen = rounds[window[0] - 1 : window[1]] if window else rounds[-1:]
    by_point: dict[str, list[PtsSample]] = {}
    for sample in (sample for samples in chosen for sample in samples):
        by_point.setdefault(sample.point_name, []).append(sample)
    stages = tuple(
        merge_figures(name, samples, [total for total in record.totals if total.stage == name])
        for name, samples in record.group_stages().items()
    )
    return PtsPart(
        part=part,
        record=record,
        verdict=verdict,
        unjudged=_explain_no_verdict(part, verdict, len(rounds)),
        window=window,
        figures=tuple(merge_figures(name, samples) for name, samples in by_point.items()),
        stages=stages,
        recovery_s=_find_recovery_s(list(record.group_stages().values())) if not part.steady else None,
    )


def _explain_no_verdict(part: PtsTest, verdict: PtsVerdict | None, rounds: int) -> str:
    if verdict:
        return ""
    if not part.steady:
        return "this test has no steady state: it measures how one workload affects the next"
    return f"{rounds} rounds were done; SNIA's rule needs 5"


def merge_figures(name: str, samples: Sequence[PtsSample], totals: Sequence[PtsSample] = ()) -> PtsFigures:
    """Merge loads of one kind into figures.

    For loads logged in intervals, the tail latencies are in `totals`.
    """
    seconds = sum(sample.seconds for sample in samples)
    tails = [*samples, *totals]
    means = [(sample.mean_ns, sample.ios) for sample in samples if sample.mean_ns is not None]
    weight = sum(ios for _, ios in means)
    return PtsFigures(
        name=name,
        read_percent=samples[0].read_percent,
        block_bytes=samples[0].block_bytes,
        loads=len(samples),
        iops=sum(sample.ios for sample in samples) / seconds,
        megabytes_per_s=sum(sample.read_bytes + sample.write_bytes for sample in samples) / seconds / 1e6,
        mean_ns=sum(mean * ios for mean, ios in means) / weight if weight else None,
        five_nines_ns=max(
            (one.five_nines_ns for one in tails if one.five_nines_ns is not None), default=None
        ),
        max_ns=max((one.max_ns for one in tails if one.max_ns is not None), default=None),
    )


def _find_recovery_s(stages: Sequence[Sequence[PtsSample]]) -> float | None:
    """Return the seconds into the last stage until reaching 90 % of the rate at the end of the first stage.

    None if never reached. The specification leaves the definition of recovery to the reader; this definition
    is opwatch's.
    """
    if len(stages) < 2:
        return None
    first, last = stages[0], stages[-1]
    tail = first[-max(round(len(first) * _TAIL), 1) :]
    wanted = _RECOVERED * sum(sample.megabytes_per_s for sample in tail) / len(tail)
    for sample in last:
        if sample.megabytes_per_s >= wanted:
            return sample.begin_s - last[0].begin_s
    return None
