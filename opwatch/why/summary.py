"""An answer in the form that a report shows. Pure."""

from __future__ import annotations

from opwatch.report.slow_summary import SlowCause, SlowSummary
from opwatch.why.answer import Answer, SlowOperation
from opwatch.why.decision import NamedCause
from opwatch.why.layers import compute_shares


def summarize_answer(answer: Answer) -> tuple[SlowSummary, ...]:
    """Return the slow operations of all disks, the largest excess first."""
    return tuple(_summarize_operation(one) for one in answer.slow)


def _summarize_operation(one: SlowOperation) -> SlowSummary:
    slow, disk = one.slowness, one.slowness.disk
    return SlowSummary(
        label=disk.label,
        op=slow.op,
        episodes=tuple(
            (disk.begins_ns[episode.begin], disk.ends_ns[episode.end - 1]) for episode in slow.episodes
        ),
        seconds=slow.slow_seconds,
        usual_p99_ns=slow.level.value,
        p99_ns=slow.slow_p99_ns,
        layers={layer.value: share for layer, share in compute_shares(slow.total_excess).items()},
        causes=tuple(_summarize_cause(cause) for cause in one.verdict.causes),
        unknown=one.verdict.unknown,
        needs=(*one.needs, *one.verdict.needs),
    )


def _summarize_cause(cause: NamedCause) -> SlowCause:
    found = [one.candidate for one in cause.found]
    return SlowCause(
        names=tuple(one.name.value for one in found),
        share=cause.share,
        evidence=tuple(one.evidence for one in found),
        checks=tuple(one.check for one in found),
    )
