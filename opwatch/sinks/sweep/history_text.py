"""The answer of a recorded history as words and a table."""

from __future__ import annotations

from collections.abc import Iterator

from opwatch import units
from opwatch.sinks.blocks import Block, Section, TextTable, format_sections
from opwatch.sinks.sweep import figures
from opwatch.sweep.advice.price import CapacityPrice
from opwatch.sweep.advice.targets import TargetVerdict
from opwatch.sweep.history.advice import (
    ChangeAdvice,
    ChangeWorth,
    HistoryAdvice,
    HistoryAnswer,
    KnownDrive,
    RecordedSystem,
)
from opwatch.sweep.history.prediction import WafBand
from opwatch.sweep.history.replaying import ASSUMED_COLLECTORS
from opwatch.sweep.returns import MIN_GAIN
from opwatch.times import format_estimate

_COLUMNS = ("change", "WAF", "life", "gives up", "worth")
_NOTHING_MORE = 0.02


def format_history_advice(
    system: RecordedSystem, facts: KnownDrive, advice: HistoryAdvice, price: CapacityPrice | None
) -> Iterator[str]:
    """Yield the answer: sentences, the table of changes, and what is assumed."""
    head: list[Block] = [describe_history(system)]
    answer: list[Block] = list(describe_history_advice(system, advice, price))
    table: list[Block] = [TextTable(_COLUMNS, list(_build_rows(advice, price)))]
    table += list(_list_reasons(advice))
    notes: list[Block] = list(describe_assumptions(system, facts, advice))
    yield from format_sections(
        [Section("", head), Section("", answer), Section("", table), Section("", notes)]
    )


def _list_reasons(advice: HistoryAdvice) -> Iterator[str]:
    """Yield why changes have no band, each reason once."""
    labels: dict[str, list[str]] = {}
    for one in advice.changes:
        if one.reason:
            labels.setdefault(one.reason, []).append(one.change.label)
    for reason, names in labels.items():
        yield f"{', '.join(names)}: {reason}."


def describe_history(system: RecordedSystem) -> str:
    """Return what was recorded, in one sentence."""
    return (
        f"{system.name}: {format_estimate(system.seconds)} of a disk of "
        f"{units.format_capacity(system.capacity_bytes)}, "
        f"{units.format_capacity(system.written_bytes)} written "
        f"({units.format_capacity(system.daily_bytes)} per day), "
        f"{units.format_capacity(system.discarded_bytes)} discarded"
    )


def describe_history_advice(
    system: RecordedSystem, advice: HistoryAdvice, price: CapacityPrice | None
) -> Iterator[str]:
    """Yield the sentences of the answer, the most important first."""
    if advice.targets.life_years is not None:
        yield from _describe_target(advice)
    if advice.chosen and advice.chosen.waf:
        yield _describe_chosen(system, advice, advice.chosen, price)
    elif advice.answer is HistoryAnswer.NO_TARGETS:
        yield _describe_no_gain(advice)
    yield from _describe_both(advice)


def _describe_target(advice: HistoryAdvice) -> Iterator[str]:
    wanted = f"a life of {advice.targets.life_years:.3g} years"
    now = _format_life_band(advice.present_years)
    if advice.answer is HistoryAnswer.NOT_NEEDED:
        yield f"The drive meets {wanted} as it is: {now}."
    elif advice.answer is HistoryAnswer.NONE:
        yield f"No change that was predicted meets {wanted}."
    elif advice.answer is HistoryAnswer.UNDECIDED:
        unknown = advice.present_check and advice.present_check.verdict is TargetVerdict.UNKNOWN
        why = advice.present_check.reason if unknown and advice.present_check else "the bands contain it"
        yield f"No change is certain to meet {wanted}: {why}."


def _describe_chosen(
    system: RecordedSystem, advice: HistoryAdvice, chosen: ChangeAdvice, price: CapacityPrice | None
) -> str:
    assert chosen.waf and chosen.gain
    change, given_up = chosen.change, chosen.change.given_up_bytes
    free = f"trimming the free space ({units.format_capacity(system.free_bytes or 0)})"
    cost = f" ({price.format_amount(price.compute_cost(given_up))})" if price else ""
    give = (
        f"giving up {units.format_capacity(given_up)}{cost}, {change.level.label if change.level else ''} OP,"
    )
    what = f"{give} and {free}" if change.level and change.trims else give if change.level else free
    years = f", {_format_life_band(chosen.years)}" if chosen.years else ""
    return (
        f"{what[0].upper()}{what[1:]} would lower WAF from {_format_waf_band(advice.present)} to "
        f"{_format_waf_band(chosen.waf)}: the flash would last {_format_factor(chosen.gain)} times as "
        f"long{years}."
    )


def _describe_no_gain(advice: HistoryAdvice) -> str:
    worths = {one.worth for one in advice.changes}
    if advice.present.high < 1 + MIN_GAIN:
        return (
            f"Nothing: the drive hardly amplifies these writes (WAF {_format_waf_band(advice.present)}), so "
            "neither a trim nor more OP can lower them."
        )
    if ChangeWorth.UNDECIDED in worths:
        return "Undecided: no change is certain to lower WAF by 2 %, and some may. The table has the bands."
    if ChangeWorth.NOTHING in worths:
        return "Nothing: no change that could be predicted lowers WAF by 2 %."
    return "Nothing can be said: no change could be predicted. The reasons are below the table."


def _describe_both(advice: HistoryAdvice) -> Iterator[str]:
    """Yield whether giving up capacity gains anything beside a trim."""
    trim = next((one for one in advice.changes if one.change.trims and not one.change.level), None)
    both = [one for one in advice.changes if one.change.trims and one.change.level and one.waf]
    if not trim or not trim.waf or not both or trim.worth is ChangeWorth.NOTHING:
        return
    middle = trim.waf.middle
    if all(one.waf and one.waf.middle > middle * (1 - _NOTHING_MORE) for one in both):
        yield "With the trim, giving up capacity gains nothing more, because the trim frees the same space."


def _build_rows(advice: HistoryAdvice, price: CapacityPrice | None) -> Iterator[tuple[str, ...]]:
    yield "now", _format_waf_band(advice.present), _format_life(None, advice.present_years), "-", "-"
    for one in advice.changes:
        given_up = one.change.given_up_bytes
        cost = f" ({price.format_amount(price.compute_cost(given_up))})" if price and given_up else ""
        yield (
            one.change.label,
            _format_waf_band(one.waf) if one.waf else "-",
            _format_life(one.gain, one.years),
            f"{units.format_capacity(given_up)}{cost}" if given_up else "-",
            one.worth.value,
        )


def _format_waf_band(band: WafBand) -> str:
    if band.high - band.low < 5e-3:
        return f"{band.middle:.2f}"
    return f"{band.low:.2f} to {band.high:.2f}"


def _format_factor(gain: WafBand) -> str:
    return f"{gain.low:.2f} to {gain.high:.2f}"


def _format_life(gain: WafBand | None, years: WafBand | None) -> str:
    if years:
        return _format_life_band(years)
    return f"x {_format_factor(gain)}" if gain else "-"


def _format_life_band(years: WafBand | None) -> str:
    if years is None:
        return "an unknown life"
    return f"{figures.format_life(years.low)} to {figures.format_life(years.high)}"


def describe_assumptions(system: RecordedSystem, facts: KnownDrive, advice: HistoryAdvice) -> Iterator[str]:
    """Yield what the bands rest on."""
    model = system.model
    static = 100 * model.find_written().count(0) / model.units
    period = format_estimate(system.seconds)
    yield (
        f"Assumed: the writes go on as in these {period}; the {static:.0f} % of the disk that was not "
        "written in that time holds data that are never written; space that no recorded discard freed "
        "holds data for the drive."
    )
    if system.free_bytes is None:
        yield (
            "The history has no free space, so OP takes any space that was not written: it may hold data "
            "that you need."
        )
    else:
        yield (
            f"A trim frees all {units.format_capacity(system.free_bytes)} of free space, once every "
            f"{period}; OP takes free space that was not written."
        )
    if advice.collectors:
        source = "the WAF given" if facts.waf else "the flash given"
        known = " and a flash like the one given" if facts.waf and facts.flash_bytes else ""
        yield (
            f"The bands reach over the models of garbage collection that have {source}{known}: "
            f"{len(advice.collectors)} of {len(ASSUMED_COLLECTORS)}. "
            f"{100 * advice.fresh_ratio:.0f} % of the writes in the last quarter went to places not "
            "written before."
        )
    if system.gaps:
        yield f"Requests may be missing at {system.gaps} places of the history."
