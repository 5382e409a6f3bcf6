"""The report of an SNIA test as text, built from the JSON document, so new and stored tests look the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from opwatch import units
from opwatch.codec import decode
from opwatch.errors import BadInput
from opwatch.foreign import require_table
from opwatch.pts.loads import ROUND
from opwatch.pts.results import PtsFigures
from opwatch.sinks.plain.cells import align_columns
from opwatch.sinks.sweep.pts_document import (
    TYPE,
    PtsDocument,
    PtsHeaderDocument,
    PtsPartDocument,
    PtsSampleDocument,
)
from opwatch.sinks.wrapping import wrap_text
from opwatch.steady.pts import PtsFit

# Maximum samples shown per stage; the document has all of them.
_MAX_ROWS = 16
_MIXES = (100, 95, 65, 50, 35, 5, 0)
_SERIES = ("at", "written", "IOPS", "MB/s", "mean", "99.999 %", "max")
_HEADER = (
    ("test sponsor", "test_sponsor"),
    ("device", "device"),
    ("serial number", "serial"),
    ("firmware", "firmware"),
    ("interface", "interface"),
    ("platform", "platform"),
    ("software", "software_version"),
    ("purge", "purge_method"),
    ("data pattern", "data_pattern"),
    ("write cache", "write_cache"),
)


def format_pts(document: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of the report. Raise BadInput if the document is not an SNIA test."""
    where = "the test"
    if require_table(document, where).get("type") != TYPE:
        raise BadInput(f"{where}: type is not {TYPE}: it was not written by opwatch sweep run --test")
    test = decode(PtsDocument, document, where)
    yield from wrap_text(f"{test.specification}, {test.test} ({test.class_name})")
    if test.deviations:
        yield "NOT CONFORMING to the specification:"
        for deviation in test.deviations:
            yield from wrap_text(deviation, "  - ")
    yield from _format_heading(test.header)
    for part in test.parts:
        yield ""
        yield from _format_part(part)
    if not test.is_ended:
        yield from wrap_text("the test is not complete: some parts are missing")
    yield from wrap_text(f"test {test.sweep}")


def _format_heading(header: PtsHeaderDocument) -> Iterator[str]:
    for name, key in _HEADER:
        yield from wrap_text(getattr(header, key) or "unknown", f"  {name:<14} ")
    share = 100 * header.active_range_ratio
    yield from wrap_text(
        f"{header.active_range_bytes} bytes, {share:g} % of {header.capacity_bytes}", "  active range   "
    )
    yield from wrap_text(
        f"{header.outstanding_ios_per_thread} per thread, {header.threads} threads; "
        f"{header.threads_in_order} for sequential I/O",
        "  outstanding    ",
    )
    for line in header.preconditioning:
        yield from wrap_text(line, "  precondition   ")


def _format_part(part: PtsPartDocument) -> Iterator[str]:
    yield from wrap_text(f"{part.name}: {part.title}")
    yield from _format_verdict(part)
    if len(part.figures) > 1:
        yield from _format_matrix(part)
    rounds = [sample for sample in part.samples if sample.stage == ROUND]
    if len(part.figures) <= 1 and rounds:
        yield from _format_series("rounds", rounds)
    if part.stages:
        rows = [(stage.name, str(stage.loads), *_format_figures(stage)) for stage in part.stages]
        yield from align_columns(("stage", "loads", *_SERIES[2:]), rows)
    if part.variable == "MB/s" and not rounds:
        for stage in part.stages:
            yield from _format_series(
                stage.name, [sample for sample in part.samples if sample.stage == stage.name]
            )
        yield from _format_recovery(part.recovery_s)


def _format_verdict(part: PtsPartDocument) -> Iterator[str]:
    verdict = part.pts
    if verdict is None:
        yield from wrap_text(f"no verdict: {part.pts_reason}; ended by: {part.ended_by}")
        return
    first, last = verdict.window
    if verdict.is_steady:
        text = f"PTS steady state in rounds {first} to {last}"
    else:
        text = f"PTS steady state NOT REACHED; the figures are from rounds {first} to {last}"
    yield from wrap_text(f"{text}; {verdict.rounds} rounds done, ended by: {part.ended_by}")
    rows = [
        (
            fit.variable.partition(", ")[2],
            units.format_plain(fit.average, 5),
            _format_excursion(fit, fit.measured_data_excursion, fit.allowed_data_excursion),
            _format_excursion(fit, fit.measured_slope_excursion, fit.allowed_slope_excursion),
            fit.least_squares_formula,
        )
        for fit in verdict.variables
    ]
    yield from align_columns((part.variable, "average", "spread", "slope", "fit"), rows)


def _format_excursion(fit: PtsFit, measured: float, allowed: float) -> str:
    """Return the measured and the allowed value in percent of the average."""
    average = fit.average or 1.0
    shares = (units.format_plain(100 * value / average, 3) for value in (measured, allowed))
    return f"{'/'.join(shares)} %"


def _format_matrix(part: PtsPartDocument) -> Iterator[str]:
    """Yield tables of block sizes by read/write mix."""
    by_point = {(one.block_bytes, one.read_percent): one for one in part.figures}
    blocks = list(dict.fromkeys(block for block, _ in by_point))
    mixes = [mix for mix in _MIXES if any(percent == mix for _, percent in by_point)]
    wanted = [("IOPS", "iops"), ("MB/s", "megabytes_per_s")]
    if part.variable == "mean latency":
        wanted = [("mean", "mean_ns"), ("99.999 %", "five_nines_ns"), ("maximum", "max_ns")]
    for name, key in wanted:
        header = (f"{name}, R/W", *(f"{mix}/{100 - mix}" for mix in mixes))
        rows = [
            (_format_size(block), *(_format_cell(by_point.get((block, mix)), key) for mix in mixes))
            for block in blocks
        ]
        yield ""
        yield from align_columns(header, rows)


def _format_cell(figures: PtsFigures | PtsSampleDocument | None, key: str) -> str:
    value: float | None = getattr(figures, key) if figures else None
    if value is None:
        return "-"
    return (
        units.format_ns(value) if key.endswith("_ns") else f"{value:.4g}" if value < 1e4 else f"{value:.0f}"
    )


def _format_size(n_bytes: int) -> str:
    return f"{n_bytes >> 10} KiB" if n_bytes >= 1 << 10 else f"{n_bytes} B"


def _format_series(name: str, samples: Sequence[PtsSampleDocument]) -> Iterator[str]:
    """Yield evenly spaced samples, and the last one."""
    step = max(-(-len(samples) // _MAX_ROWS), 1)
    shown = [*samples[:-1:step], *samples[-1:]]
    more = f", {len(shown)} of {len(samples)}" if len(shown) < len(samples) else ""
    yield ""
    yield f"{name}{more}:"
    rows = [
        (
            f"{sample.begin_s:.1f} s",
            units.format_capacity(sample.written_bytes),
            *_format_figures(sample),
        )
        for sample in shown
    ]
    yield from align_columns(_SERIES, rows)


def _format_figures(row: PtsFigures | PtsSampleDocument) -> list[str]:
    keys = ("iops", "megabytes_per_s", "mean_ns", "five_nines_ns", "max_ns")
    return [_format_cell(row, key) for key in keys]


def _format_recovery(seconds: float | None) -> Iterator[str]:
    if seconds is None:
        yield from wrap_text("the last section never reached 90 % of the rate at the end of the first")
    else:
        yield from wrap_text(
            f"reached 90 % of the rate at the end of the first section after {seconds:.1f} s"
        )
