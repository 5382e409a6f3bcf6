"""A comparison as lines of at most 80 columns, and as one JSON document. Markdown is in
compare_markdown.py."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from opwatch import SCHEMA, units
from opwatch.compare.comparison import WAF, ComparedDisk, ComparedRow, RunComparison
from opwatch.compare.cpu import COMMAND_IO, CPU, CPU_IO
from opwatch.compare.decision import Decision, Ruling
from opwatch.compare.differences import FAMILY_ERROR_RATE, Difference, Statement
from opwatch.compare.estimates import MISSED_STATE_DIVISOR, Estimate
from opwatch.rules.rule import LimitKind
from opwatch.sinks.columns import SHORT_OP_NAMES
from opwatch.sinks.wrapping import wrap_text

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
    Ruling.UNKNOWN: "undetermined",
}


def compute_missed_s(comparison: RunComparison) -> float:
    """Return the longest state, in seconds, that the shortest run can miss."""
    return min(course.seconds for disk in comparison.disks for course in disk.courses) / MISSED_STATE_DIVISOR


def explain_error_rate(comparison: RunComparison) -> str:
    """Return the sentence about the error rate of HIGHER and LOWER, and its condition."""
    least = f"{compute_missed_s(comparison):.3g}" if comparison.disks else "0"
    return (
        "HIGHER and LOWER are real differences: when runs do not differ, at most "
        f"{100 * FAMILY_ERROR_RATE:g} % of comparisons report one in any figure, provided that no state of "
        f"the load or the drive lasts longer than {least} s (1/{MISSED_STATE_DIVISOR} of the shortest run). "
        "Longer states can be missed: repeat the runs, or record for longer. No difference: none was "
        "detected."
    )


def label_run(run: int) -> str:
    """Return A for the first run, B for the second."""
    return chr(ord("A") + run)


def get_metric_title(metric: str) -> str:
    return TITLES.get(metric, metric)


def format_value(metric: str, estimate: Estimate) -> str:
    """Return a figure of a run as text, or a dash if missing."""
    value = estimate.value
    if value is None:
        return "-"
    if metric in (WAF, CPU):
        return units.format_with_error(value, max(estimate.high - value, value - estimate.low))
    if metric == "iops":
        return units.format_rate(value)
    if metric == "mbps":
        return units.format_megabytes(value * 1e6)
    is_bound = metric == "max" and estimate.low < estimate.high
    return ("<" if is_bound else "") + units.format_ns(value)


def format_ratio(ratio: float | None) -> str:
    if ratio is None:
        return "-"
    return f"{ratio:.3f}" if ratio < 100 else f"{ratio:.0f}" if ratio < 1e5 else ">99999"


def format_bounds(difference: Difference) -> str:
    if difference.low is None or difference.high is None:
        return ""
    return f"{format_ratio(difference.low)} - {format_ratio(difference.high)}"


class Footnotes:
    """Numbered reasons, each listed once."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def find_number(self, reason: str) -> int:
        if reason not in self.reasons:
            self.reasons.append(reason)
        return self.reasons.index(reason) + 1


def format_statement(difference: Difference, notes: Footnotes) -> str:
    word = _STATEMENTS[difference.statement]
    return f"{word} [{notes.find_number(difference.reason)}]" if difference.reason else word


def describe_runs(comparison: RunComparison, disk: ComparedDisk) -> Iterator[str]:
    """Yield lines that describe each run."""
    for run, (file, course) in enumerate(zip(comparison.files, disk.courses, strict=True)):
        count = len(course.stretches)
        yield f"{label_run(run)}  {file}: {course.device}, {course.seconds:.1f} s in {count} intervals"
        for words in course.explained:
            yield f"   {words}"
        for doubt in course.doubts:
            yield f"   UNEXPLAINED: {doubt}"


def _format_row(row: ComparedRow, run: int, op: str, notes: Footnotes) -> str:
    difference = row.differences[run - 1]
    first, other = (format_value(row.metric, row.estimates[place]) for place in (0, run))
    return (
        f"{SHORT_OP_NAMES.get(op, op):<8}{get_metric_title(row.metric):<6}{first:>13} {other:>13}"
        f"{format_ratio(difference.ratio):>8}  "
        f"{format_bounds(difference):<15}{format_statement(difference, notes)}"
    ).rstrip()


def _format_table(disk: ComparedDisk, run: int, notes: Footnotes) -> Iterator[str]:
    yield (
        f"{'':<14}{'A':>13} {label_run(run):>13}{label_run(run) + '/A':>8}  "
        f"{'between':<15}{label_run(run)} is"
    )
    before: str | None = None
    for row in disk.rows:
        op = row.op or ""
        yield _format_row(row, run, "" if op == before else op, notes)
        before = op


def format_comparison(comparison: RunComparison, decisions: Sequence[Decision]) -> list[str]:
    """Return a comparison and its rulings as text lines."""
    notes, shown = Footnotes(), list[str]()
    for disk in comparison.disks:
        for text in describe_runs(comparison, disk):
            shown += wrap_text(text, indent=3, keep_words=False)
        for run in range(1, len(comparison.files)):
            shown += ["", *_format_table(disk, run, notes)]
        shown.append("")
    for number, reason in enumerate(notes.reasons, 1):
        shown += wrap_text(reason, f"[{number}] ")
    shown += wrap_text(explain_error_rate(comparison))
    for decision in decisions:
        shown += wrap_text(format_ruling(decision), indent=2)
    return shown


def format_ruling(decision: Decision) -> str:
    """Return a decision as text."""
    words = f"{decision.rule.text}: {_RULINGS[decision.ruling]}"
    if decision.device is not None:
        op = f"{decision.op} " if decision.op else ""
        words += (
            f", {op}{get_metric_title(decision.rule.metric)} of {label_run(decision.run)} ({decision.device})"
        )
    if decision.difference and decision.difference.change is not None:
        words += f" is {_format_change(decision)}"
    return f"{words}; {decision.why}" if decision.why else words


def _format_change(decision: Decision) -> str:
    """Return the change of a figure, in the unit of the rule's limit."""
    difference = decision.difference
    assert difference and difference.change is not None
    if decision.rule.kind is LimitKind.CHANGE:
        sign, size = "-" if difference.change < 0 else "+", abs(difference.change)
        if decision.rule.metric in (WAF, CPU):
            return f"{sign}{size:.3g}"
        return sign + format_value(decision.rule.metric, Estimate(size))
    if difference.ratio is None:
        return "up from zero"
    words = f"{100 * (difference.ratio - 1):+.1f} %"
    if difference.low is not None and difference.high is not None:
        words += f" ({100 * (difference.low - 1):+.1f} to {100 * (difference.high - 1):+.1f})"
    return words


def build_comparison_document(comparison: RunComparison, decisions: Iterable[Decision]) -> dict[str, Any]:
    """Return a comparison with the rulings as a JSON document."""
    return {
        "schema": SCHEMA,
        "type": "compare",
        "files": list(comparison.files),
        "chance": FAMILY_ERROR_RATE,
        "missed_state_s": compute_missed_s(comparison) if comparison.disks else None,
        "claims": list(comparison.claims),
        "disks": [_build_disk(disk) for disk in comparison.disks],
        "rules": [_build_decision(decision) for decision in decisions],
        "notes": list(comparison.notes),
    }


def _build_disk(disk: ComparedDisk) -> dict[str, Any]:
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
                "runs": [_build_estimate(estimate) for estimate in row.estimates],
                "differences": [_build_difference(difference) for difference in row.differences],
            }
            for row in disk.rows
        ],
    }


def _build_estimate(estimate: Estimate) -> dict[str, Any]:
    has_value = estimate.value is not None
    return {
        "value": estimate.value,
        "low": estimate.low if has_value else None,
        "high": estimate.high if has_value else None,
        "scatter_ratio": estimate.scatter,
        "correlation": estimate.correlation,
        "reason": estimate.reason,
    }


def _build_difference(difference: Difference) -> dict[str, Any]:
    # A missing upper limit is null in JSON.
    high = difference.high if difference.high is not None and difference.high < 1e300 else None
    return {
        "statement": difference.statement.value,
        "is_real": difference.is_detected,
        "ratio": difference.ratio,
        "ratio_low": difference.low,
        "ratio_high": high,
        "change": difference.change,
        "reason": difference.reason,
    }


def _build_decision(decision: Decision) -> dict[str, Any]:
    return {
        "rule": decision.rule.text,
        "ruling": decision.ruling.value,
        "run": decision.run,
        "device": decision.device,
        "op": decision.op,
        "metric": decision.rule.metric,
        "reason": decision.why,
        "difference": _build_difference(decision.difference) if decision.difference else None,
    }
