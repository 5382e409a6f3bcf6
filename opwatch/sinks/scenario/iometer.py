"""The section of random reads and writes on a whole drive and on a part of it: rates and their ratios."""

from __future__ import annotations

from collections.abc import Iterator

from opwatch import units
from opwatch.fields import Fields
from opwatch.sinks.folding import folded
from opwatch.sinks.plain.cells import columns_of, number

_RATES = ("run", "left free", "MB/s", "IOPS", "mean ms", "CPU %")
_GAINS = ("ratio", "here", "foretold", "published")


def iometer_lines(document: Fields) -> Iterator[str]:
    """Yield the measured rates, the published rates, and the ratios of both."""
    rates = document.tables("rates", "a rate")
    gains = document.tables("gains", "a ratio")
    published = document.sub("published")
    yield from columns_of(_RATES, sorted(_rate(rate) for rate in rates))
    for reason in _reasons(rates):
        yield from folded(reason)
    if any(number(rate, "cpu_ratio") is not None for rate in rates):
        yield from folded("CPU: what fio took of one processor, its random data included")
    yield ""
    levels = list(dict.fromkeys(rate.text("level") for rate in rates))
    rows = [
        (f"{op}, published", level, *(f"{value:g}" for value in row))
        for op in published.table
        for level, row in zip(levels, published.amounts(op, len(_RATES) - 2), strict=False)
    ]
    if rows:
        yield from columns_of(_RATES, rows)
        yield ""
    yield from columns_of(_GAINS, [_gain(gain, published) for gain in gains])


def _name(row: Fields) -> str:
    return f"{row.text('op')}, {'full' if row.flag('is_full') else 'empty'}"


def _rate(rate: Fields) -> tuple[str, ...]:
    speed, iops, mean, cpu = (number(rate, key) for key in ("bytes_per_s", "iops", "mean_ns", "cpu_ratio"))
    return (
        _name(rate),
        rate.text("level"),
        "-" if speed is None else units.megabytes(speed),
        "-" if iops is None else f"{iops:.0f}",
        "-" if mean is None else f"{mean / 1e6:.3f}",
        "-" if cpu is None else f"{100 * cpu:.3g}",
    )


def _reasons(rates: list[Fields]) -> list[str]:
    """Return the reasons for missing figures, each once."""
    reasons: dict[str, None] = {}
    for rate in rates:
        missing = rate.sub("missing").table
        for name, why in missing.items():
            if name == "cpu_ratio" and why == missing.get("iops"):
                continue
            head = "no CPU" if name == "cpu_ratio" else f"{_name(rate)}, {rate.text('level')}"
            reasons[f"{head}: {why}"] = None
    return list(reasons)


def _gain(gain: Fields, published: Fields) -> tuple[str, ...]:
    here, foretold = number(gain, "gain"), number(gain, "foretold")
    error = number(gain, "error") or 0.0
    op = gain.text("op")
    rows = published.amounts(op, len(_RATES) - 2) if op in published.table else []
    there = rows[-1][1] / rows[0][1] if len(rows) > 1 and rows[0][1] else None
    return (
        _name(gain),
        "-" if here is None else f"x {units.with_error(here, error)}" if error else f"x {here:.3f}",
        "-" if foretold is None else f"x {foretold:.2f}",
        "-" if there is None else f"x {there:.3f}",
    )
