"""The table of a sweep, built from the JSON document, so new and stored sweeps look the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from opwatch import units
from opwatch.fields import Fields
from opwatch.foreign import require_table
from opwatch.sinks.plain.cells import align_columns, get_number
from opwatch.sinks.scenario.sweep_section import format_scenario
from opwatch.sinks.wrapping import wrap_text
from opwatch.steady.strict import StrictState
from opwatch.sweep.outcome import HOST_BOUND

_LEVELS = ("level", "used", "(C-U)/U", "(C-U)/C", "WAF", "IOPS", "p99", "PTS", "opwatch")
_BAND = ("level", "WAF", "fit", "greedy", "FIFO", "2 choices", "life")
_SPREAD = ("level", "IOPS ±", "IOPS CV", "worst s", "p50", "p99.9", "p99.99", "p99.999", "CPU/IO", "C")
_STEPS = ("from", "to", "IOPS", "per %", "WAF", "per %", "life")
# Shorter words, so that a line has room for all columns.
_VERDICTS: dict[str, str] = {StrictState.NOT_REACHED: "no"}


def format_sweep(document: dict[str, Any]) -> Iterator[str]:
    """Yield the tables of a sweep. Raise BadInput if the document is not a sweep."""
    sweep = Fields(require_table(document, "the sweep"), "the sweep")
    if sweep.table.get("type") != "sweep":
        raise sweep.make_error("type is not sweep: it was not written by opwatch sweep")
    levels = sweep.read_subtables("levels", "a level")
    heading = (
        f"{sweep.read_text('target')}, levels by {sweep.read_text('method')}, {sweep.read_text('workload')}"
    )
    yield from wrap_text(heading)
    yield from _format_model(sweep)
    yield from align_columns(_LEVELS, [_format_level(level) for level in levels])
    for level in levels:
        yield from _format_files(level)
        yield from _format_reasons(level)
    yield ""
    yield from align_columns(_SPREAD, [_format_spread(level) for level in levels])
    yield from _format_host_bound(levels)
    yield ""
    yield from align_columns(_BAND, [_format_band(level) for level in levels])
    yield from _format_fit(sweep, levels)
    steps = sweep.read_subtables("returns", "a step")
    if steps:
        yield ""
        yield from align_columns(_STEPS, [_format_step(step) for step in steps])
    yield ""
    yield from wrap_text(sweep.read_text("advice"))
    if sweep.table.get("endurance_bytes") is None:
        yield from wrap_text(f"no life estimate: {sweep.read_text('endurance_reason')}")
    if sweep.table.get("scenario") is not None:
        yield ""
        yield from format_scenario(sweep.read_subtable("scenario"))


def _format_model(sweep: Fields) -> Iterator[str]:
    if sweep.table.get("model") is None:
        return
    model = sweep.read_subtable("model")
    ratio = get_number(model, "ratio") or 0.0
    text = f"A MODEL of {model.read_text('profile')} in virtual time, not a drive."
    if ratio != 1:
        pages = model.read_count("superblock_pages")
        errors = [float(error) for error in model.read_list("error_ratios") if isinstance(error, float)]
        real = model.table.get("real_superblock_pages")
        astray = 100 * max(errors, default=0.0)
        text += (
            f" Simulated at {100 * ratio:.2g} % of its size, with superblocks of "
            f"{pages} pages instead of {'large ones' if real is None else real}: this makes WAF "
            f"uncertain by up to {astray:.2g} %, which the errors below include."
        )
    yield from wrap_text(text)


def _get_figures(level: Fields) -> Fields:
    """Return the figures of a level.

    Without a steady state no figure describes the drive, except a WAF with a separate proof.
    """
    figures = level.read_subtable("figures")
    if level.read_subtable("opwatch").read_text("state") != StrictState.NOT_REACHED:
        return figures
    kept = {key: figures.table.get(key) for key in ("waf", "waf_error")} if _has_only_waf(level) else {}
    return Fields({"latency_by_trace": {}, "latency_by_fio": {}, **kept}, figures.where)


def _has_only_waf(level: Fields) -> bool:
    """Return whether a level has a WAF and no other figure."""
    verdict = level.read_subtable("opwatch")
    is_proven = verdict.table.get("is_waf_proven") is True
    return is_proven and verdict.read_text("state") == StrictState.NOT_REACHED


def _format_level(level: Fields) -> tuple[str, ...]:
    figures = _get_figures(level)
    iops, state = get_number(figures, "iops"), level.read_subtable("opwatch").read_text("state")
    return (
        level.read_text("label"),
        units.format_capacity(level.read_count("used_bytes")),
        f"{100 * (get_number(level, 'of_used_ratio') or 0):.2f} %",
        f"{100 * (get_number(level, 'of_whole_ratio') or 0):.2f} %",
        _format_waf(figures),
        "-" if iops is None else f"{iops:.0f}",
        units.format_ns(_get_latency(figures, "p99")),
        _format_pts_verdict(level),
        _VERDICTS.get(state, state),
    )


def _format_waf(figures: Fields) -> str:
    waf, error = get_number(figures, "waf"), get_number(figures, "waf_error")
    if waf is None:
        return "-"
    return f"{waf:.3f}" if not error else units.format_with_error(waf, error)


def _get_latency(figures: Fields, percentile: str) -> float | None:
    """Return a percentile from the trace, or else from fio."""
    for source in ("latency_by_trace", "latency_by_fio"):
        value = get_number(figures.read_subtable(source), percentile)
        if value is not None:
            return value
    return None


def _format_spread(level: Fields) -> tuple[str, ...]:
    figures = _get_figures(level)
    uneven, worst = get_number(figures, "iops_cv"), get_number(figures, "iops_worst_second")
    celsius = get_number(figures, "temperature_c")
    error = (
        None
        if get_number(figures, "iops") is None
        else get_number(level.read_subtable("opwatch"), "iops_error_ratio")
    )
    return (
        level.read_text("label"),
        "-" if error is None else f"{100 * error:.2g} %" if error >= 1e-4 else "<0.01 %",
        "-" if uneven is None else f"{100 * uneven:.2g} %",
        "-" if worst is None else f"{worst:.0f}",
        *(units.format_ns(_get_latency(figures, name)) for name in ("p50", "p99.9", "p99.99", "p99.999")),
        units.format_ns(get_number(figures, "cpu_ns_per_io")),
        "-" if celsius is None else f"{celsius:.0f}",
    )


def _format_pts_verdict(level: Fields) -> str:
    if level.table.get("pts") is None:
        return "-"
    return "pass" if level.read_subtable("pts").read_flag("is_steady") else "no"


def _format_host_bound(levels: Sequence[Fields]) -> Iterator[str]:
    """Yield a warning for levels limited by the host instead of the drive."""
    ratios = [
        (level.read_text("label"), get_number(_get_figures(level), "load_cpu_ratio")) for level in levels
    ]
    bound = [label for label, ratio in ratios if ratio is not None and ratio >= HOST_BOUND]
    if bound:
        yield from wrap_text(
            f"{', '.join(bound)}: fio's busiest thread used at least {100 * HOST_BOUND:.0f} % of a CPU: "
            "this host is the limit there, and the drive may be capable of more IOPS"
        )


def _format_files(level: Fields) -> Iterator[str]:
    """Yield the files of a level on a filesystem, and the range of its over-provisioning."""
    if level.table.get("files") is None:
        return
    files = level.read_subtable("files")
    ballast = files.read_count("ballast_bytes")
    least, most = get_number(level, "of_used_ratio"), get_number(files, "most_of_used_ratio")
    if least is None or most is None:
        raise files.make_error("most_of_used_ratio is missing")
    beside = f" beside {units.format_capacity(ballast)} of ballast" if ballast else ""
    least_used, most_used = files.read_count("least_used_bytes"), level.read_count("used_bytes")
    yield from wrap_text(
        f"{level.read_text('label')}: a file of "
        f"{units.format_capacity(files.read_count('load_bytes'))}{beside}; "
        f"{units.format_capacity(least_used)} to {units.format_capacity(most_used)} of the drive "
        "are in use: (C-U)/U is "
        f"{100 * least:.2f} to {100 * most:.2f} %"
    )


def _format_reasons(level: Fields) -> Iterator[str]:
    label, verdict = level.read_text("label"), level.read_subtable("opwatch")
    if verdict.table.get("reason") is not None:
        yield from wrap_text(f"{label}, {verdict.read_text('state')}: {verdict.read_text('reason')}")
    if _has_only_waf(level):
        yield from wrap_text(f"{label}: only its WAF is proven, which host noise does not affect")
    missing = level.read_subtable("figures").read_subtable("missing")
    if get_number(level.read_subtable("figures"), "waf") is None and "waf" in missing.table:
        yield from wrap_text(f"{label}, no WAF: {missing.read_text('waf')}")


def _format_band(level: Fields) -> tuple[str, ...]:
    band = level.read_optional("band", level.read_subtable)
    modelled = [None if band is None else get_number(band, key) for key in ("greedy", "fifo", "two_choices")]
    years = get_number(level, "years")
    return (
        level.read_text("label"),
        _format_waf(_get_figures(level)),
        *(_format_waf_model(value) for value in (get_number(level, "predicted_waf"), *modelled)),
        _format_life(years),
    )


def _format_waf_model(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _format_life(years: float | None) -> str:
    """Return years as text, or days if it is less than a year."""
    if years is None:
        return "-"
    return f"{years:.1f} y" if abs(years) >= 1 else f"{365.25 * years:.0f} d"


def _format_fit(sweep: Fields, levels: Sequence[Fields]) -> Iterator[str]:
    if sweep.table.get("fit") is None:
        if sweep.table.get("is_uniform") is False:
            what = (
                "the bytes in use are not written"
                if sweep.read_text("method") == "fill"
                else "this workload does not write"
            )
            why = f"{what} uniformly, so no model here can derive the spare area from its WAF"
        elif all(get_number(_get_figures(level), "waf") is None for level in levels):
            is_hidden = any(get_number(level.read_subtable("figures"), "waf") is not None for level in levels)
            lacking = "no level is steady" if is_hidden else "no WAF was measured"
            why = f"{lacking}, so no spare area can be fitted"
        else:
            why = "no level amplifies, so no spare area can be fitted"
        yield from wrap_text(why)
        return
    fit = sweep.read_subtable("fit")
    spare, rms = get_number(fit, "spare_ratio"), get_number(fit, "rms_ratio")
    if spare is None:
        raise fit.make_error("spare_ratio is missing")
    classes = " or ".join(fit.read_texts("alike")) or fit.read_text("collector")
    quality = "from one level, which any collector fits" if rms is None else f"off by {100 * rms:.2g} % (rms)"
    yield from wrap_text(
        f"behaves like {100 * spare:.1f} % of spare area, (T-U)/U, at level "
        f"{fit.read_text('level')}, {classes} "
        f"class; the fit is {quality}"
    )


def _format_step(step: Fields) -> tuple[str, ...]:
    years = get_number(step, "years")
    return (
        step.read_text("begin"),
        step.read_text("end"),
        _format_change(get_number(step, "iops_ratio"), 1),
        _format_percent(get_number(step, "iops_per_percent")),
        _format_change(get_number(step, "waf_ratio"), 1),
        _format_percent(get_number(step, "waf_per_percent"), falls=True),
        "-" if years is None else f"+{_format_life(years)}" if years >= 0 else _format_life(years),
    )


def _format_change(ratio: float | None, base: float) -> str:
    return "-" if ratio is None else f"{100 * (ratio - base):+.1f} %"


def _format_percent(share: float | None, *, falls: bool = False) -> str:
    return "-" if share is None else f"{-100 * share if falls else 100 * share:+.2f} %"
