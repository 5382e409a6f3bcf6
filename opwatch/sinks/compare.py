"""A comparison as lines of at most 80 columns, and as one JSON document. Markdown is in
compare_markdown.py."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from opwatch import SCHEMA, units
from opwatch.compare.comparing import WAF, ComparedDisk, ComparedRow, RunComparison
from opwatch.compare.cpu import COMMAND_IO, CPU, CPU_IO
from opwatch.compare.deciding import Decision, Ruling
from opwatch.compare.differences import FAMILY_CHANCE, Difference, Statement
from opwatch.compare.estimates import MISSED_PART, Estimate
from opwatch.rules.rule import LimitKind
from opwatch.sinks.folding import folded
from opwatch.sinks.lines import SHORT

TITLES = {"iops": "/s", "mbps": "MB/s", WAF: "WAF", CPU: "CPUs", CPU_IO: "CPU/IO", COMMAND_IO: "cmd/IO"}
_STATEMENTS = {
    Statement.HIGHER: "HIGHER",
    Statement.LOWER: "LOWER",
    Statement.NONE: "no difference",
    Statement.UNKNOWN: "unknown",
}
_RULINGS = {
    Ruling.FIRES: "FIRES",
    Ruling.WITHIN: "holds",
    Ruling.NOT_REAL: "holds",
    Ruling.UNKNOWN: "not decided",
}


def missed_s(comparison: RunComparison) -> float:
    """Return the longest state, in seconds, that the shortest run can miss."""
    return min(course.seconds for disk in comparison.disks for course in disk.courses) / MISSED_PART


def meaning(comparison: RunComparison) -> str:
    """Return the sentence about the error rate of HIGHER and LOWER, and its condition."""
    least = f"{missed_s(comparison):.3g}" if comparison.disks else "0"
    return (
        f"HIGHER and LOWER are real: of comparisons of runs that do not differ, {100 * FAMILY_CHANCE:g} % "
        "at most say so of any of their figures, as long as no state of the load or the drive lasts for "
        f"more than {least} s (1/{MISSED_PART} of the shortest run). Longer ones can be missed: repeat the "
        "runs, or record for longer. No difference: none can be told."
    )


def label(run: int) -> str:
    """Return A for the first run, B for the second."""
    return chr(ord("A") + run)


def title(metric: str) -> str:
    return TITLES.get(metric, metric)


def shown_value(metric: str, estimate: Estimate) -> str:
    """Return a figure of a run as text, or a dash if missing."""
    value = estimate.value
    if value is None:
        return "-"
    if metric in (WAF, CPU):
        return units.with_error(value, max(estimate.high - value, value - estimate.low))
    if metric == "iops":
        return units.rate(value)
    if metric == "mbps":
        return units.megabytes(value * 1e6)
    is_bound = metric == "max" and estimate.low < estimate.high
    return ("<" if is_bound else "") + units.duration(value)


def shown_ratio(ratio: float | None) -> str:
    if ratio is None:
        return "-"
    return f"{ratio:.3f}" if ratio < 100 else f"{ratio:.0f}" if ratio < 1e5 else ">99999"


def shown_interval(difference: Difference) -> str:
    if difference.low is None or difference.high is None:
        return ""
    return f"{shown_ratio(difference.low)} - {shown_ratio(difference.high)}"


class Footnotes:
    """Numbered reasons, each listed once."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def number(self, reason: str) -> int:
        if reason not in self.reasons:
            self.reasons.append(reason)
        return self.reasons.index(reason) + 1


def statement(difference: Difference, notes: Footnotes) -> str:
    word = _STATEMENTS[difference.statement]
    return f"{word} [{notes.number(difference.reason)}]" if difference.reason else word


def runs_of(comparison: RunComparison, disk: ComparedDisk) -> Iterator[str]:
    """Yield lines that describe each run."""
    for run, (file, course) in enumerate(zip(comparison.files, disk.courses, strict=True)):
        count = len(course.stretches)
        yield f"{label(run)}  {file}: {course.device}, {course.seconds:.1f} s in {count} intervals"
        for words in course.explained:
            yield f"   {words}"
        for doubt in course.doubts:
            yield f"   UNEXPLAINED: {doubt}"


def _row(row: ComparedRow, run: int, op: str, notes: Footnotes) -> str:
    difference = row.differences[run - 1]
    first, other = (shown_value(row.metric, row.estimates[place]) for place in (0, run))
    return (
        f"{SHORT.get(op, op):<8}{title(row.metric):<6}{first:>13} {other:>13}"
        f"{shown_ratio(difference.ratio):>8}  {shown_interval(difference):<15}{statement(difference, notes)}"
    ).rstrip()


def _table(disk: ComparedDisk, run: int, notes: Footnotes) -> Iterator[str]:
    yield f"{'':<14}{'A':>13} {label(run):>13}{label(run) + '/A':>8}  {'between':<15}{label(run)} is"
    before: str | None = None
    for row in disk.rows:
        op = row.op or ""
        yield _row(row, run, "" if op == before else op, notes)
        before = op


def lines(comparison: RunComparison, decisions: Sequence[Decision]) -> list[str]:
    """Return a comparison and its rulings as text lines."""
    notes, shown = Footnotes(), list[str]()
    for disk in comparison.disks:
        for text in runs_of(comparison, disk):
            shown += folded(text, indent=3, keep_words=False)
        for run in range(1, len(comparison.files)):
            shown += ["", *_table(disk, run, notes)]
        shown.append("")
    for number, reason in enumerate(notes.reasons, 1):
        shown += folded(reason, f"[{number}] ")
    shown += folded(meaning(comparison))
    for decision in decisions:
        shown += folded(ruling_of(decision), indent=2)
    return shown


def ruling_of(decision: Decision) -> str:
    """Return a decision as text."""
    words = f"{decision.rule.text}: {_RULINGS[decision.ruling]}"
    if decision.device is not None:
        op = f"{decision.op} " if decision.op else ""
        words += f", {op}{title(decision.rule.metric)} of {label(decision.run)} ({decision.device})"
    if decision.difference and decision.difference.change is not None:
        words += f" is {_change(decision)}"
    return f"{words}; {decision.why}" if decision.why else words


def _change(decision: Decision) -> str:
    """Return the change of a figure, in the unit of the rule's limit."""
    difference = decision.difference
    assert difference and difference.change is not None
    if decision.rule.kind is LimitKind.CHANGE:
        sign, size = "-" if difference.change < 0 else "+", abs(difference.change)
        if decision.rule.metric in (WAF, CPU):
            return f"{sign}{size:.3g}"
        return sign + shown_value(decision.rule.metric, Estimate(size))
    if difference.ratio is None:
        return "more than nothing"
    words = f"{100 * (difference.ratio - 1):+.1f} %"
    if difference.low is not None and difference.high is not None:
        words += f" ({100 * (difference.low - 1):+.1f} to {100 * (difference.high - 1):+.1f})"
    return words


def document(comparison: RunComparison, decisions: Iterable[Decision]) -> dict[str, Any]:
    """Return a comparison with the rulings as a JSON document."""
    return {
        "schema": SCHEMA,
        "type": "compare",
        "files": list(comparison.files),
        "chance": FAMILY_CHANCE,
        "missed_state_s": missed_s(comparison) if comparison.disks else None,
        "claims": list(comparison.claims),
        "disks": [_disk(disk) for disk in comparison.disks],
        "rules": [_decision(decision) for decision in decisions],
        "notes": list(comparison.notes),
    }


def _disk(disk: ComparedDisk) -> dict[str, Any]:
    return {
        "runs": [
            {
                "device": course.device,
                "seconds": course.seconds,
                "intervals": len(course.stretches),
                "unexplained": list(course.doubts),
                "explained": list(course.explained),
            }
            for course in disk.courses
        ],
        "figures": [
            {
                "op": row.op,
                "metric": row.metric,
                "runs": [_estimate(estimate) for estimate in row.estimates],
                "differences": [_difference(difference) for difference in row.differences],
            }
            for row in disk.rows
        ],
    }


def _estimate(estimate: Estimate) -> dict[str, Any]:
    has_value = estimate.value is not None
    return {
        "value": estimate.value,
        "low": estimate.low if has_value else None,
        "high": estimate.high if has_value else None,
        "scatter_ratio": estimate.scatter,
        "correlation": estimate.correlation,
        "reason": estimate.reason,
    }


def _difference(difference: Difference) -> dict[str, Any]:
    # A missing upper limit is null in JSON.
    high = difference.high if difference.high is not None and difference.high < 1e300 else None
    return {
        "statement": difference.statement.value,
        "is_real": difference.is_real,
        "ratio": difference.ratio,
        "ratio_low": difference.low,
        "ratio_high": high,
        "change": difference.change,
        "reason": difference.reason,
    }


def _decision(decision: Decision) -> dict[str, Any]:
    return {
        "rule": decision.rule.text,
        "ruling": decision.ruling.value,
        "run": decision.run,
        "device": decision.device,
        "op": decision.op,
        "metric": decision.rule.metric,
        "reason": decision.why,
        "difference": _difference(decision.difference) if decision.difference else None,
    }
