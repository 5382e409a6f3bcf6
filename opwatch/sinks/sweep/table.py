"""The table of a sweep, built from the JSON document, so new and stored sweeps look the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from opwatch import units
from opwatch.fields import Fields
from opwatch.sinks.blocks import Section, TextTable, format_sections
from opwatch.sinks.sweep.advice_text import summarize_advice
from opwatch.sinks.sweep.document import FitDocument, OutcomeDocument, StepDocument, SweepDocument
from opwatch.sinks.sweep.figures import (
    format_expectation,
    format_gain,
    format_growth,
    format_life,
    format_number,
    format_percent,
    format_waf,
)
from opwatch.sinks.sweep.reading import decode_sweep, restore_result
from opwatch.sinks.sweep.scenario_section import format_scenario
from opwatch.sinks.wrapping import wrap_text
from opwatch.steady.skew import STATIC_AFTER
from opwatch.steady.strict import StrictState
from opwatch.sweep.advice.advice import advise
from opwatch.sweep.advice.targets import SweepTargets
from opwatch.sweep.outcome import HOST_BOUND, LevelFigures
from opwatch.sweep.result import ModelScale

_LEVELS = ("level", "used", "(C-U)/U", "(C-U)/C", "WAF", "IOPS", "p99", "PTS", "opwatch")
_BAND = ("level", "WAF", "fit", "greedy", "FIFO", "2 choices", "life")
_SPREAD = ("level", "IOPS ±", "IOPS CV", "worst s", "p50", "p99.9", "p99.99", "p99.999", "CPU/IO", "C")
_STEPS = ("from", "to", "IOPS", "per %", "WAF", "per %", "life", "worth")
# Shorter words, so that a line has room for all columns.
_VERDICTS: dict[str, str] = {StrictState.NOT_REACHED: "no"}


def format_sweep(document: dict[str, Any]) -> Iterator[str]:
    """Yield the tables of a sweep. Raise BadInput if the document is not a sweep."""
    where = "the sweep"
    sweep = decode_sweep(document, where)
    yield from wrap_text(f"{sweep.target}, levels by {sweep.method}, {sweep.workload}")
    if sweep.model:
        yield from wrap_text(format_model(sweep.model))
    yield from format_sections(build_sections(sweep))
    yield ""
    yield from wrap_text(summarize_advice(advise(restore_result(sweep, where), SweepTargets())))
    if sweep.scenario is not None:
        yield ""
        yield from format_scenario(Fields(dict(sweep.scenario), f"{where}: scenario"))


def build_sections(sweep: SweepDocument, *, has_reasons: bool = True) -> list[Section]:
    """Return the tables of a sweep with their remarks, without the reasons of verdicts if not wanted."""
    levels = sweep.levels
    sections = [
        Section("Levels", [make_level_table(sweep), *_explain(levels, has_reasons=has_reasons)]),
        Section(
            "Latency and variation",
            [TextTable(_SPREAD, [_format_spread(level) for level in levels]), *_explain_host_bound(levels)],
        ),
        Section(
            "Models and life",
            [
                TextTable(_BAND, [_format_band(level) for level in levels]),
                _format_fit(sweep.fit) if sweep.fit else _explain_no_fit(sweep),
                *([] if sweep.endurance_bytes else [f"no life estimate: {sweep.endurance_reason}"]),
            ],
        ),
    ]
    if sweep.returns:
        rows = [_format_step(step) for step in sweep.returns]
        sections.append(Section("Gains", [TextTable(_STEPS, rows, words=2)]))
    return sections


def make_level_table(sweep: SweepDocument) -> TextTable:
    """Return the levels with their figures and verdicts."""
    return TextTable(_LEVELS, [_format_level(level) for level in sweep.levels])


def format_model(model: ModelScale) -> str:
    text = f"A MODEL of {model.profile} in virtual time, not a drive."
    if model.ratio == 1:
        return text
    real = model.real_superblock_pages
    instead = (
        "" if real == model.superblock_pages else f" instead of {'large ones' if real is None else real}"
    )
    error = format_percent(max(model.error_ratios, default=0.0))
    return (
        f"{text} Simulated at {format_percent(model.ratio)} of its size, with superblocks of "
        f"{model.superblock_pages} pages{instead}: this makes WAF uncertain by up to {error}, which the "
        "errors below include."
    )


def get_figures(level: OutcomeDocument) -> LevelFigures:
    """Return the figures of a level.

    Without a steady state no figure describes the drive, except a WAF with a separate proof.
    """
    figures = level.figures
    if level.opwatch.state is not StrictState.NOT_REACHED:
        return figures
    if not _has_only_waf(level):
        return LevelFigures()
    return LevelFigures(waf=figures.waf, waf_error=figures.waf_error)


def _has_only_waf(level: OutcomeDocument) -> bool:
    """Return whether a level has a WAF and no other figure."""
    return level.opwatch.is_waf_proven and level.opwatch.state is StrictState.NOT_REACHED


def _format_level(level: OutcomeDocument) -> tuple[str, ...]:
    figures, state = get_figures(level), level.opwatch.state
    return (
        level.label,
        units.format_capacity(level.used_bytes),
        f"{100 * level.of_used_ratio:.2f} %",
        f"{100 * level.of_whole_ratio:.2f} %",
        format_waf(figures.waf, figures.waf_error),
        format_number(figures.iops, "{:.0f}"),
        units.format_ns(figures.find_latency("p99")),
        "-" if level.pts is None else "pass" if level.pts.is_steady else "no",
        _VERDICTS.get(state, state),
    )


def _format_spread(level: OutcomeDocument) -> tuple[str, ...]:
    figures = get_figures(level)
    error = None if figures.iops is None else level.opwatch.iops_error_ratio
    return (
        level.label,
        format_percent(error),
        format_percent(figures.iops_cv),
        format_number(figures.iops_worst_second, "{:.0f}"),
        *(units.format_ns(figures.find_latency(name)) for name in ("p50", "p99.9", "p99.99", "p99.999")),
        units.format_ns(figures.cpu_ns_per_io),
        format_number(figures.temperature_c, "{:.0f}"),
    )


def _explain_host_bound(levels: Sequence[OutcomeDocument]) -> Iterator[str]:
    """Yield a warning for levels limited by the host instead of the drive."""
    bound = [level.label for level in levels if get_figures(level).is_host_bound]
    if bound:
        yield (
            f"{', '.join(bound)}: fio's busiest thread used at least {100 * HOST_BOUND:.0f} % of a CPU: "
            "this host is the limit there, and the drive may be capable of more IOPS"
        )


def _explain(levels: Sequence[OutcomeDocument], *, has_reasons: bool) -> Iterator[str]:
    for level in levels:
        yield from _format_files(level)
        if has_reasons and level.opwatch.reason is not None:
            yield f"{level.label}, {level.opwatch.state}: {level.opwatch.reason}"
        yield from _format_remarks(level)
    yield from _format_not_excluded(levels)


def _format_files(level: OutcomeDocument) -> Iterator[str]:
    """Yield the files of a level on a filesystem, and the range of its over-provisioning."""
    files = level.files
    if files:
        sizes = (files.load_bytes, files.ballast_bytes, files.least_used_bytes, level.used_bytes)
        load, ballast, least, most = map(units.format_capacity, sizes)
        beside = f" beside {ballast} of ballast" if files.ballast_bytes else ""
        yield (
            f"{level.label}: a file of {load}{beside}; {least} to {most} of the drive are in use: (C-U)/U is "
            f"{100 * level.of_used_ratio:.2f} to {100 * files.most_of_used_ratio:.2f} %"
        )


def _format_remarks(level: OutcomeDocument) -> Iterator[str]:
    """Yield the expectation of a level, and why it has not all figures."""
    verdict, missing = level.opwatch, level.figures.missing
    if verdict.expected is not None:
        # A proven WAF is in the table, with a smaller error.
        expected = replace(verdict.expected, waf=None) if verdict.is_waf_proven else verdict.expected
        yield f"{level.label}: {format_expectation(expected)}"
    if _has_only_waf(level):
        yield f"{level.label}: only its WAF is proven, which host noise does not affect"
    if level.figures.waf is None and not _repeats(missing.get("waf"), verdict.reason):
        yield f"{level.label}, no WAF: {missing['waf']}"


def _repeats(text: str | None, reason: str | None) -> bool:
    """Return True if the text says nothing besides the reason of a verdict."""
    return text is None or (reason is not None and reason in text)


def _format_not_excluded(levels: Sequence[OutcomeDocument]) -> Iterator[str]:
    """Yield what no look-back of the steady levels can exclude."""
    steady = [one.opwatch for one in levels if one.opwatch.not_excluded is not None]
    lookbacks = [one.lookback_drive_writes for one in steady if one.lookback_drive_writes is not None]
    written = [one.written_drive_writes for one in steady if one.written_drive_writes is not None]
    if lookbacks and written:
        length, end = units.format_plain(min(lookbacks)), units.format_plain(min(written))
        yield (
            f"not excluded: cycles longer than {length} drive writes, and changes after {end} drive writes, "
            "such as the end of a larger cache"
        )
    if static := max((one.static_ratio or 0.0 for one in steady), default=0.0):
        yield (
            f"counted as static: {format_percent(static)} of the data, which would turn over after more than "
            f"{STATIC_AFTER:.0f} drive writes"
        )


def _format_band(level: OutcomeDocument) -> tuple[str, ...]:
    band, figures = level.band, get_figures(level)
    models = (band.greedy, band.fifo, band.two_choices) if band else (None, None, None)
    return (
        level.label,
        format_waf(figures.waf, figures.waf_error),
        *(format_number(value, "{:.3f}") for value in (level.predicted_waf, *models)),
        format_life(level.years),
    )


def _explain_no_fit(sweep: SweepDocument) -> str:
    if not sweep.is_uniform:
        what = (
            "the bytes in use are not written" if sweep.method == "fill" else "this workload does not write"
        )
        return f"{what} uniformly, so no model here can derive the spare area from its WAF"
    why = "no level amplifies"
    if all(get_figures(level).waf is None for level in sweep.levels):
        is_hidden = any(level.figures.waf is not None for level in sweep.levels)
        why = "no level is steady" if is_hidden else "no WAF was measured"
    return f"{why}, so no spare area can be fitted"


def _format_fit(fit: FitDocument) -> str:
    classes, rms = " or ".join(fit.alike) or fit.collector, fit.rms_ratio
    quality = (
        "from one level, which any collector fits"
        if rms is None
        else f"off by {units.format_plain(100 * rms)} % (rms)"
    )
    text = (
        f"behaves like {100 * fit.spare_ratio:.1f} % of spare area, (T-U)/U, at level {fit.level}, {classes} "
        f"class; the fit is {quality}"
    )
    if fit.least_spare_ratio is None:
        return text
    return (
        f"{text}. That is for large superblocks, because this drive's are not known; with 64 pages each, "
        f"{100 * fit.least_spare_ratio:.1f} % explain the same WAF"
    )


def _format_step(step: StepDocument) -> tuple[str, ...]:
    plus = "+" if step.years is not None and step.years >= 0 else ""
    return (
        step.begin,
        step.end,
        format_growth(step.iops_ratio),
        format_gain(step.iops_per_percent),
        format_growth(step.waf_ratio),
        # The document has the decrease of WAF.
        format_gain(None if step.waf_per_percent is None else -step.waf_per_percent),
        plus + format_life(step.years),
        step.worth or "-",
    )
