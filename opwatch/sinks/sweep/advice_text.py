"""The answer of a sweep in words: which level, how sure, and what more over-provisioning buys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from opwatch import units
from opwatch.sinks.report.plots import amounts
from opwatch.sinks.sweep import figures
from opwatch.steady.strict import StrictState
from opwatch.sweep.advice.advice import WARRANTY_YEARS, AdviceKind, LevelAdvice, SweepAdvice
from opwatch.sweep.advice.between import LevelBetween
from opwatch.sweep.advice.price import CapacityPrice
from opwatch.sweep.advice.targets import TargetCheck, TargetKind, TargetVerdict
from opwatch.sweep.ranges import ValueRange
from opwatch.sweep.returns import MIN_GAIN, LevelGain, StepWorth

_NAMES = {
    TargetKind.DAILY: "daily",
    TargetKind.LIFE: "life",
    TargetKind.IOPS: "IOPS",
    TargetKind.P99: "p99",
}
_WORTH = {
    StepWorth.PAYS: "pays",
    StepWorth.COSTS_MORE: "costs more",
    StepWorth.NOTHING: "gains nothing",
    StepWorth.UNKNOWN: "unknown",
}


def describe_advice(advice: SweepAdvice, price: CapacityPrice | None = None) -> Iterator[str]:
    """Yield the sentences of the answer, the most important first."""
    usable = [one for one in advice.levels if one.is_usable]
    if advice.kind is not AdviceKind.NO_TARGETS:
        yield from _describe_choice(advice)
    if not usable:
        yield "No level reached steady state, so the effect of more OP is unknown."
    elif not advice.has_amplification and not any(step.worth is StepWorth.PAYS for step in advice.steps):
        yield _describe_no_amplification(usable)
    elif not advice.steps:
        yield "One level cannot show what more OP gives."
    else:
        yield from _describe_knee(advice)
        yield from _describe_life(advice)
        yield from _describe_next(advice, price)
        yield from _describe_end(advice)
    yield from _describe_basis(usable, advice)
    excluded = [one.label for one in advice.levels if not one.is_usable]
    if usable and excluded:
        yield f"Left out, because they reached no steady state: {', '.join(excluded)}."


def summarize_advice(advice: SweepAdvice) -> str:
    """Return the answer without targets in one paragraph."""
    return " ".join(describe_advice(advice))


def format_worth(step: LevelGain) -> str:
    return _WORTH[step.worth]


def format_target_value(kind: TargetKind, value: ValueRange) -> str:
    """Return a figure with its name and its error."""
    if kind is TargetKind.DAILY:
        return f"{units.format_capacity(round(value.value))} per day"
    if kind is TargetKind.LIFE:
        return f"a life of {figures.format_life_range(value)}"
    if kind is TargetKind.P99:
        return f"a p99 of {_format_time(value.value)} ± {units.format_plain(100 * value.error_ratio)} %"
    return f"{figures.format_count(value)} IOPS"


def format_wanted(kind: TargetKind, wanted: float) -> str:
    """Return a target: at least 20,000 IOPS, a p99 of at most 5.00 ms."""
    if kind is TargetKind.P99:
        return f"a p99 of at most {_format_time(wanted)}"
    if kind is TargetKind.LIFE:
        return f"a life of at least {units.format_plain(wanted, 3)} years"
    return f"at least {format_target_value(kind, ValueRange(wanted, 0.0))}"


def _format_time(ns: float) -> str:
    return amounts.format_latency(ns)


def name_checks(checks: Iterable[TargetCheck]) -> str:
    """Return the targets that a level misses, with a question mark if that is not certain, or "none"."""
    words = []
    for check in checks:
        if check.verdict is TargetVerdict.MISSED:
            words.append(_NAMES[check.kind])
        elif check.verdict is not TargetVerdict.MET:
            words.append(f"{_NAMES[check.kind]}?")
    return ", ".join(words) or "none"


def _describe_choice(advice: SweepAdvice) -> Iterator[str]:
    by_reason: dict[str, list[str]] = {}
    for check in advice.unjudged:
        by_reason.setdefault(check.reason or "", []).append(_NAMES[check.kind])
    for reason, names in by_reason.items():
        yield f"Not judged at any level: {_join_words(names)}, because {reason}."
    if advice.chosen:
        yield from _describe_chosen(advice, advice.chosen)
    elif advice.kind is AdviceKind.NONE:
        yield f"No level meets the targets. {_describe_nearest(advice.nearest)}"
        yield from _describe_impossible(advice)
    else:
        yield "No level is certain to meet all targets."
    for one in advice.undecided:
        if advice.unjudged or one.verdict is TargetVerdict.UNDECIDED or not advice.chosen:
            yield from _describe_undecided(one, advice.unjudged)
    if advice.kind is AdviceKind.UNDECIDED and not advice.chosen and advice.nearest:
        yield f"Of the levels that miss a target: {_describe_nearest(advice.nearest)}"


def _describe_chosen(advice: SweepAdvice, chosen: LevelAdvice) -> Iterator[str]:
    level = chosen.outcome.level
    what = "all other targets" if advice.unjudged else "all targets"
    yield (
        f"{level.label} is the smallest measured level that meets {what}: use at most "
        f"{units.format_capacity(level.usable_bytes)} of {units.format_capacity(level.scale.capacity_bytes)}."
    )
    judged = [check for check in chosen.checks if check.verdict is TargetVerdict.MET and check.value]
    if judged:
        tightest = min(judged, key=_compute_margin)
        yield (
            "Each figure meets its target with its whole error (95 %). The tightest is "
            f"{_format_check(tightest)} ({format_wanted(tightest.kind, tightest.wanted)})."
        )
    if chosen.outcome.strict.state is StrictState.UNPROVEN:
        yield f"The steady state of {level.label} is unproven: {chosen.outcome.strict.reason}."
    yield from _describe_larger(advice, chosen)
    if advice.between:
        yield _describe_between(advice.between, chosen)
    elif advice.levels and advice.levels[0].label == chosen.label and len(advice.levels) > 1:
        yield f"Less OP than {level.label} was not measured."


def _describe_larger(advice: SweepAdvice, chosen: LevelAdvice) -> Iterator[str]:
    """Yield the larger levels that miss a target that the chosen level meets."""
    place = [one.label for one in advice.levels].index(chosen.label)
    missing = [one for one in advice.levels[place + 1 :] if one.verdict is TargetVerdict.MISSED]
    if missing:
        words = _join_words([f"{one.label} ({name_checks(one.checks)})" for one in missing])
        yield f"Not every larger level meets them: {words} does not."
    if place == len(advice.levels) - 1 and place:
        yield f"What more OP than {chosen.label} would buy was not measured."


def _describe_impossible(advice: SweepAdvice) -> Iterator[str]:
    """Yield that more OP cannot help, if not even a drive without amplification would last long enough."""
    for one in advice.levels:
        waf = one.outcome.find_waf()
        for check in one.checks:
            if check.kind is TargetKind.LIFE and check.value and waf:
                most = check.value.value * waf.value
                if most < check.wanted:
                    yield (
                        f"No OP can give that life: without any amplification the flash would last "
                        f"{figures.format_life(most)} at this daily amount."
                    )
                return


def _compute_margin(check: TargetCheck) -> float:
    """Return the factor by which a figure, error included, is better than its target."""
    assert check.value
    if check.kind is TargetKind.P99:
        return check.wanted / check.value.high if check.value.high else float("inf")
    return check.value.low / check.wanted


def _format_check(check: TargetCheck) -> str:
    return format_target_value(check.kind, check.value) if check.value else _NAMES[check.kind]


def _describe_between(between: LevelBetween, chosen: LevelAdvice) -> str:
    known = [check for check in chosen.checks if check.kind is TargetKind.P99]
    tail = ", and p99 meets its target at the levels on both sides" if known else ""
    predicted = [check for check in between.checks if check.kind is not TargetKind.P99 and check.value]
    values = ", ".join(_format_check(check) for check in predicted)
    percent = f"{100 * between.of_used_ratio:.1f}%"
    return (
        f"By the model that fits every level, {percent.replace('%', ' %')} would do: use "
        f"{units.format_capacity(between.used_bytes)}; predicted {values}{tail}. To measure it: opwatch "
        f"sweep run --op {percent}"
    )


def _describe_nearest(nearest: LevelAdvice | None) -> str:
    if nearest is None:
        return ""
    missed = [check for check in nearest.checks if check.verdict is TargetVerdict.MISSED]
    words = "; ".join(
        f"{_format_check(check)} instead of {format_wanted(check.kind, check.wanted)}, "
        f"{_format_shortfall(check.shortfall)}"
        for check in missed
    )
    return f"The nearest is {nearest.label}: {words}."


def _format_shortfall(factor: float) -> str:
    return (
        f"off by {units.format_plain(100 * (factor - 1))} %"
        if factor < 1.995
        else f"off by a factor of {units.format_plain(factor)}"
    )


def _describe_undecided(level: LevelAdvice, unjudged: Sequence[TargetCheck]) -> Iterator[str]:
    kinds = {check.kind for check in unjudged}
    for check in level.checks:
        if check.kind in kinds:
            continue
        if check.verdict is TargetVerdict.UNDECIDED:
            yield (
                f"{level.label} may meet the targets too: {_format_check(check)} is too close to "
                f"{format_wanted(check.kind, check.wanted)} to be certain."
            )
        elif check.verdict is TargetVerdict.UNKNOWN:
            yield f"{level.label}: {_NAMES[check.kind]} is unknown: {check.reason}."


def _describe_no_amplification(levels: Sequence[LevelAdvice]) -> str:
    worst = max(waf.value for one in levels if (waf := one.outcome.find_waf()))
    what = f"This drive does not amplify what this workload writes (WAF {worst:.2f}): more OP"
    if all(one.outcome.find_iops() for one in levels):
        return f"{what} will not help."
    return f"{what} cannot lower that. IOPS are not in steady state, so its effect on them is unknown."


def _describe_knee(advice: SweepAdvice) -> Iterator[str]:
    steps, knee = advice.steps, advice.knee
    paying = [step for step in steps if step.worth is StepWorth.PAYS]
    losses = [step.end.level.label for step in paying if step.has_iops_loss]
    note = f" ({', '.join(losses)} only in WAF, with fewer IOPS)" if losses else ""
    if knee is None:
        if paying:
            yield f"The steps up to {paying[-1].end.level.label} pay{note}."
        yield from _explain_unknown([step for step in steps if step.worth is StepWorth.UNKNOWN])
    elif not paying:
        words = "gains 2 % over the one before, so more OP is worth nothing"
        if not _is_all(steps, StepWorth.NOTHING):
            words = "gains what it costs"
        yield f"The knee is at {knee.level.label}: no level above {words}."
    elif paying[-1] is steps[-1]:
        every = "Every step up to" if len(paying) == len(steps) else "The last step, to"
        yield f"{every} {knee.level.label} pays{note}; more OP was not measured, so the knee is beyond."
    else:
        yield (
            f"The knee is at {knee.level.label}: up to it each step pays{note}, and beyond it more OP costs "
            "more than it gains. A step pays if it raises IOPS or life by more than it raises the price of a "
            "byte in use."
        )


def _describe_life(advice: SweepAdvice) -> Iterator[str]:
    """Yield the life at the knee, if there are no targets to be met by another level."""
    knee = advice.knee if advice.kind is AdviceKind.NO_TARGETS else None
    for one in advice.levels:
        if knee and one.outcome.level == knee.level and one.tbw_bytes and one.dwpd:
            yield (
                f"At {one.label} the host may write {units.format_capacity(round(one.tbw_bytes.value))} "
                f"until the flash is worn: {one.dwpd.value:.2f} writes of the capacity in use per day for "
                f"{WARRANTY_YEARS:g} years."
            )


def _is_all(steps: Sequence[LevelGain], worth: StepWorth) -> bool:
    return all(step.worth is worth for step in steps)


def _describe_next(advice: SweepAdvice, price: CapacityPrice | None) -> Iterator[str]:
    step = advice.next_step
    if step is None:
        return
    cost = f" ({price.format_amount(price.compute_cost(step.lost_bytes))})" if price else ""
    years = advice.find_years_gained(step)
    gains = [
        f"IOPS {figures.format_growth_range(step.iops)}" if step.iops else "",
        f"WAF {figures.format_growth(step.waf_ratio)}" if step.writes else "",
        "" if years is None else f"life {'+' if years >= 0 else ''}{figures.format_life(years)}",
    ]
    lost = step.lost_bytes / step.begin.level.usable_bytes
    yield (
        f"The next step, {step.begin.level.label} to {step.end.level.label}, buys "
        f"{', '.join(filter(None, gains)) or 'an unknown gain'}, and gives up "
        f"{units.format_capacity(step.lost_bytes)}{cost}, {100 * lost:.1f} % of the capacity in use."
    )


def _describe_end(advice: SweepAdvice) -> Iterator[str]:
    """Yield from where on more OP is worth nothing, if steps before that are worth something."""
    worthless = advice.worthless_from
    if worthless and worthless.level != advice.steps[0].begin.level:
        yield (
            f"Beyond {worthless.level.label} more OP is worth nothing: no step gains "
            f"{100 * MIN_GAIN:.0f} % in IOPS or WAF."
        )


def _explain_unknown(steps: Sequence[LevelGain]) -> Iterator[str]:
    """Yield why the steps without a proven gain cannot be judged."""
    if not steps:
        return
    first, last = steps[0].begin.level.label, steps[-1].end.level.label
    if all(step.writes is None for step in steps):
        limits = [
            step for step in steps if step.begin.figures.is_host_bound or step.end.figures.is_host_bound
        ]
        shown = "IOPS are limited by this host" if limits else "IOPS do not show a gain that pays"
        if all(step.iops is None for step in steps):
            shown = "IOPS are unknown"
        yield f"Whether the steps from {first} to {last} help is unknown: {shown}, and WAF was not measured."
        return
    yield (
        f"Whether the steps from {first} to {last} pay is unknown: the errors of WAF or IOPS are larger than "
        "the difference."
    )


def _describe_basis(usable: Sequence[LevelAdvice], advice: SweepAdvice) -> Iterator[str]:
    """Yield which figures the answer rests on, if not on all."""
    busy = [one.label for one in usable if one.outcome.strict.state is StrictState.NOT_REACHED]
    if busy and advice.has_amplification:
        which = "any level" if len(busy) == len(usable) else _join_words(busy)
        yield (
            f"IOPS and latency are not in steady state at {which}, because the host was busy. The answer "
            "rests on WAF alone there, which a busy host does not change."
        )
    bound = [one.label for one in usable if one.outcome.proven_figures.is_host_bound]
    if bound:
        yield f"At {_join_words(bound)} this host was the limit: the drive may be capable of more IOPS."


def describe_excluded(advice: SweepAdvice) -> Iterator[str]:
    """Yield why each level without figures is left out."""
    for one in advice.levels:
        if not one.is_usable:
            yield f"{one.label}, {one.outcome.strict.state}: {one.outcome.strict.reason}."
            if expected := one.outcome.strict.to_report().expected:
                yield f"{one.label}: {figures.format_expectation(expected)}."


def _join_words(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
