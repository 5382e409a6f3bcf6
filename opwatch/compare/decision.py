"""Apply change rules to a comparison, and return the decisions with reasons. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from opwatch.compare.comparison import ComparedRow, RunComparison
from opwatch.compare.differences import Difference, Statement
from opwatch.errors import UsageError
from opwatch.rules.rule import STALL, LimitKind, Rule


class Ruling(StrEnum):
    """The outcome of a rule.

    FIRES: the difference is real and beyond the limit. WITHIN: within the limit. NOT_REAL: beyond the limit,
    but possibly by chance. UNKNOWN: undetermined.
    """

    FIRES = "fires"
    WITHIN = "within"
    NOT_REAL = "not real"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision of one rule for one metric of one further run (counted from 1).

    `device` is the device in the first run. `why` explains every ruling except FIRES and WITHIN.
    """

    rule: Rule
    ruling: Ruling
    run: int
    device: str | None = None
    op: str | None = None
    difference: Difference | None = None
    why: str | None = None


def require_change_rule(rule: Rule) -> Rule:
    """Return the rule if it limits a change; raise UsageError otherwise."""
    if rule.kind is LimitKind.LEVEL:
        sign = "+" if rule.is_above else "-"
        raise UsageError(
            f"rule {rule.text!r} limits a level, but compare checks changes; add a sign, for example "
            f"{rule.metric}{'>' if rule.is_above else '<'}{sign}5%"
        )
    if rule.metric == STALL:
        raise UsageError(f"rule {rule.text!r}: {STALL} applies to intervals; use it with opwatch flight")
    if rule.lasting_s is not None:
        raise UsageError(f"rule {rule.text!r}: `for` does not apply to a whole run; remove it")
    return rule


def decide_rules(rules: Sequence[Rule], comparison: RunComparison) -> list[Decision]:
    """Decide every rule for every matching metric. A rule without a matching metric is UNKNOWN."""
    decisions = []
    for rule in rules:
        about = list(_decide_rule(rule, comparison))
        what = f"{rule.op} requests" if rule.op else "requests"
        nothing = Decision(rule, Ruling.UNKNOWN, 1, why=f"none of the runs has {what}")
        decisions += about or [nothing]
    return decisions


def _decide_rule(rule: Rule, comparison: RunComparison) -> Iterator[Decision]:
    for disk in comparison.disks:
        for row in disk.rows:
            if row.metric != rule.metric or (rule.op and row.op != rule.op):
                continue
            for run in range(1, len(row.estimates)):
                yield _make_decision(rule, row, run, disk.courses[0].device)


def _make_decision(rule: Rule, row: ComparedRow, run: int, device: str) -> Decision:
    difference = row.differences[run - 1]
    ruling, why = _judge_difference(rule, difference)
    return Decision(rule, ruling, run, device=device, op=row.op, difference=difference, why=why)


def _judge_difference(rule: Rule, difference: Difference) -> tuple[Ruling, str | None]:
    if difference.statement is Statement.UNKNOWN:
        return Ruling.UNKNOWN, difference.reason
    if rule.kind is LimitKind.CHANGE:
        change = difference.change
    else:
        change = None if difference.ratio is None else difference.ratio - 1
        if change is None and difference.statement is Statement.HIGHER:
            # An increase from zero exceeds any relative limit.
            return (Ruling.FIRES if rule.is_above else Ruling.WITHIN), None
    if change is None or not rule.is_beyond(change):
        return Ruling.WITHIN, None
    if not difference.is_detected:
        return Ruling.NOT_REAL, "no difference detected"
    return Ruling.FIRES, None
