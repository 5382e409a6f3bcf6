"""The section of random reads and writes on a whole drive and on a part of it: rates and their ratios."""

from __future__ import annotations

from collections.abc import Iterator

from opwatch import units
from opwatch.fields import Fields
from opwatch.sinks.plain.cells import align_columns, get_number
from opwatch.sinks.wrapping import wrap_text

_RATES = ("run", "left free", "MB/s", "IOPS", "mean ms", "CPU %")
_GAINS = ("ratio", "here", "predicted", "published")


def format_iometer(document: Fields) -> Iterator[str]:
    """Yield the measured rates, the published rates, and the ratios of both."""
    rates = document.read_subtables("rates", "a rate")
    gains = document.read_subtables("gains", "a ratio")
    published = document.read_subtable("published")
    yield from align_columns(_RATES, sorted(_format_rate(rate) for rate in rates))
    for reason in _collect_reasons(rates):
        yield from wrap_text(reason)
    if any(get_number(rate, "cpu_ratio") is not None for rate in rates):
        yield from wrap_text("CPU: fio's share of one CPU, including generating random data")
    yield ""
    levels = list(dict.fromkeys(rate.read_text("level") for rate in rates))
    rows = [
        (f"{op}, published", level, *(f"{value:g}" for value in row))
        for op in published.table
        for level, row in zip(levels, published.read_amount_lists(op, len(_RATES) - 2), strict=False)
    ]
    if rows:
        yield from align_columns(_RATES, rows)
        yield ""
    yield from align_columns(_GAINS, [_format_gain(gain, published) for gain in gains])


def _format_name(row: Fields) -> str:
    return f"{row.read_text('op')}, {'full' if row.read_flag('is_full') else 'empty'}"


def _format_rate(rate: Fields) -> tuple[str, ...]:
    speed, iops, mean, cpu = (
        get_number(rate, key) for key in ("bytes_per_s", "iops", "mean_ns", "cpu_ratio")
    )
    return (
        _format_name(rate),
        rate.read_text("level"),
        "-" if speed is None else units.format_megabytes(speed),
        "-" if iops is None else f"{iops:.0f}",
        "-" if mean is None else f"{mean / 1e6:.3f}",
        "-" if cpu is None else f"{100 * cpu:.3g}",
    )


def _collect_reasons(rates: list[Fields]) -> list[str]:
    """Return the reasons for missing figures, each once."""
    reasons: dict[str, None] = {}
    for rate in rates:
        missing = rate.read_subtable("missing").table
        for name, why in missing.items():
            if name == "cpu_ratio" and why == missing.get("iops"):
                continue
            head = "no CPU" if name == "cpu_ratio" else f"{_format_name(rate)}, {rate.read_text('level')}"
            reasons[f"{head}: {why}"] = None
    return list(reasons)


def _format_gain(gain: Fields, published: Fields) -> tuple[str, ...]:
    here, foretold = get_number(gain, "gain"), get_number(gain, "foretold")
    error = get_number(gain, "error") or 0.0
    op = gain.read_text("op")
    rows = published.read_amount_lists(op, len(_RATES) - 2) if op in published.table else []
    there = rows[-1][1] / rows[0][1] if len(rows) > 1 and rows[0][1] else None
    return (
        _format_name(gain),
        "-" if here is None else f"x {units.format_with_error(here, error)}" if error else f"x {here:.3f}",
        "-" if foretold is None else f"x {foretold:.2f}",
        "-" if there is None else f"x {there:.3f}",
    )
