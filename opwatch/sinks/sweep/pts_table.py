"""The report of an SNIA test as text, built from the JSON document, so new and stored tests look the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from opwatch import units
from opwatch.fields import Fields
from opwatch.foreign import table_of
from opwatch.sinks.folding import folded
from opwatch.sinks.plain.cells import columns_of, number

# Maximum samples shown per stage; the document has all of them.
_MOST_ROWS = 16
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


def pts_lines(document: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of the report. Raise BadInput if the document is not an SNIA test."""
    test = Fields(table_of(document, "the test"), "the test")
    if test.table.get("type") != "sweep-test":
        raise test.bad("type is not sweep-test: it was not written by opwatch sweep run --test")
    parts = _tables(test, "parts")
    yield from folded(f"{test.text('specification')}, {test.text('test')} ({test.text('class')})")
    deviations = test.texts("deviations")
    if deviations:
        yield "NOT CONFORMING to the specification:"
        for deviation in deviations:
            yield from folded(deviation, "  - ")
    yield from _heading(test.sub("header"))
    for part in parts:
        yield ""
        yield from _part(part)
    if not test.flag("is_ended"):
        yield from folded("it was not done to its end: not all parts are here")
    yield from folded(f"test {test.text('sweep')}")


def _tables(fields: Fields, key: str) -> list[Fields]:
    return [Fields(table_of(row, f"{fields.where}: {key}"), key) for row in fields.rows(key)]


def _heading(header: Fields) -> Iterator[str]:
    for name, key in _HEADER:
        yield from folded(header.optional(key, header.text) or "not known", f"  {name:<14} ")
    used = header.count("active_range_bytes")
    share = 100 * (number(header, "active_range_ratio") or 0.0)
    yield from folded(f"{used} bytes, {share:g} % of {header.count('capacity_bytes')}", "  active range   ")
    depth, threads = header.count("outstanding_ios_per_thread"), header.count("threads")
    streams = header.count("threads_in_order")
    yield from folded(f"{depth} from each of {threads} threads; {streams} in order", "  outstanding    ")
    for line in header.texts("preconditioning"):
        yield from folded(line, "  precondition   ")


def _part(part: Fields) -> Iterator[str]:
    yield from folded(f"{part.text('name')}: {part.text('title')}")
    yield from _verdict(part)
    figures = _tables(part, "figures")
    if len(figures) > 1:
        yield from _matrix(part, figures)
    samples = _tables(part, "samples")
    rounds = [sample for sample in samples if sample.text("stage") == "round"]
    if len(figures) <= 1 and rounds:
        yield from _series("rounds", rounds)
    stages = _tables(part, "stages")
    if stages:
        yield from columns_of(("stage", "loads", *_SERIES[2:]), [_stage(stage) for stage in stages])
    if part.text("variable") == "MB/s" and not rounds:
        for stage in stages:
            name = stage.text("name")
            yield from _series(name, [sample for sample in samples if sample.text("stage") == name])
        yield from _recovery(part)


def _verdict(part: Fields) -> Iterator[str]:
    ended = part.text("ended_by")
    if part.table.get("pts") is None:
        yield from folded(f"no verdict: {part.text('pts_reason')}; ended by: {ended}")
        return
    verdict = part.sub("pts")
    first, last = (verdict.count_of(value, "window") for value in verdict.rows("window"))
    if verdict.flag("is_steady"):
        text = f"PTS steady state in rounds {first} to {last}"
    else:
        text = f"PTS steady state NOT REACHED; what follows is of rounds {first} to {last}"
    yield from folded(f"{text}; {verdict.count('rounds')} rounds done, ended by: {ended}")
    rows = []
    for fit in _tables(verdict, "variables"):
        average = number(fit, "average") or 0.0
        rows.append(
            (
                fit.text("variable").partition(", ")[2],
                f"{average:.5g}",
                _of(fit, "data_excursion"),
                _of(fit, "slope_excursion"),
                fit.text("least_squares_formula"),
            )
        )
    yield from columns_of((part.text("variable"), "average", "spread", "slope", "fit"), rows)


def _of(fit: Fields, key: str) -> str:
    """Return the measured and the allowed value in percent of the average."""
    average = number(fit, "average") or 1.0
    measured, allowed = (number(fit, f"{which}_{key}") or 0.0 for which in ("measured", "allowed"))
    return f"{100 * measured / average:.3g}/{100 * allowed / average:.3g} %"


def _matrix(part: Fields, figures: Sequence[Fields]) -> Iterator[str]:
    """Yield tables of block sizes by read/write mix."""
    blocks = list(dict.fromkeys(one.count("block_bytes") for one in figures))
    mixes = [mix for mix in _MIXES if any(one.count("read_percent") == mix for one in figures)]
    by_point = {(one.count("block_bytes"), one.count("read_percent")): one for one in figures}
    wanted = [("IOPS", "iops"), ("MB/s", "megabytes_per_s")]
    if part.text("variable") == "mean latency":
        wanted = [("mean", "mean_ns"), ("99.999 %", "five_nines_ns"), ("maximum", "max_ns")]
    for name, key in wanted:
        header = (f"{name}, R/W", *(f"{mix}/{100 - mix}" for mix in mixes))
        rows = [
            (_size(block), *(_cell(by_point.get((block, mix)), key) for mix in mixes)) for block in blocks
        ]
        yield ""
        yield from columns_of(header, rows)


def _cell(figures: Fields | None, key: str) -> str:
    value = number(figures, key) if figures else None
    if value is None:
        return "-"
    return units.duration(value) if key.endswith("_ns") else f"{value:.4g}" if value < 1e4 else f"{value:.0f}"


def _size(n_bytes: int) -> str:
    return f"{n_bytes >> 10} KiB" if n_bytes >= 1 << 10 else f"{n_bytes} B"


def _series(name: str, samples: Sequence[Fields]) -> Iterator[str]:
    """Yield evenly spaced samples, and the last one."""
    step = max(-(-len(samples) // _MOST_ROWS), 1)
    shown = [*samples[:-1:step], samples[-1]]
    more = f", {len(shown)} of {len(samples)}" if len(shown) < len(samples) else ""
    yield ""
    yield f"{name}{more}:"
    yield from columns_of(_SERIES, [_sample(sample) for sample in shown])


def _sample(sample: Fields) -> tuple[str, ...]:
    return (
        f"{number(sample, 'begin_s') or 0.0:.1f} s",
        units.capacity(sample.count("written_bytes")),
        *(_cell(sample, key) for key in ("iops", "megabytes_per_s", "mean_ns", "five_nines_ns", "max_ns")),
    )


def _stage(stage: Fields) -> tuple[str, ...]:
    return (
        stage.text("name"),
        str(stage.count("loads")),
        *(_cell(stage, key) for key in ("iops", "megabytes_per_s", "mean_ns", "five_nines_ns", "max_ns")),
    )


def _recovery(part: Fields) -> Iterator[str]:
    seconds = number(part, "recovery_s")
    if seconds is None:
        yield from folded("the last stretch never had 90 % of the rate that the first one ended with")
    else:
        yield from folded(f"90 % of the rate that the first stretch ended with after {seconds:.1f} s")
