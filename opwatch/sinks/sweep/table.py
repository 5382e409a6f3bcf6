"""The table of a sweep, built from the JSON document, so new and stored sweeps look the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from opwatch import units
from opwatch.fields import Fields
from opwatch.foreign import table_of
from opwatch.sinks.folding import folded
from opwatch.sinks.plain.cells import columns_of, number
from opwatch.sinks.scenario.sweep_section import scenario_lines
from opwatch.steady.strict import StrictState
from opwatch.sweep.outcome import HOST_BOUND

_LEVELS = ("level", "used", "(C-U)/U", "(C-U)/C", "WAF", "IOPS", "p99", "PTS", "opwatch")
_BAND = ("level", "WAF", "fit", "greedy", "FIFO", "2 choices", "years")
_SPREAD = ("level", "IOPS ±", "IOPS CV", "worst s", "p50", "p99.9", "p99.99", "p99.999", "CPU/IO", "C")
_STEPS = ("from", "to", "IOPS", "per %", "WAF", "per %", "life")
# Shorter words, so that a line has room for all columns.
_VERDICTS: dict[str, str] = {StrictState.NOT_REACHED: "no"}


def lines(document: dict[str, Any]) -> Iterator[str]:
    """Yield the tables of a sweep. Raise BadInput if the document is not a sweep."""
    sweep = Fields(table_of(document, "the sweep"), "the sweep")
    if sweep.table.get("type") != "sweep":
        raise sweep.bad("type is not sweep: it was not written by opwatch sweep")
    levels = sweep.tables("levels", "a level")
    heading = f"{sweep.text('target')}, levels by {sweep.text('method')}, {sweep.text('workload')}"
    yield from folded(heading)
    yield from _model(sweep)
    yield from columns_of(_LEVELS, [_level(level) for level in levels])
    for level in levels:
        yield from _of_files(level)
        yield from _reasons(level)
    yield ""
    yield from columns_of(_SPREAD, [_spread(level) for level in levels])
    yield from _host_bound(levels)
    yield ""
    yield from columns_of(_BAND, [_band(level) for level in levels])
    yield from _fit(sweep, levels)
    steps = sweep.tables("returns", "a step")
    if steps:
        yield ""
        yield from columns_of(_STEPS, [_step(step) for step in steps])
    yield ""
    yield from folded(sweep.text("advice"))
    if sweep.table.get("endurance_bytes") is None:
        yield from folded(f"no years: {sweep.text('endurance_reason')}")
    if sweep.table.get("scenario") is not None:
        yield ""
        yield from scenario_lines(sweep.sub("scenario"))


def _model(sweep: Fields) -> Iterator[str]:
    if sweep.table.get("model") is None:
        return
    model = sweep.sub("model")
    ratio = number(model, "ratio") or 0.0
    text = f"A MODEL of {model.text('profile')} in virtual time, not a drive."
    if ratio != 1:
        pages = model.count("superblock_pages")
        errors = [float(error) for error in model.rows("error_ratios") if isinstance(error, float)]
        real = model.table.get("real_superblock_pages")
        astray = 100 * max(errors, default=0.0)
        text += (
            f" Simulated at {100 * ratio:.2g} % of its size, with superblocks of "
            f"{pages} pages for {'large ones' if real is None else real}: that "
            f"makes WAF uncertain by up to {astray:.2g} %, which is in the errors below."
        )
    yield from folded(text)


def _figures(level: Fields) -> Fields:
    """Return the figures of a level.

    Without a steady state no figure describes the drive, except a WAF with a separate proof.
    """
    figures = level.sub("figures")
    if level.sub("opwatch").text("state") != StrictState.NOT_REACHED:
        return figures
    kept = {key: figures.table.get(key) for key in ("waf", "waf_error")} if _is_waf_alone(level) else {}
    return Fields({"latency_by_trace": {}, "latency_by_fio": {}, **kept}, figures.where)


def _is_waf_alone(level: Fields) -> bool:
    """Return whether a level has a WAF and no other figure."""
    verdict = level.sub("opwatch")
    is_proven = verdict.table.get("is_waf_proven") is True
    return is_proven and verdict.text("state") == StrictState.NOT_REACHED


def _level(level: Fields) -> tuple[str, ...]:
    figures = _figures(level)
    iops, state = number(figures, "iops"), level.sub("opwatch").text("state")
    return (
        level.text("label"),
        units.capacity(level.count("used_bytes")),
        f"{100 * (number(level, 'of_used_ratio') or 0):.2f} %",
        f"{100 * (number(level, 'of_whole_ratio') or 0):.2f} %",
        _waf(figures),
        "-" if iops is None else f"{iops:.0f}",
        units.duration(_latency(figures, "p99")),
        _pts(level),
        _VERDICTS.get(state, state),
    )


def _waf(figures: Fields) -> str:
    waf, error = number(figures, "waf"), number(figures, "waf_error")
    if waf is None:
        return "-"
    return f"{waf:.3f}" if not error else units.with_error(waf, error)


def _latency(figures: Fields, percentile: str) -> float | None:
    """Return a percentile from the trace, or else from fio."""
    for source in ("latency_by_trace", "latency_by_fio"):
        value = number(figures.sub(source), percentile)
        if value is not None:
            return value
    return None


def _spread(level: Fields) -> tuple[str, ...]:
    figures = _figures(level)
    uneven, worst = number(figures, "iops_cv"), number(figures, "iops_worst_second")
    celsius = number(figures, "temperature_c")
    error = None if number(figures, "iops") is None else number(level.sub("opwatch"), "iops_error_ratio")
    return (
        level.text("label"),
        "-" if error is None else f"{100 * error:.2g} %" if error >= 1e-4 else "<0.01 %",
        "-" if uneven is None else f"{100 * uneven:.2g} %",
        "-" if worst is None else f"{worst:.0f}",
        *(units.duration(_latency(figures, name)) for name in ("p50", "p99.9", "p99.99", "p99.999")),
        units.duration(number(figures, "cpu_ns_per_io")),
        "-" if celsius is None else f"{celsius:.0f}",
    )


def _pts(level: Fields) -> str:
    if level.table.get("pts") is None:
        return "-"
    return "pass" if level.sub("pts").flag("is_steady") else "no"


def _host_bound(levels: Sequence[Fields]) -> Iterator[str]:
    """Yield a warning for levels limited by the host instead of the drive."""
    ratios = [(level.text("label"), number(_figures(level), "load_cpu_ratio")) for level in levels]
    bound = [label for label, ratio in ratios if ratio is not None and ratio >= HOST_BOUND]
    if bound:
        yield from folded(
            f"{', '.join(bound)}: the busiest thread of fio was on a processor for {100 * HOST_BOUND:.0f} % "
            "of its time and more: IOPS there are the least that the drive can do, this host can do no more"
        )


def _of_files(level: Fields) -> Iterator[str]:
    """Yield the files of a level on a filesystem, and the range of its over-provisioning."""
    if level.table.get("files") is None:
        return
    files = level.sub("files")
    ballast = files.count("ballast_bytes")
    least, most = number(level, "of_used_ratio"), number(files, "most_of_used_ratio")
    if least is None or most is None:
        raise files.bad("most_of_used_ratio is missing")
    beside = f" beside {units.capacity(ballast)} of ballast" if ballast else ""
    least_used, most_used = files.count("least_used_bytes"), level.count("used_bytes")
    yield from folded(
        f"{level.text('label')}: a file of {units.capacity(files.count('load_bytes'))}{beside}; "
        f"{units.capacity(least_used)} to {units.capacity(most_used)} of the drive are in use: (C-U)/U is "
        f"{100 * least:.2f} to {100 * most:.2f} %"
    )


def _reasons(level: Fields) -> Iterator[str]:
    label, verdict = level.text("label"), level.sub("opwatch")
    if verdict.table.get("reason") is not None:
        yield from folded(f"{label}, {verdict.text('state')}: {verdict.text('reason')}")
    if _is_waf_alone(level):
        yield from folded(f"{label}: its WAF is proven by itself, which noise of the host does not touch")
    missing = level.sub("figures").sub("missing")
    if number(level.sub("figures"), "waf") is None and "waf" in missing.table:
        yield from folded(f"{label}, no WAF: {missing.text('waf')}")


def _band(level: Fields) -> tuple[str, ...]:
    band = level.optional("band", level.sub)
    modelled = [None if band is None else number(band, key) for key in ("greedy", "fifo", "two_choices")]
    years = number(level, "years")
    return (
        level.text("label"),
        _waf(_figures(level)),
        *(_three(value) for value in (number(level, "predicted_waf"), *modelled)),
        _life(years),
    )


def _three(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _life(years: float | None) -> str:
    """Return years as text, or days if it is less than a year."""
    if years is None:
        return "-"
    return f"{years:.1f} y" if abs(years) >= 1 else f"{365.25 * years:.0f} d"


def _fit(sweep: Fields, levels: Sequence[Fields]) -> Iterator[str]:
    if sweep.table.get("fit") is None:
        if sweep.table.get("is_uniform") is False:
            what = (
                "what is in use is not written"
                if sweep.text("method") == "fill"
                else "this workload does not write"
            )
            why = f"{what} everywhere alike: no model here tells the spare area by its WAF"
        elif all(number(_figures(level), "waf") is None for level in levels):
            is_hidden = any(number(level.sub("figures"), "waf") is not None for level in levels)
            lacking = "no level is steady" if is_hidden else "no WAF was measured"
            why = f"{lacking}: there is nothing to fit spare area to"
        else:
            why = "no level amplifies: there is no spare area to fit"
        yield from folded(why)
        return
    fit = sweep.sub("fit")
    spare, rms = number(fit, "spare_ratio"), number(fit, "rms_ratio")
    if spare is None:
        raise fit.bad("spare_ratio is missing")
    classes = " or ".join(fit.texts("alike")) or fit.text("collector")
    quality = "of one level, which any collector fits" if rms is None else f"off by {100 * rms:.2g} % (rms)"
    yield from folded(
        f"behaves like {100 * spare:.1f} % of spare area, (T-U)/U, at level {fit.text('level')}, {classes} "
        f"class; the fit is {quality}"
    )


def _step(step: Fields) -> tuple[str, ...]:
    years = number(step, "years")
    return (
        step.text("begin"),
        step.text("end"),
        _change(number(step, "iops_ratio"), 1),
        _percent(number(step, "iops_per_percent")),
        _change(number(step, "waf_ratio"), 1),
        _percent(number(step, "waf_per_percent"), falls=True),
        "-" if years is None else f"+{_life(years)}" if years >= 0 else _life(years),
    )


def _change(ratio: float | None, base: float) -> str:
    return "-" if ratio is None else f"{100 * (ratio - base):+.1f} %"


def _percent(share: float | None, *, falls: bool = False) -> str:
    return "-" if share is None else f"{-100 * share if falls else 100 * share:+.2f} %"
