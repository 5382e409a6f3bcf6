"""Changes as text: their names, the values before and after, and the decision."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from opwatch import units
from opwatch.report.changes import P99, RATE, WAF, MetricChanges, find_simultaneous, select_stepped
from opwatch.report.levels import CHANCE, MIN_STEP, STEADY, Level, Pause, Steadiness, Step
from opwatch.report.loads import LoadChange, LoadFigure
from opwatch.report.periods import Period
from opwatch.report.subject import ReportedRun
from opwatch.sinks.blocks import TextTable
from opwatch.sinks.report.plots import amounts
from opwatch.sinks.report.tables import format_clock

_PLURALS = {"read": "reads", "write": "writes"}


def name_figure(change: MetricChanges) -> str:
    """Return the name of the changed figure."""
    if change.figure == WAF:
        return "write amplification"
    return _PLURALS[change.op or ""] if change.figure == RATE else f"p99 of {_PLURALS[change.op or '']}"


def format_level(change: MetricChanges, value: float) -> str:
    if change.figure == RATE:
        return f"{amounts.format_rate(value)} per second"
    return amounts.format_latency(value) if change.figure == P99 else f"{value:.2f}"


def format_usual_range(change: MetricChanges, level: Level) -> str:
    """Return the range of most intervals of a level.

    The level's value weighs intervals by their seconds or bytes, so it can be outside the percentiles of the
    intervals. The range includes it.
    """
    low, high = min(level.usual_low, level.value), max(level.usual_high, level.value)
    return f"at least 90 % of the intervals {format_level(change, low)} to {format_level(change, high)}"


def name_step(change: MetricChanges, step: Step) -> str:
    """Return the name of a step.

    A cliff is a rate that falls to half or less under the same load. A slow change is a rise or a fall, any
    other a step.
    """
    if change.figure == RATE and step.is_cliff and step.load == ():
        return "cliff"
    if step.is_beyond or step.is_gradual:
        return "rise" if step.after.value > step.before.value else "fall"
    return "step up" if step.after.value > step.before.value else "step down"


def _format_load(load: LoadChange) -> str:
    if load.figure is LoadFigure.DEPTH:
        return f"queue depth {load.before:.2f} to {load.after:.2f}"
    if load.figure is LoadFigure.SIZE:
        return f"mean size {units.format_size(round(load.before))} to {units.format_size(round(load.after))}"
    if load.figure is LoadFigure.SEQUENTIAL:
        return f"sequential {amounts.format_percent(load.before)} to {amounts.format_percent(load.after)}"
    return (
        f"{load.op} requests {amounts.format_rate(load.before)} to "
        f"{amounts.format_rate(load.after)} per second"
    )


def _describe_load(change: MetricChanges, step: Step) -> str:
    """Return the end of a sentence that describes the load at a step."""
    if name_step(change, step) == "cliff":
        return ", a cliff: the load did not change"
    if change.figure != RATE:
        return ""
    if step.load:
        return f"; the load changed ({', '.join(map(_format_load, step.load))})"
    if step.load is None and step.is_cliff:
        return "; whether the load changed is unknown, because the queue depth was not recorded"
    return ""


def _explain_step(step: Step) -> str:
    change = step.difference
    if step.is_beyond:
        return (
            f"all {step.after.intervals} later intervals differ from all {step.before.intervals} earlier "
            f"ones by a factor of at least {MIN_STEP:g}"
        )
    load = ""
    if step.load is not None:
        load = (
            f"; the load changed: {', '.join(map(_format_load, step.load))}"
            if step.load
            else "; the load did not change"
        )
    between = ""
    if change.ratio and change.low is not None and change.high is not None:
        between = f": ratio {change.ratio:.2f} ({change.low:.2f} to {change.high:.2f})"
    if step.is_on_trend:
        return (
            f"lines fitted to the intervals on each side do not meet{between}; the gap is far larger than "
            f"anywhere else in the run{load}"
        )
    trend = "; a straight line fits better than two levels" if step.is_gradual else ""
    return (
        f"means of {step.before.intervals} and {step.after.intervals} intervals{between}; chance exceeds the "
        f"range in 1 of {1 / CHANCE:,.0f} cases; a step needs a factor of at least {MIN_STEP:g}{trend}{load}"
    )


def _explain_steadiness(rest: Steadiness) -> str:
    if rest.is_steady is None:
        return f"steadiness undetermined: {rest.reason}"
    assert rest.low is not None and rest.high is not None
    return (
        f"the second half is {rest.low:.3f} to {rest.high:.3f} times the first; steady means a difference of "
        f"at most {STEADY:.0%}"
    )


def _name_steadiness(rest: Steadiness) -> str:
    return {True: "steady", False: "still changing", None: "last level"}[rest.is_steady]


def _build_rows(run: ReportedRun, change: MetricChanges) -> Iterator[list[str]]:
    levels, name = change.levels, name_figure(change)
    for step in levels.steps:
        values = f"{format_level(change, step.before.value)} to {format_level(change, step.after.value)}"
        yield [name, name_step(change, step), format_clock(run, step.at_ns), values, _explain_step(step)]
    for pause in levels.pauses:
        words = (
            f"{pause.intervals} consecutive intervals with almost no requests, longer than the load's usual "
            "gaps"
        )
        span = amounts.format_duration((pause.end_ns - pause.begin_ns) / 1e9)
        yield [name, "pause", format_clock(run, pause.begin_ns), f"almost none for {span}", words]
    rest = levels.rest
    if rest:
        level = rest.level
        value = f"{format_level(change, level.value)}, {format_usual_range(change, level)}"
        yield [
            name,
            _name_steadiness(rest),
            f"from {format_clock(run, level.begin_ns)}",
            value,
            _explain_steadiness(rest),
        ]
    if change.period:
        length = amounts.format_duration(change.period.intervals * change.interval_s)
        yield [name, "period", "in the last level", f"every {length}", _explain_period(change.period)]


def _explain_period(period: Period) -> str:
    if period.pulses:
        return f"{period.pulses.hits} of {period.pulses.cycles} cycles have a short peak or dip"
    return (
        f"autocorrelation {period.likeness:.2f} at a lag of {period.intervals} intervals "
        f"(by chance at most {period.limit:.2f}), and again at twice the lag"
    )


def build_change_table(run: ReportedRun, changes: Sequence[MetricChanges]) -> TextTable | None:
    """Return all named changes and the decisions, or None without changes."""
    rows = []
    for change in changes:
        phase = [change.phase] if change.phase is not None else ["all"]
        rows += [[*phase, *row] for row in _build_rows(run, change)]
    head = ("phase", "figure", "change", "when", "values", "evidence")
    return TextTable(head, rows, words=6) if rows else None


def _describe_step(change: MetricChanges, step: Step) -> str:
    before, after = format_level(change, step.before.value), format_level(change, step.after.value)
    is_up = step.after.value > step.before.value
    if step.is_beyond:
        end = step.after.usual_high if is_up else step.after.usual_low
        verb = "started to rise" if is_up else "started to fall"
        return f"{name_figure(change)} {verb}, from {before} to {format_level(change, end)}"
    verb = f"{'rose' if is_up else 'fell'}{' gradually' if step.is_gradual else ''}"
    return f"{name_figure(change)} {verb} from {before} to {after}"


def describe_changes(run: ReportedRun, label: str, changes: Sequence[MetricChanges]) -> Iterator[str]:
    """Yield a sentence per step, including other figures that changed at the same time."""
    done: set[int] = set()
    for change in sorted(select_stepped(changes), key=lambda one: one.figure != RATE):
        for step in change.levels.steps:
            if id(step) in done:
                continue
            near = find_simultaneous(change, changes, step.at_ns)
            done.update(id(other.levels.steps[0]) for other in near)
            words = _describe_step(change, step)
            mark = _describe_load(change, step)
            also = "".join(f"; {_describe_step(other, other.levels.steps[0])}" for other in near)
            yield f"{label}, {format_clock(run, step.at_ns)}: {words}{mark}{also}."
    for change in changes:
        rest, period = change.levels.rest, change.period
        if rest and rest.is_steady and change.figure == RATE:
            phase = f" of {change.phase}" if change.phase else ""
            value = format_level(change, rest.level.value)
            yield (
                f"{label}: {name_figure(change)}{phase} are steady at {value} "
                f"{_format_steady_range(run, change, rest)}."
            )
        if period and change.figure == RATE:
            yield (
                f"{label}: {name_figure(change)} rise and fall every "
                f"{amounts.format_duration(period.intervals * change.interval_s)}."
            )


def _format_steady_range(run: ReportedRun, change: MetricChanges, rest: Steadiness) -> str:
    """Return the time range in which a level is steady."""
    level = rest.level
    begin = max(
        [phase.begin_ns for phase in run.phases if phase.name == change.phase] or [run.picture.begin_ns]
    )
    is_late = bool(change.levels.steps) or level.begin_ns - begin > 3e9 * change.interval_s
    inside = [pause for pause in change.levels.pauses if pause.end_ns > level.begin_ns and not pause.is_last]
    except_ = ", except for pauses" if inside else ""
    if any(pause.is_last for pause in change.levels.pauses):
        first = f"from {format_clock(run, level.begin_ns)}" if is_late else "from the start"
        return f"{first} until they stop{except_}"
    return (f"from {format_clock(run, level.begin_ns)} on" if is_late else "throughout") + except_


def describe_pauses(run: ReportedRun, label: str, changes: Sequence[MetricChanges]) -> Iterator[str]:
    """Yield a sentence per pause of reads and writes, earliest first, with the requests in flight."""
    pauses = [
        (pause, change) for change in changes if change.figure == RATE for pause in change.levels.pauses
    ]
    pauses.sort(key=lambda pair: pair[0].begin_ns)
    while pauses:
        pause, change = pauses[0]
        reach = 1.5e9 * change.interval_s
        same = [
            other
            for other in pauses
            if abs(other[0].begin_ns - pause.begin_ns) <= reach
            and abs(other[0].end_ns - pause.end_ns) <= reach
        ]
        pauses = [other for other in pauses if other not in same]
        names = " and ".join(dict.fromkeys(name_figure(other) for _, other in same))
        yield f"{label}: {_describe_pause(run, names, pause, change)}."


def _describe_pause(run: ReportedRun, names: str, pause: Pause, change: MetricChanges) -> str:
    length = amounts.format_duration((pause.end_ns - pause.begin_ns) / 1e9)
    until = f", until the end{' of ' + change.phase if change.phase else ''}" if pause.is_last else ""
    when = f"for {length} from {format_clock(run, pause.begin_ns)}{until}"
    if pause.in_flight and pause.in_flight[0]:
        fewest, most = pause.in_flight
        flying = f"{fewest:.0f}" if fewest == most else f"{fewest:.0f} to {most:.0f}"
        return f"{names} stalled {when}: almost none completed, with {flying} in flight"
    if pause.in_flight and not pause.in_flight[1]:
        return f"{names} stopped {when}: no request was in flight, so the load paused"
    return f"{names} stopped {when}: almost none completed"
