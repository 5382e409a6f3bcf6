"""The report of an SNIA test as text, built from the JSON document, so new and stored tests look the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from opwatch import units
from opwatch.fields import Fields
from opwatch.foreign import require_table
from opwatch.sinks.plain.cells import align_columns, get_number
from opwatch.sinks.wrapping import wrap_text

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
    test = Fields(require_table(document, "the test"), "the test")
    if test.table.get("type") != "sweep-test":
        raise test.make_error("type is not sweep-test: it was not written by opwatch sweep run --test")
    parts = _get_tables(test, "parts")
    yield from wrap_text(
        f"{test.read_text('specification')}, {test.read_text('test')} ({test.read_text('class')})"
    )
    deviations = test.read_texts("deviations")
    if deviations:
        yield "NOT CONFORMING to the specification:"
        for deviation in deviations:
            yield from wrap_text(deviation, "  - ")
    yield from _format_heading(test.read_subtable("header"))
    for part in parts:
        yield ""
        yield from _format_part(part)
    if not test.read_flag("is_ended"):
        yield from wrap_text("the test is not complete: some parts are missing")
    yield from wrap_text(f"test {test.read_text('sweep')}")


def _get_tables(fields: Fields, key: str) -> list[Fields]:
    return [Fields(require_table(row, f"{fields.where}: {key}"), key) for row in fields.read_list(key)]


def _format_heading(header: Fields) -> Iterator[str]:
    for name, key in _HEADER:
        yield from wrap_text(header.read_optional(key, header.read_text) or "unknown", f"  {name:<14} ")
    used = header.read_count("active_range_bytes")
    share = 100 * (get_number(header, "active_range_ratio") or 0.0)
    yield from wrap_text(
        f"{used} bytes, {share:g} % of {header.read_count('capacity_bytes')}", "  active range   "
    )
    depth, threads = header.read_count("outstanding_ios_per_thread"), header.read_count("threads")
    streams = header.read_count("threads_in_order")
    yield from wrap_text(
        f"{depth} per thread, {threads} threads; {streams} for sequential I/O", "  outstanding    "
    )
    for line in header.read_texts("preconditioning"):
        yield from wrap_text(line, "  precondition   ")


def _format_part(part: Fields) -> Iterator[str]:
    yield from wrap_text(f"{part.read_text('name')}: {part.read_text('title')}")
    yield from _format_verdict(part)
    figures = _get_tables(part, "figures")
    if len(figures) > 1:
        yield from _format_matrix(part, figures)
    samples = _get_tables(part, "samples")
    rounds = [sample for sample in samples if sample.read_text("stage") == "round"]
    if len(figures) <= 1 and rounds:
        yield from _format_series("rounds", rounds)
    stages = _get_tables(part, "stages")
    if stages:
        yield from align_columns(("stage", "loads", *_SERIES[2:]), [_format_stage(stage) for stage in stages])
    if part.read_text("variable") == "MB/s" and not rounds:
        for stage in stages:
            name = stage.read_text("name")
            yield from _format_series(
                name, [sample for sample in samples if sample.read_text("stage") == name]
            )
        yield from _format_recovery(part)


def _format_verdict(part: Fields) -> Iterator[str]:
    ended = part.read_text("ended_by")
    if part.table.get("pts") is None:
        yield from wrap_text(f"no verdict: {part.read_text('pts_reason')}; ended by: {ended}")
        return
    verdict = part.read_subtable("pts")
    first, last = (verdict.check_count(value, "window") for value in verdict.read_list("window"))
    if verdict.read_flag("is_steady"):
        text = f"PTS steady state in rounds {first} to {last}"
    else:
        text = f"PTS steady state NOT REACHED; the figures are from rounds {first} to {last}"
    yield from wrap_text(f"{text}; {verdict.read_count('rounds')} rounds done, ended by: {ended}")
    rows = []
    for fit in _get_tables(verdict, "variables"):
        average = get_number(fit, "average") or 0.0
        rows.append(
            (
                fit.read_text("variable").partition(", ")[2],
                f"{average:.5g}",
                _format_excursion(fit, "data_excursion"),
                _format_excursion(fit, "slope_excursion"),
                fit.read_text("least_squares_formula"),
            )
        )
    yield from align_columns((part.read_text("variable"), "average", "spread", "slope", "fit"), rows)


def _format_excursion(fit: Fields, key: str) -> str:
    """Return the measured and the allowed value in percent of the average."""
    average = get_number(fit, "average") or 1.0
    measured, allowed = (get_number(fit, f"{which}_{key}") or 0.0 for which in ("measured", "allowed"))
    return f"{100 * measured / average:.3g}/{100 * allowed / average:.3g} %"


def _format_matrix(part: Fields, figures: Sequence[Fields]) -> Iterator[str]:
    """Yield tables of block sizes by read/write mix."""
    blocks = list(dict.fromkeys(one.read_count("block_bytes") for one in figures))
    mixes = [mix for mix in _MIXES if any(one.read_count("read_percent") == mix for one in figures)]
    by_point = {(one.read_count("block_bytes"), one.read_count("read_percent")): one for one in figures}
    wanted = [("IOPS", "iops"), ("MB/s", "megabytes_per_s")]
    if part.read_text("variable") == "mean latency":
        wanted = [("mean", "mean_ns"), ("99.999 %", "five_nines_ns"), ("maximum", "max_ns")]
    for name, key in wanted:
        header = (f"{name}, R/W", *(f"{mix}/{100 - mix}" for mix in mixes))
        rows = [
            (_format_size(block), *(_format_cell(by_point.get((block, mix)), key) for mix in mixes))
            for block in blocks
        ]
        yield ""
        yield from align_columns(header, rows)


def _format_cell(figures: Fields | None, key: str) -> str:
    value = get_number(figures, key) if figures else None
    if value is None:
        return "-"
    return (
        units.format_ns(value) if key.endswith("_ns") else f"{value:.4g}" if value < 1e4 else f"{value:.0f}"
    )


def _format_size(n_bytes: int) -> str:
    return f"{n_bytes >> 10} KiB" if n_bytes >= 1 << 10 else f"{n_bytes} B"


def _format_series(name: str, samples: Sequence[Fields]) -> Iterator[str]:
    """Yield evenly spaced samples, and the last one."""
    step = max(-(-len(samples) // _MAX_ROWS), 1)
    shown = [*samples[:-1:step], samples[-1]]
    more = f", {len(shown)} of {len(samples)}" if len(shown) < len(samples) else ""
    yield ""
    yield f"{name}{more}:"
    yield from align_columns(_SERIES, [_format_sample(sample) for sample in shown])


def _format_sample(sample: Fields) -> tuple[str, ...]:
    return (
        f"{get_number(sample, 'begin_s') or 0.0:.1f} s",
        units.format_capacity(sample.read_count("written_bytes")),
        *(
            _format_cell(sample, key)
            for key in ("iops", "megabytes_per_s", "mean_ns", "five_nines_ns", "max_ns")
        ),
    )


def _format_stage(stage: Fields) -> tuple[str, ...]:
    return (
        stage.read_text("name"),
        str(stage.read_count("loads")),
        *(
            _format_cell(stage, key)
            for key in ("iops", "megabytes_per_s", "mean_ns", "five_nines_ns", "max_ns")
        ),
    )


def _format_recovery(part: Fields) -> Iterator[str]:
    seconds = get_number(part, "recovery_s")
    if seconds is None:
        yield from wrap_text("the last section never reached 90 % of the rate at the end of the first")
    else:
        yield from wrap_text(
            f"reached 90 % of the rate at the end of the first section after {seconds:.1f} s"
        )
