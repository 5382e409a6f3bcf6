"""Changes in words: what they are called, from what to what, and how that was decided."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from opwatch.report.changes import P99, RATE, WAF, CourseChanges, at_once, with_steps
from opwatch.report.levels import CHANCE, LEAST_STEP, STEADY, Rest, Step
from opwatch.report.subject import ReportedRun
from opwatch.sinks.report.plots import amounts
from opwatch.sinks.report.tables import WordTable, clock

_PLURALS = {"read": "reads", "write": "writes"}


def figure_name(change: CourseChanges) -> str:
    """What it is a change of."""
    if change.figure == WAF:
        return "write amplification"
    return _PLURALS[change.op or ""] if change.figure == RATE else f"p99 of {_PLURALS[change.op or '']}"


def shown_level(change: CourseChanges, value: float) -> str:
    if change.figure == RATE:
        return f"{amounts.rate(value)} a second"
    return amounts.latency(value) if change.figure == P99 else f"{value:.2f}"


def step_name(change: CourseChanges, step: Step) -> str:
    """A cliff is a rate that falls to half or less; all else is a step."""
    if change.figure == RATE and step.is_cliff:
        return "cliff"
    if step.is_beyond:
        return "rise" if step.after.value > step.before.value else "fall"
    return "step up" if step.after.value > step.before.value else "step down"


def _how(step: Step) -> str:
    change = step.difference
    if step.is_beyond:
        return (
            f"each of the {step.after.intervals} intervals from then on lies beyond each of the "
            f"{step.before.intervals} before, by {LEAST_STEP:g} times or more"
        )
    between = ""
    if change.ratio and change.low is not None and change.high is not None:
        between = f", the ratio {change.ratio:.2f} is between {change.low:.2f} and {change.high:.2f}"
    return (
        f"means of {step.before.intervals} and {step.after.intervals} intervals{between} by their scatter, "
        f"which chance exceeds once in {1 / CHANCE:,.0f} times; less than {LEAST_STEP:g} times is no step"
    )


def _at_rest(rest: Rest) -> str:
    if rest.is_steady is None:
        return f"not known: {rest.reason}"
    assert rest.low is not None and rest.high is not None
    return (
        f"its second half is {rest.low:.3f} to {rest.high:.3f} times its first; at rest is what stays within "
        f"{STEADY:.0%}"
    )


def _rest_name(rest: Rest) -> str:
    return {True: "steady", False: "still changing", None: "last level"}[rest.is_steady]


def _rows(run: ReportedRun, change: CourseChanges) -> Iterator[list[str]]:
    levels, name = change.levels, figure_name(change)
    for step in levels.steps:
        values = f"{shown_level(change, step.before.value)} to {shown_level(change, step.after.value)}"
        yield [name, step_name(change, step), clock(run, step.at_ns), values, _how(step)]
    rest = levels.rest
    if rest:
        level = rest.level
        spread = f"{shown_level(change, level.usual_low)} to {shown_level(change, level.usual_high)}"
        value = f"{shown_level(change, level.value)}, nine of ten intervals {spread}"
        yield [name, _rest_name(rest), f"from {clock(run, level.begin_ns)}", value, _at_rest(rest)]
    if change.period:
        length = amounts.span(change.period.intervals * change.interval_s)
        how = (
            f"{change.period.intervals} intervals later it is alike by {change.period.likeness:.2f} of 1, "
            f"where chance reaches {change.period.limit:.2f}, and again after twice that"
        )
        yield [name, "period", "of its last level", f"every {length}", how]


def change_table(run: ReportedRun, changes: Sequence[CourseChanges]) -> WordTable | None:
    """All that was named, and how; None where nothing was."""
    rows = []
    for change in changes:
        phase = [change.phase] if change.phase is not None else ["all"]
        rows += [[*phase, *row] for row in _rows(run, change)]
    head = ("phase", "of", "what", "when", "values", "how it was decided")
    return WordTable(head, rows, words=6) if rows else None


def _step_words(change: CourseChanges, step: Step) -> str:
    before, after = shown_level(change, step.before.value), shown_level(change, step.after.value)
    is_up = step.after.value > step.before.value
    if step.is_beyond:
        end = step.after.usual_high if is_up else step.after.usual_low
        verb = "began to rise" if is_up else "began to fall"
        way = "up to" if is_up else "down to"
        return f"{figure_name(change)} {verb}, from {before} {way} {shown_level(change, end)}"
    return f"{figure_name(change)} {'rose' if is_up else 'fell'} from {before} to {after}"


def change_sentences(run: ReportedRun, label: str, changes: Sequence[CourseChanges]) -> Iterator[str]:
    """Each step once, with what changed at the same moment."""
    done: set[int] = set()
    for change in sorted(with_steps(changes), key=lambda one: one.figure != RATE):
        for step in change.levels.steps:
            if id(step) in done:
                continue
            near = at_once(change, changes, step.at_ns)
            done.update(id(other.levels.steps[0]) for other in near)
            words = _step_words(change, step)
            mark = ", a cliff" if step_name(change, step) == "cliff" else ""
            also = "".join(f"; {_step_words(other, other.levels.steps[0])}" for other in near)
            yield f"{label}, {clock(run, step.at_ns)}: {words}{mark}{also}."
    for change in changes:
        rest, period = change.levels.rest, change.period
        if rest and rest.is_steady and change.figure == RATE:
            phase = f" of {change.phase}" if change.phase else ""
            since = f"from {clock(run, rest.level.begin_ns)} on" if change.levels.steps else "throughout"
            value = shown_level(change, rest.level.value)
            yield f"{label}: {figure_name(change)}{phase} are steady at {value} {since}."
        if period and change.figure == RATE:
            yield (
                f"{label}: {figure_name(change)} go up and down every "
                f"{amounts.span(period.intervals * change.interval_s)}."
            )
