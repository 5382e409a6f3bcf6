"""What made requests slow, as a table and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from opwatch.clock import format_span
from opwatch.report.slow_summary import SlowCause, SlowSummary, prefix_cause
from opwatch.report.subject import ReportedRun
from opwatch.sinks.blocks import TextTable
from opwatch.sinks.report.plots import amounts

SLOW_TITLE = "What made requests slow"
_HEAD = ("requests", "when", "time spent in", "cause", "what to do", "usual p99", "slow p99", "share")
_WORDS = 5
_PLURALS = {"read": "reads", "write": "writes", "flush": "flushes"}
# A smaller share is not shown.
_MIN_SHARE = 0.005


def build_slow_causes_table(run: ReportedRun) -> TextTable | None:
    """Return a row per cause, and one for what is unknown; None if nothing was slow."""
    rows = [row for slow in run.slow for row in _format_rows(run, slow)]
    return TextTable(_HEAD, rows, _WORDS) if rows else None


def _format_rows(run: ReportedRun, slow: SlowSummary) -> Iterator[list[str]]:
    what = f"{_PLURALS[slow.op]} of {slow.label}"
    times = [amounts.format_latency(slow.usual_p99_ns), amounts.format_latency(slow.p99_ns)]
    ranked = sorted(slow.layers.items(), key=lambda layer: -layer[1])
    layers = ", ".join(
        f"{name} {amounts.format_percent(share)}" for name, share in ranked if abs(share) >= _MIN_SHARE
    )
    when = _format_episodes(run, slow)
    for cause in slow.causes:
        checks = "; ".join(cause.checks)
        yield [what, when, layers, _format_cause(cause), checks, *times, amounts.format_percent(cause.share)]
    if slow.unknown >= _MIN_SHARE or not slow.causes:
        needs = "; ".join(slow.needs)
        yield [what, when, layers, "unknown", needs, *times, amounts.format_percent(slow.unknown)]


def _format_cause(cause: SlowCause) -> str:
    if len(cause.names) == 1:
        return prefix_cause(cause.names[0], cause.evidence[0])
    return f"{' or '.join(cause.names)}, which cannot be told apart: {'; '.join(cause.evidence)}"


def _format_episodes(run: ReportedRun, slow: SlowSummary) -> str:
    begin_ns, end_ns = slow.episodes[0][0], slow.episodes[-1][1]
    count = f"{len(slow.episodes)} episodes, " if len(slow.episodes) > 1 else ""
    begin, end = run.to_wall_time(begin_ns), run.to_wall_time(end_ns)
    if begin and end:
        span = format_span(begin, end)
    else:
        first, last = ((at_ns - run.picture.begin_ns) / 1e9 for at_ns in (begin_ns, end_ns))
        span = f"{first:.0f} s to {last:.0f} s"
    return f"{count}{span}, {amounts.format_duration(slow.seconds)} slow"


def build_slow_document(slow: SlowSummary) -> dict[str, Any]:
    """Return the fields of a slow operation."""
    return {
        "label": slow.label,
        "op": slow.op,
        "seconds": slow.seconds,
        "usual_p99_ns": slow.usual_p99_ns,
        "p99_ns": slow.p99_ns,
        "layers": dict(slow.layers),
        "episodes": [{"begin_mono_ns": begin, "end_mono_ns": end} for begin, end in slow.episodes],
        "causes": [
            {
                "names": list(cause.names),
                "share": cause.share,
                "evidence": list(cause.evidence),
                "checks": list(cause.checks),
            }
            for cause in slow.causes
        ],
        "unknown": slow.unknown,
        "needs": list(slow.needs),
    }
