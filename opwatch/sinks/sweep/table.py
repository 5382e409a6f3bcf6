"""The table of a sweep, built from the JSON document, so new and stored sweeps look the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from opwatch import units
from opwatch.codec import decode
from opwatch.errors import BadInput
from opwatch.fields import Fields
from opwatch.foreign import require_table
from opwatch.sinks.plain.cells import align_columns
from opwatch.sinks.sweep.document import TYPE, FitDocument, OutcomeDocument, StepDocument, SweepDocument
from opwatch.sinks.sweep.scenario_section import format_scenario
from opwatch.sinks.wrapping import wrap_text
from opwatch.steady.expect import SteadyExpectation
from opwatch.steady.strict import StrictState
from opwatch.sweep.outcome import HOST_BOUND, LevelFigures
from opwatch.sweep.result import ModelScale
from opwatch.times import format_estimate

_LEVELS = ("level", "used", "(C-U)/U", "(C-U)/C", "WAF", "IOPS", "p99", "PTS", "opwatch")
_BAND = ("level", "WAF", "fit", "greedy", "FIFO", "2 choices", "life")
_SPREAD = ("level", "IOPS ±", "IOPS CV", "worst s", "p50", "p99.9", "p99.99", "p99.999", "CPU/IO", "C")
_STEPS = ("from", "to", "IOPS", "per %", "WAF", "per %", "life")
# Shorter words, so that a line has room for all columns.
_VERDICTS: dict[str, str] = {StrictState.NOT_REACHED: "no"}


def format_sweep(document: dict[str, Any]) -> Iterator[str]:
    """Yield the tables of a sweep. Raise BadInput if the document is not a sweep."""
    where = "the sweep"
    if require_table(document, where).get("type") != TYPE:
        raise BadInput(f"{where}: type is not {TYPE}: it was not written by opwatch sweep")
    sweep = decode(SweepDocument, document, where)
    yield from wrap_text(f"{sweep.target}, levels by {sweep.method}, {sweep.workload}")
    if sweep.model:
        yield from wrap_text(_format_model(sweep.model))
    yield from align_columns(_LEVELS, [_format_level(level) for level in sweep.levels])
    for level in sweep.levels:
        yield from _format_files(level)
        yield from _format_reasons(level)
    yield from _format_not_excluded(sweep.levels)
    yield ""
    yield from align_columns(_SPREAD, [_format_spread(level) for level in sweep.levels])
    yield from _format_host_bound(sweep.levels)
    yield ""
    yield from align_columns(_BAND, [_format_band(level) for level in sweep.levels])
    yield from wrap_text(_format_fit(sweep.fit) if sweep.fit else _explain_no_fit(sweep))
    if sweep.returns:
        yield ""
        yield from align_columns(_STEPS, [_format_step(step) for step in sweep.returns])
    yield ""
    yield from wrap_text(sweep.advice)
    if sweep.endurance_bytes is None:
        yield from wrap_text(f"no life estimate: {sweep.endurance_reason}")
    if sweep.scenario is not None:
        yield ""
        yield from format_scenario(Fields(dict(sweep.scenario), f"{where}: scenario"))


def _format_model(model: ModelScale) -> str:
    text = f"A MODEL of {model.profile} in virtual time, not a drive."
    if model.ratio == 1:
        return text
    real = model.real_superblock_pages
    return (
        f"{text} Simulated at {100 * model.ratio:.2g} % of its size, with superblocks of "
        f"{model.superblock_pages} pages instead of {'large ones' if real is None else real}: this makes WAF "
        f"uncertain by up to {100 * max(model.error_ratios, default=0.0):.2g} %, which the errors below "
        "include."
    )


def _get_figures(level: OutcomeDocument) -> LevelFigures:
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
    figures, state = _get_figures(level), level.opwatch.state
    return (
        level.label,
        units.format_capacity(level.used_bytes),
        f"{100 * level.of_used_ratio:.2f} %",
        f"{100 * level.of_whole_ratio:.2f} %",
        _format_waf(figures),
        _format_number(figures.iops, "{:.0f}"),
        units.format_ns(_get_latency(figures, "p99")),
        "-" if level.pts is None else "pass" if level.pts.is_steady else "no",
        _VERDICTS.get(state, state),
    )


def _format_number(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


def _format_waf(figures: LevelFigures) -> str:
    if figures.waf is None or not figures.waf_error:
        return _format_number(figures.waf, "{:.3f}")
    return units.format_with_error(figures.waf, figures.waf_error)


def _get_latency(figures: LevelFigures, percentile: str) -> float | None:
    """Return a percentile from the trace, or else from fio."""
    return figures.latency_by_trace.get(percentile, figures.latency_by_fio.get(percentile))


def _format_spread(level: OutcomeDocument) -> tuple[str, ...]:
    figures = _get_figures(level)
    error = None if figures.iops is None else level.opwatch.iops_error_ratio
    return (
        level.label,
        "<0.01 %" if error is not None and error < 1e-4 else _format_percent(error),
        _format_percent(figures.iops_cv),
        _format_number(figures.iops_worst_second, "{:.0f}"),
        *(units.format_ns(_get_latency(figures, name)) for name in ("p50", "p99.9", "p99.99", "p99.999")),
        units.format_ns(figures.cpu_ns_per_io),
        _format_number(figures.temperature_c, "{:.0f}"),
    )


def _format_percent(ratio: float | None, form: str = "{:.2g} %") -> str:
    return "-" if ratio is None else form.format(100 * ratio)


def _format_host_bound(levels: Sequence[OutcomeDocument]) -> Iterator[str]:
    """Yield a warning for levels limited by the host instead of the drive."""
    bound = [level.label for level in levels if _get_figures(level).is_host_bound]
    if bound:
        yield from wrap_text(
            f"{', '.join(bound)}: fio's busiest thread used at least {100 * HOST_BOUND:.0f} % of a CPU: "
            "this host is the limit there, and the drive may be capable of more IOPS"
        )


def _format_files(level: OutcomeDocument) -> Iterator[str]:
    """Yield the files of a level on a filesystem, and the range of its over-provisioning."""
    files = level.files
    if files:
        sizes = (files.load_bytes, files.ballast_bytes, files.least_used_bytes, level.used_bytes)
        load, ballast, least, most = map(units.format_capacity, sizes)
        beside = f" beside {ballast} of ballast" if files.ballast_bytes else ""
        yield from wrap_text(
            f"{level.label}: a file of {load}{beside}; {least} to {most} of the drive are in use: (C-U)/U is "
            f"{100 * level.of_used_ratio:.2f} to {100 * files.most_of_used_ratio:.2f} %"
        )


def _format_reasons(level: OutcomeDocument) -> Iterator[str]:
    verdict, missing = level.opwatch, level.figures.missing
    if verdict.reason is not None:
        yield from wrap_text(f"{level.label}, {verdict.state}: {verdict.reason}")
    if verdict.expected is not None:
        yield from wrap_text(f"{level.label}: {format_expectation(verdict.expected)}")
    if _has_only_waf(level):
        yield from wrap_text(f"{level.label}: only its WAF is proven, which host noise does not affect")
    if level.figures.waf is None and "waf" in missing:
        yield from wrap_text(f"{level.label}, no WAF: {missing['waf']}")


def format_expectation(expected: SteadyExpectation) -> str:
    """Return in words where a level will settle, and after how many more drive writes."""
    figures = []
    if expected.waf is not None:
        figures.append(f"WAF {units.format_with_error(expected.waf, expected.waf_error or 0.0)}")
    if expected.iops is not None:
        figures.append(f"{expected.iops:.0f} ± {expected.iops_error or 0.0:.0f} IOPS")
    what = f"expected {' and '.join(figures)}" if figures else "the settled figures cannot be predicted"
    if expected.drive_writes is None:
        return f"{what}; whether and when it settles cannot be predicted"
    time = "" if expected.seconds is None else f" ({format_estimate(expected.seconds)})"
    return f"{what} after about {expected.drive_writes:.2g} more drive writes{time}"


def _format_not_excluded(levels: Sequence[OutcomeDocument]) -> Iterator[str]:
    """Yield what no look-back of the steady levels can exclude."""
    steady = [one.opwatch for one in levels if one.opwatch.not_excluded is not None]
    lookbacks = [one.lookback_drive_writes for one in steady if one.lookback_drive_writes is not None]
    written = [one.written_drive_writes for one in steady if one.written_drive_writes is not None]
    if lookbacks and written:
        yield from wrap_text(
            f"not excluded: cycles longer than {min(lookbacks):.2g} drive writes, and changes after "
            f"{min(written):.2g} drive writes, such as the end of a larger cache"
        )


def _format_band(level: OutcomeDocument) -> tuple[str, ...]:
    band = level.band
    models = (band.greedy, band.fifo, band.two_choices) if band else (None, None, None)
    return (
        level.label,
        _format_waf(_get_figures(level)),
        *(_format_number(value, "{:.3f}") for value in (level.predicted_waf, *models)),
        _format_life(level.years),
    )


def _format_life(years: float | None) -> str:
    """Return years as text, or days if it is less than a year."""
    if years is None:
        return "-"
    return f"{years:.1f} y" if abs(years) >= 1 else f"{365.25 * years:.0f} d"


def _explain_no_fit(sweep: SweepDocument) -> str:
    if not sweep.is_uniform:
        what = (
            "the bytes in use are not written" if sweep.method == "fill" else "this workload does not write"
        )
        return f"{what} uniformly, so no model here can derive the spare area from its WAF"
    why = "no level amplifies"
    if all(_get_figures(level).waf is None for level in sweep.levels):
        is_hidden = any(level.figures.waf is not None for level in sweep.levels)
        why = "no level is steady" if is_hidden else "no WAF was measured"
    return f"{why}, so no spare area can be fitted"


def _format_fit(fit: FitDocument) -> str:
    classes, rms = " or ".join(fit.alike) or fit.collector, fit.rms_ratio
    quality = "from one level, which any collector fits" if rms is None else f"off by {100 * rms:.2g} % (rms)"
    return (
        f"behaves like {100 * fit.spare_ratio:.1f} % of spare area, (T-U)/U, at level {fit.level}, {classes} "
        f"class; the fit is {quality}"
    )


def _format_step(step: StepDocument) -> tuple[str, ...]:
    plus = "+" if step.years is not None and step.years >= 0 else ""
    return (
        step.begin,
        step.end,
        _format_growth(step.iops_ratio),
        _format_percent(step.iops_per_percent, "{:+.2f} %"),
        _format_growth(step.waf_ratio),
        # The document has the decrease of WAF.
        _format_percent(None if step.waf_per_percent is None else -step.waf_per_percent, "{:+.2f} %"),
        plus + _format_life(step.years),
    )


def _format_growth(ratio: float | None) -> str:
    return _format_percent(None if ratio is None else ratio - 1, "{:+.1f} %")
