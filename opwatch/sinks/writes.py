"""The rows of written bytes as a table and as a JSON document."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from opwatch import SCHEMA, units
from opwatch.codec import encode
from opwatch.sinks.plain.cells import align_columns
from opwatch.sinks.terminal import open_stdout
from opwatch.sinks.wrapping import wrap_text
from opwatch.writes.advice import advise_writes
from opwatch.writes.application import ApplicationWrites
from opwatch.writes.groups import GroupWrites
from opwatch.writes.processes import ProcessTable
from opwatch.writes.series import WritesOutcome, WritesPart
from opwatch.writes.waterfall import Waterfall, WaterfallRow, WriteStep
from opwatch.writes.witnesses import Witness

# Bytes of a page that a store makes writable.
_PAGE = 4096
# Columns of the table that leave enough for remarks beside it.
_WIDEST_TABLE = 52
# Titles of the tables of control groups and processes.
GROUP_HEAD = ("control group", "data", "journal, metadata")
PROCESS_HEAD = ("process", "pid", "to page cache", "direct")


def _format_signed(size: int) -> str:
    return f"{'-' if size < 0 else ''}{units.format_capacity(abs(size))}"


def _format_witness(witness: Witness) -> str:
    if witness.agrees:
        return f"{witness.source} agrees to the byte"
    return f"{witness.source}: {units.format_capacity(witness.reported_bytes)}"


def _format_application(application: ApplicationWrites) -> Iterator[str]:
    """Yield the parts of what programs wrote, and a bound of what they stored to mapped files."""
    yield (
        f"buffered {units.format_capacity(application.buffered_bytes)}, "
        f"direct {units.format_capacity(application.direct_bytes)}"
    )
    pages = application.mapped_pages
    if pages is None:
        yield "stores to mapped files are not counted"
    elif pages:
        bound = units.format_capacity(pages * _PAGE)
        yield f"mmap: {pages} pages became writable, up to {bound} more"


def _format_error(row: WaterfallRow, *, synced: bool) -> str | None:
    if not row.error:
        return None
    error = units.format_capacity(row.error)
    if row.kind is WriteStep.PAGE_CACHE:
        return None if synced else f"± {error} of dirty memory; --sync avoids this"
    return f"± {error}"


def _format_row(waterfall: Waterfall, row: WaterfallRow, *, synced: bool) -> Sequence[str]:
    """Return the cells of a row: name, bytes, ratio and remark."""
    ratio = waterfall.compute_ratio(row)
    error = _format_error(row, synced=synced)
    remarks = [text for text in (error, row.reason) if text]
    if row.application:
        remarks += _format_application(row.application)
    if row.witness:
        remarks.append(_format_witness(row.witness))
    size = "-" if row.added is None else _format_signed(row.added)
    return row.name, size, "-" if ratio is None else f"{ratio:.2f}", "; ".join(remarks)


def list_row_cells(outcome: WritesOutcome) -> list[Sequence[str]]:
    """Return the rows of the table: name, bytes, ratio and remark."""
    return [_format_row(outcome.waterfall, row, synced=outcome.synced) for row in outcome.waterfall.rows]


def list_group_cells(groups: Sequence[GroupWrites]) -> list[Sequence[str]]:
    """Return the rows of the table of control groups."""
    return [
        (
            units.replace_unprintable(group.name),
            units.format_capacity(group.data_bytes),
            units.format_capacity(group.shared_bytes),
        )
        for group in groups
    ]


def list_process_cells(table: ProcessTable) -> list[Sequence[str]]:
    """Return the rows of the table of processes."""
    return [
        (
            units.replace_unprintable(one.name),
            "-" if one.pid is None else str(one.pid),
            "-" if one.buffered_bytes is None else units.format_capacity(one.buffered_bytes),
            units.format_capacity(one.direct_bytes),
        )
        for one in table.processes
    ]


def format_shared_bytes(table: ProcessTable) -> str:
    """Return a sentence on the bytes without a process."""
    shared = units.format_capacity(table.shared_bytes)
    return f"written by the kernel for all of them (write-back, journal, metadata): {shared}"


def _format_heading(outcome: WritesOutcome) -> str:
    stack, seconds = outcome.waterfall.stack, f"{outcome.waterfall.seconds:.1f} s"
    place = f" ({stack.filesystem} on {', '.join(stack.tops)})" if stack.filesystem else ""
    at = ""
    if outcome.part is WritesPart.TOTAL:
        at = "all intervals, "
    elif outcome.part is WritesPart.INTERVAL and outcome.at:
        at = f"{outcome.at.astimezone():%H:%M:%S} "
    return f"{at}{stack.subject}{place}: what was written in {seconds}"


def _append_remark(line: str, remark: str) -> Iterator[str]:
    """Yield a line of the table with its remark beside it, or below it if the table is wide."""
    if not remark:
        yield line.rstrip()
    elif len(line) <= _WIDEST_TABLE:
        yield from wrap_text(remark, f"{line}  ")
    else:
        yield line.rstrip()
        yield from wrap_text(remark, "    ")


def format_writes(outcome: WritesOutcome) -> Iterator[str]:
    """Yield the lines of a measurement."""
    waterfall = outcome.waterfall
    yield from wrap_text(_format_heading(outcome))
    if waterfall.base is None:
        yield "nothing was written in this time"
    yield ""
    ratio = f"x of {waterfall.base.name}" if waterfall.base else "ratio"
    rows = list_row_cells(outcome)
    table = align_columns(("", "bytes", ratio), [row[:3] for row in rows])
    remarks = ["", *(row[3] for row in rows)]
    for line, remark in zip(table, remarks, strict=True):
        yield from _append_remark(line, remark)
    if outcome.groups is not None:
        yield ""
        yield from align_columns(GROUP_HEAD, list_group_cells(outcome.groups))
    if outcome.processes is not None:
        yield ""
        yield from align_columns(PROCESS_HEAD, list_process_cells(outcome.processes))
        yield from wrap_text(format_shared_bytes(outcome.processes))
    advised = () if outcome.part is WritesPart.INTERVAL else advise_writes(waterfall)
    advice = [f"{one.statement}: {one.action}" for one in advised]
    for text in (*waterfall.findings, *outcome.notes, *advice):
        yield ""
        yield from wrap_text(text)


def build_writes_document(outcome: WritesOutcome) -> dict[str, Any]:
    """Return the measurement as a JSON document."""
    waterfall = outcome.waterfall
    stack = waterfall.stack
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "type": "writes",
        "subject": stack.subject,
        "filesystem": stack.filesystem,
        "devices": list(stack.tops),
        "part": outcome.part.value,
        "time": outcome.at.isoformat() if outcome.at else None,
        "interval_s": waterfall.seconds,
        "synced": outcome.synced,
        "base": waterfall.base.kind.value if waterfall.base else None,
        "rows": [_build_row(waterfall, row) for row in waterfall.rows],
        "findings": list(waterfall.findings),
        "notes": list(outcome.notes),
        "advice": encode(tuple(advise_writes(waterfall))),
    }
    if outcome.groups is not None:
        document["groups"] = [
            {"name": group.name, "data_bytes": group.data_bytes, "shared_bytes": group.shared_bytes}
            for group in outcome.groups
        ]
    if outcome.processes is not None:
        document["processes"] = [asdict(one) for one in outcome.processes.processes]
        document["shared_bytes"] = outcome.processes.shared_bytes
    return document


def _build_row(waterfall: Waterfall, row: WaterfallRow) -> dict[str, Any]:
    witness, application = row.witness, row.application
    parts = application and {
        "buffered_bytes": application.buffered_bytes,
        "direct_bytes": application.direct_bytes,
        "mapped_pages": application.mapped_pages,
    }
    return {
        **(parts or {}),
        "kind": row.kind.value,
        "name": row.name,
        "bytes": row.added,
        "total_bytes": row.total,
        "ratio": waterfall.compute_ratio(row),
        "error_bytes": row.error,
        "reason": row.reason,
        "witness": witness
        and {"source": witness.source, "bytes": witness.reported_bytes, "agrees": witness.agrees},
    }


class WritesPrinter:
    """Prints outcomes as they come: tables, or JSON documents."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._separator: Sequence[str] = ()

    def print_outcome(self, outcome: WritesOutcome) -> None:
        if self._as_json:
            # Documents of several intervals are JSON lines.
            indent = 2 if outcome.part is WritesPart.WHOLE else None
            open_stdout().write_json(build_writes_document(outcome), indent=indent)
            return
        open_stdout().write_lines([*self._separator, *format_writes(outcome)])
        self._separator = ("",)
