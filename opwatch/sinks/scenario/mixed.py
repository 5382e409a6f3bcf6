"""The section of mixed I/O: a line per load and configuration, followed by the results of each member."""

from __future__ import annotations

from collections.abc import Iterator

from opwatch import units
from opwatch.fields import Fields
from opwatch.sinks.plain.cells import align_columns, get_number
from opwatch.sinks.wrapping import wrap_text

_RATES = ("load", "configuration", "IOPS", "MB/s", "mean", "CPU")
_MEMBERS = ("load", "member", "reads/s", "writes/s", "MB/s", "mean", "busy", "per I/O")


def format_mixed(document: Fields) -> Iterator[str]:
    """Yield all configurations side by side, then the members of each."""
    configurations = document.read_subtables("configurations", "a configuration")
    for one in configurations:
        size = units.format_capacity(one.read_count("file_bytes"))
        yield from wrap_text(
            f"{one.read_text('name')}: a file of {size} in {one.read_text('folder')}, on "
            f"{one.read_text('device')} "
            f"({one.read_text('kind')})"
        )
    yield ""
    names = list(dict.fromkeys(rate.read_text("load") for one in configurations for rate in _get_rates(one)))
    rows = [
        (name, one.read_text("name"), *_format_rate(rate))
        for name in names
        for one in configurations
        for rate in _get_rates(one)
        if rate.read_text("load") == name
    ]
    yield from align_columns(_RATES, rows)
    for one in configurations:
        yield ""
        yield f"members of {one.read_text('name')}, by the kernel's count:"
        yield from align_columns(_MEMBERS, [row for rate in _get_rates(one) for row in _format_members(rate)])
    yield from wrap_text(
        "mean: latency of the load's I/Os as measured by fio, and of a member's requests; CPU: fio's "
        "share of one CPU; busy: share of the time with requests; per I/O: the member's requests per "
        "I/O of the load"
    )


def _get_rates(one: Fields) -> list[Fields]:
    return one.read_subtables("rates", "a rate")


def _format_rate(rate: Fields) -> tuple[str, ...]:
    return (
        f"{rate.read_amount('iops'):.0f}",
        units.format_megabytes(rate.read_amount("bytes_per_s")),
        units.format_ns(get_number(rate, "mean_ns")),
        f"{rate.read_amount('cpu_ratio'):.2f}",
    )


def _format_members(rate: Fields) -> Iterator[tuple[str, ...]]:
    seconds, ios = rate.read_amount("seconds"), rate.read_amount("iops") * rate.read_amount("seconds")
    for member in rate.read_subtables("members", "a member"):
        reads, writes = get_number(member, "reads"), get_number(member, "writes")
        if reads is None or writes is None:
            yield rate.read_text("load"), member.read_text("name"), "-", "-", "-", "-", "-", "-"
            continue
        moved = (get_number(member, "read_bytes") or 0.0) + (get_number(member, "write_bytes") or 0.0)
        yield (
            rate.read_text("load"),
            member.read_text("name"),
            f"{reads / seconds:.0f}",
            f"{writes / seconds:.0f}",
            units.format_megabytes(moved / seconds),
            units.format_ns(get_number(member, "mean_ns")),
            f"{(get_number(member, 'active_ms') or 0.0) / 10 / seconds:.0f} %",
            f"{(reads + writes) / ios:.2f}" if ios else "-",
        )
