"""Findings of `opwatch trim check` as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from opwatch import units
from opwatch.sinks.folding import advice, folded
from opwatch.trim.check.forecast import Forecast, Outlook
from opwatch.trim.check.rules import named
from opwatch.trim.check.schedule import Schedule
from opwatch.trim.stack import layers
from opwatch.trim.stack.causes import Effect, Reason, reason
from opwatch.trim.stack.facts import LoopFacts
from opwatch.trim.stack.layers import Kind, Layer, Stack

_LABEL = 10


@dataclass(frozen=True, slots=True)
class Checked:
    """A mount or device with a prediction, and the reasons why a scheduled fstrim may miss it."""

    stack: Stack
    forecast: Forecast
    schedule: tuple[Reason, ...]


def document(checked: Checked) -> dict[str, Any]:
    """Return one check as JSON."""
    filesystem = checked.stack.filesystem
    return {
        "mount": filesystem.point if filesystem else None,
        "device": checked.stack.layers[0].device if checked.stack.layers else None,
        **checked.forecast.document(),
        "schedule_reasons": [problem.document() for problem in checked.schedule],
        **layers.document(checked.stack),
    }


def schedule_document(schedule: Schedule) -> dict[str, Any]:
    """Return the triggers of fstrim as JSON."""
    timetable = asdict(schedule)
    del timetable["fstab"]
    for key in ("last", "next"):
        timetable[key] = timetable[key].isoformat() if timetable[key] else None
    return timetable | {"runs": schedule.runs}


def _wrapped(label: str, text: str, indent: int = 2) -> list[str]:
    """Return `label  text`, with further lines indented below the text."""
    return folded(text, f"{' ' * indent}{label:<{_LABEL}} ")


def _bytes(n_bytes: int) -> str:
    return f"{units.capacity(n_bytes)} ({n_bytes:,} B)" if n_bytes >= 1000 else f"{n_bytes} B"


def headline(checked: Checked) -> str:
    """Return the name of the mount or device and the predicted result of a trim."""
    stack, forecast = checked.stack, checked.forecast
    tops = "+".join(top.device for top in stack.tops()) or "no block device"
    filesystem = stack.filesystem
    name = f"{filesystem.point}  {filesystem.kind} on {tops}" if filesystem else tops
    leaves = " and ".join(dict.fromkeys(leaf.device for leaf in stack.leaves())) or "no disk"
    if forecast.outlook is Outlook.NOTHING and not forecast.stopped_at:
        return f"{name}: NOTHING gets through, every free extent is too short"
    if forecast.outlook is Outlook.NOTHING:
        return f"{name}: NOTHING gets through, {forecast.stopped_at} stops it"
    if forecast.outlook is Outlook.PART and all(layer.limits.offered for layer in stack.layers):
        return f"{name}: gets through to {leaves}, and PART of it is freed: whole units only"
    if forecast.outlook is Outlook.PART:
        return f"{name}: PART of a trim gets through"
    if forecast.outlook is Outlook.UNKNOWN:
        return f"{name}: cannot be told"
    hidden = any(problem.cause.effect is Effect.HIDES for problem in forecast.reasons)
    return f"{name}: gets through to {leaves}" + (", as far as this host can tell" if hidden else "")


def _layer(layer: Layer) -> list[str]:
    kind = layer.target or (layer.level if layer.kind is Kind.MD else None) or layer.kind.value
    words = [f"{layer.device:<{_LABEL}}", f"{kind:<{_LABEL}}"]
    limits = layer.limits
    if layer.kind is Kind.PARTITION:
        words.append(f"alignment {units.size(limits.alignment)}" if limits.alignment else "aligned")
    elif limits.offered is None:
        words.append("discards unknown")
    elif limits.offered:
        words.append(f"discards up to {units.size(limits.max_bytes)}, unit {units.size(limits.granularity)}")
    else:
        words.append("NO discards")
    if layer.kind in (Kind.DISK, Kind.MULTIPATH):
        words.append(f"({named(layer)})")
    elif name := layer.label or layer.facts_as(LoopFacts).backing_file:
        words.append(f"({name})")
    return folded(" ".join(words), "  ", 24)


def _online(stack: Stack) -> list[str]:
    """Return a line about online discard, if the filesystem is mounted with it."""
    options = stack.filesystem.options if stack.filesystem else ()
    chosen = next((option for option in options if option.split("=")[0] == "discard"), None)
    return _wrapped("online", f"mounted with {chosen}: it discards what it frees as well") if chosen else []


def _space(forecast: Forecast) -> Iterator[str]:
    if forecast.outlook is Outlook.NOTHING:
        return
    if forecast.runs:
        for run in forecast.runs:
            yield from _wrapped("free", f"{_bytes(run.free_bytes)} in {run.extents} extents on {run.device}")
            if run.below_minimum_bytes:
                short = f"{_bytes(run.below_minimum_bytes)}: extents below {units.size(run.minimum_bytes)}"
                yield from _wrapped("too short", short)
            if run.rounded_bytes:
                lost = f"{_bytes(run.rounded_bytes)}: ends outside units of {units.size(run.granule_bytes)}"
                yield from _wrapped("rounded", lost)
            if run.shared_bytes:
                yield from _wrapped("shared", f"{_bytes(run.shared_bytes)}: other files have these blocks")
            bound = "at most " if forecast.is_upper_bound else ""
            yield from _wrapped("expected", f"{bound}{_bytes(run.expected_bytes)}")
        for note in forecast.notes:
            yield from _wrapped("", note)
        return
    if forecast.free_bytes is not None:
        yield from _wrapped("free", f"{_bytes(forecast.free_bytes)}, where: unknown")
    if forecast.why_no_runs:
        yield from _wrapped("dry run", f"none: {forecast.why_no_runs}")


def _matters(problem: Reason, forecast: Forecast) -> bool:
    """Return whether the user should act on a problem. A loss below 1 % of the free space does not matter."""
    lost, free = problem.lost_bytes, sum(run.free_bytes for run in forecast.runs)
    small = lost is not None and bool(forecast.runs) and lost * 100 < free
    return problem.cause.effect is not Effect.HARMLESS and not small


def _reason(problem: Reason, *, full: bool) -> Iterator[str]:
    yield from _wrapped(problem.cause.effect.value, f"{problem.cause.title} [{problem.code}]")
    yield from _wrapped("", f"seen: {problem.observed}")
    if full:
        yield from advice(problem.advice, f"  {'':<{_LABEL}} do: ")
        if problem.cause.caveat:
            yield from _wrapped("", f"note: {problem.cause.caveat}")


def lines(checked: Checked) -> list[str]:
    """Return one check in full, in at most 80 columns unless a name is longer."""
    rows = folded(headline(checked), indent=4)
    for layer in checked.stack.layers:
        rows += _layer(layer)
    rows += _online(checked.stack)
    rows += _space(checked.forecast)
    # A disabled fstrim.timer is reported once, at the end.
    here = [problem for problem in checked.schedule if problem.code != "timer-off"]
    # If no discard arrives, reasons for a hidden result do not matter.
    lost = checked.forecast.outlook is Outlook.NOTHING
    for problem in (*checked.forecast.reasons, *here):
        if lost and problem.cause.effect is Effect.HIDES:
            continue
        rows += _reason(problem, full=_matters(problem, checked.forecast))
    for doubt in checked.forecast.unknowable:
        rows += _wrapped("unknown", doubt)
    return rows


def schedule_lines(schedule: Schedule) -> list[str]:
    """Return lines about the triggers of fstrim on this machine."""
    if schedule.why_none or schedule.why_unknown:
        words = schedule.why_none or f"not known; {schedule.why_unknown}"
    else:
        words = f"{schedule.unit_state}, {'active' if schedule.active else 'not active'}"
        words += f"; last run {_when(schedule.last, 'never')}, next {_when(schedule.next, 'not planned')}"
        if schedule.arguments:
            words += f"; it runs {' '.join(schedule.arguments)}"
    if schedule.container:
        words += f"; this system is marked as a container ({schedule.container}), where the timer is skipped"
    rows = _wrapped("fstrim.timer", words, indent=0)
    if schedule.runs is False and not schedule.cron:
        off = reason("timer-off", "fstrim.timer", words)
        rows += advice(off.advice, f"{'':<{_LABEL}} do: ")
    for file in schedule.cron:
        rows += _wrapped("cron", f"{file} calls fstrim", indent=0)
    return rows


def _when(at: object, otherwise: str) -> str:
    return f"{at:%Y-%m-%d %H:%M}" if at else otherwise
