"""The section of mixed I/O: a line per load and configuration, followed by the results of each member."""

from __future__ import annotations

from collections.abc import Iterator

from opwatch import units
from opwatch.fields import Fields
from opwatch.sinks.folding import folded
from opwatch.sinks.plain.cells import columns_of, number

_RATES = ("load", "configuration", "IOPS", "MB/s", "mean", "CPU")
_MEMBERS = ("load", "member", "reads/s", "writes/s", "MB/s", "mean", "busy", "of I/Os")


def mixed_lines(document: Fields) -> Iterator[str]:
    """Yield all configurations side by side, then the members of each."""
    configurations = document.tables("configurations", "a configuration")
    for one in configurations:
        size = units.capacity(one.count("file_bytes"))
        yield from folded(
            f"{one.text('name')}: a file of {size} in {one.text('folder')}, on {one.text('device')} "
            f"({one.text('kind')})"
        )
    yield ""
    names = list(dict.fromkeys(rate.text("load") for one in configurations for rate in _rates(one)))
    rows = [
        (name, one.text("name"), *_cells(rate))
        for name in names
        for one in configurations
        for rate in _rates(one)
        if rate.text("load") == name
    ]
    yield from columns_of(_RATES, rows)
    for one in configurations:
        yield ""
        yield f"members of {one.text('name')}, by the kernel's count:"
        yield from columns_of(_MEMBERS, [row for rate in _rates(one) for row in _members(rate)])
    yield from folded(
        "mean: of an I/O of the load, as fio measured it, and of a request of a member; CPU: fio's, of one "
        "processor; busy: the time that it had work; of I/Os: requests of the member for each I/O of the load"
    )


def _rates(one: Fields) -> list[Fields]:
    return one.tables("rates", "a rate")


def _cells(rate: Fields) -> tuple[str, ...]:
    return (
        f"{rate.amount('iops'):.0f}",
        units.megabytes(rate.amount("bytes_per_s")),
        units.duration(number(rate, "mean_ns")),
        f"{rate.amount('cpu_ratio'):.2f}",
    )


def _members(rate: Fields) -> Iterator[tuple[str, ...]]:
    seconds, ios = rate.amount("seconds"), rate.amount("iops") * rate.amount("seconds")
    for member in rate.tables("members", "a member"):
        reads, writes = number(member, "reads"), number(member, "writes")
        if reads is None or writes is None:
            yield rate.text("load"), member.text("name"), "-", "-", "-", "-", "-", "-"
            continue
        moved = (number(member, "read_bytes") or 0.0) + (number(member, "write_bytes") or 0.0)
        yield (
            rate.text("load"),
            member.text("name"),
            f"{reads / seconds:.0f}",
            f"{writes / seconds:.0f}",
            units.megabytes(moved / seconds),
            units.duration(number(member, "mean_ns")),
            f"{(number(member, 'active_ms') or 0.0) / 10 / seconds:.0f} %",
            f"{(reads + writes) / ios:.2f}" if ios else "-",
        )
