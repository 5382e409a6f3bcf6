"""The answer of a sweep as words and tables."""

from __future__ import annotations

from collections.abc import Iterator

from opwatch import units
from opwatch.sinks.blocks import Block, Section, TextTable, format_sections
from opwatch.sinks.sweep import figures
from opwatch.sinks.sweep.advice_text import (
    describe_advice,
    describe_excluded,
    format_wanted,
    format_worth,
    name_checks,
)
from opwatch.sweep.advice.advice import WARRANTY_YEARS, LevelAdvice, SweepAdvice
from opwatch.sweep.advice.price import CapacityPrice
from opwatch.sweep.advice.targets import SweepTargets, TargetKind
from opwatch.sweep.result import SweepResult
from opwatch.sweep.returns import LevelGain

_FIGURES = ("level", "WAF", "IOPS", "p99")
LIFE_TITLE = "Life and price"
_LIFE = ("level", "in use", "TBW", "DWPD", "life")
_STEPS = ("from", "to", "IOPS", "WAF", "life", "gives up", "worth")


def format_advice(result: SweepResult, advice: SweepAdvice, price: CapacityPrice | None) -> Iterator[str]:
    """Yield the answer: sentences first, then the tables."""
    head: list[Block] = [f"{result.target}, levels by {result.method}, {result.workload}"]
    if result.model:
        head.append(f"A MODEL of {result.model.profile} in virtual time, not a drive.")
    if wanted := describe_targets(advice.targets):
        head.append(f"targets: {wanted}")
    sentences = Section("", [*describe_advice(advice, price), *describe_excluded(advice)])
    yield from format_sections([Section("", head), sentences, *build_advice_sections(result, advice, price)])


def describe_targets(targets: SweepTargets) -> str:
    """Return the targets as text, or an empty text without any."""
    wanted = [
        (TargetKind.DAILY, targets.daily_bytes),
        (TargetKind.LIFE, targets.life_years),
        (TargetKind.IOPS, targets.iops),
        (TargetKind.P99, targets.p99_ns),
    ]
    return ", ".join(format_wanted(kind, value) for kind, value in wanted if value is not None)


def build_advice_sections(
    result: SweepResult, advice: SweepAdvice, price: CapacityPrice | None
) -> Iterator[Section]:
    """Yield the tables behind an answer: levels against targets, life, and steps."""
    has_checks = not advice.targets.is_empty
    head = (*_FIGURES, "missed") if has_checks else _FIGURES
    yield Section(
        "Levels and targets" if has_checks else "Levels",
        [TextTable(head, [_format_level(one, has_checks=has_checks) for one in advice.levels])],
    )
    yield Section(LIFE_TITLE, list(_build_life(result, advice, price)))
    if advice.steps:
        columns = _STEPS if price is None else (*_STEPS[:-1], "price", _STEPS[-1])
        rows = [_format_step(advice, step, price) for step in advice.steps]
        yield Section("Steps", [TextTable(columns, rows, words=2)])


def _format_level(one: LevelAdvice, *, has_checks: bool) -> tuple[str, ...]:
    waf, proven = one.outcome.find_waf(), one.outcome.proven_figures
    cells = (
        one.label,
        figures.format_waf(proven.waf, waf.error if waf else None),
        figures.format_count(one.outcome.find_iops()),
        figures.format_latency_range(proven.find_latency_range("p99")),
    )
    return (*cells, name_checks(one.checks) if one.checks else "-") if has_checks else cells


def _build_life(result: SweepResult, advice: SweepAdvice, price: CapacityPrice | None) -> Iterator[Block]:
    head = _LIFE if price is None else (*_LIFE, "price per TB in use")
    yield TextTable(head, [_format_life(one, price) for one in advice.levels])
    if result.endurance_bytes is None:
        yield f"no TBW, DWPD and life: {result.endurance_reason} (--endurance)"
        return
    years = advice.targets.life_years or WARRANTY_YEARS
    daily = advice.targets.daily_bytes
    rate = (
        f"{units.format_capacity(daily)} per day"
        if daily
        else "the write rate of the slowest level, around the clock"
    )
    yield (
        f"TBW: host bytes until the flash is worn ({units.format_capacity(result.endurance_bytes)} of NAND "
        f"writes); DWPD: writes of the capacity in use per day for {years:g} years; life: at {rate}"
    )


def _format_life(one: LevelAdvice, price: CapacityPrice | None) -> tuple[str, ...]:
    level = one.outcome.level
    cells = (
        one.label,
        units.format_capacity(level.usable_bytes),
        units.format_capacity(round(one.tbw_bytes.value)) if one.tbw_bytes else "-",
        f"{one.dwpd.value:.2f}" if one.dwpd else "-",
        figures.format_life_range(one.years),
    )
    if price is None:
        return cells
    per_tb = price.amount * level.scale.capacity_bytes / level.usable_bytes
    return (*cells, price.format_amount(per_tb))


def _format_step(advice: SweepAdvice, step: LevelGain, price: CapacityPrice | None) -> tuple[str, ...]:
    years = advice.find_years_gained(step)
    cells = (
        step.begin.level.label,
        step.end.level.label,
        figures.format_growth_range(step.iops),
        figures.format_growth(step.waf_ratio),
        "-" if years is None else ("+" if years >= 0 else "") + figures.format_life(years),
        units.format_capacity(step.lost_bytes),
    )
    cost = () if price is None else (price.format_amount(price.compute_cost(step.lost_bytes)),)
    return (*cells, *cost, format_worth(step))
