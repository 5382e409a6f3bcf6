"""The plan of a sweep as text: all steps, bytes, time, the share of rated life, and obstacles."""

from __future__ import annotations

from collections.abc import Iterator

from opwatch import units
from opwatch.sinks.wrapping import wrap_text
from opwatch.sweep.plan import StepKind, SweepPlan, SweepStep
from opwatch.times import format_estimate


def format_plan(plan: SweepPlan) -> Iterator[str]:
    model = " (a MODEL in virtual time: no drive is touched)" if plan.is_model else ""
    yield from wrap_text(f"{plan.target}{model}, levels by {plan.method}, {plan.workload}")
    level = None
    for step in plan.steps:
        if step.level is not level:
            level = step.level
            if level:
                yield from wrap_text(_format_level(step))
        yield from _format_step(step)
    yield from _format_totals(plan)
    if plan.refusals:
        yield "a sweep would be refused:"
        for refusal in plan.refusals:
            remedy = f"; {refusal.remedy}" if refusal.remedy else ""
            yield from wrap_text(f"{refusal.rule}: {refusal.what}{remedy}", "  ")
    yield "nothing was written"


def _format_level(step: SweepStep) -> str:
    level = step.level
    if level is None:
        return ""
    used = f"{level.usable_bytes} bytes in use ({units.format_capacity(level.usable_bytes)})"
    shares = f"{100 * level.of_used_ratio:.2f} % as (C-U)/U, {100 * level.of_whole_ratio:.2f} % as (C-U)/C"
    if level.files:
        used = f"at most {used}"
        shares += (
            f"; at least {level.active_bytes} bytes, which is {100 * level.most_of_used_ratio:.2f} %: "
            "space kept by the filesystem and other files may be in use or not"
        )
    return f"level {level.label}: {used}, {shares}"


def _format_step(step: SweepStep) -> Iterator[str]:
    times = ""
    if step.at_most > 1:
        least = "" if step.at_least == step.at_most else f"{step.at_least} to "
        times = f", {least}{step.at_most} times"
    amount = f", {units.format_capacity(step.write_bytes)}" if step.write_bytes else ""
    if step.discard_bytes:
        amount += f", {units.format_capacity(step.discard_bytes)} discarded"
    if step.seconds:
        amount += f", {format_estimate(step.seconds)}"
    yield from wrap_text(f"{step.what}{amount}{times}", f"  {step.kind.value:<8} ")


def _format_totals(plan: SweepPlan) -> Iterator[str]:
    least, most = plan.write_bytes
    amount = f"{units.format_capacity(least)} to {units.format_capacity(most)}"
    if plan.bytes_reason and plan.most_write_bytes is None:
        amount = f"at least {units.format_capacity(least)}: {plan.bytes_reason}"
    yield from wrap_text(f"written by the host: {amount}")
    if any(step.kind is StepKind.PURGE and step.seconds is None for step in plan.steps):
        yield from wrap_text("time: unknown, because the drive does not report how long its purge takes")
    elif plan.seconds is None:
        yield from wrap_text("time: unknown without the drive's speed (--fill-speed, --speed)")
    else:
        begin, end = (format_estimate(seconds) for seconds in plan.seconds)
        yield from wrap_text(f"time: {begin} to {end}")
    if plan.life_ratio is None:
        yield from wrap_text(f"share of rated life: unknown: {plan.life_reason}")
    else:
        begin, end = (f"{units.format_plain(100 * share, 3)} %" for share in plan.life_ratio)
        yield from wrap_text(f"share of rated life: {begin} to {end}")
