"""Parts of a screen below the map: numbers of one interval, and messages."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from opwatch import units
from opwatch.counters.decode.smart_log import SmartLog
from opwatch.sinks.columns import (
    HEADER,
    MEGABYTES,
    P99,
    RATE,
    format_idle_row,
    format_row,
    format_wait_rows,
)
from opwatch.sinks.dashboard.compact_interval import CompactInterval
from opwatch.sinks.dashboard.history import DiskHistory, EventMark, WatchHistory
from opwatch.sinks.dashboard.rows import Row, measure_row, remove_control_characters
from opwatch.sinks.lines import format_discards, format_live, format_slow_requests, format_stall
from opwatch.sinks.tones import OP_TONES, Tone
from opwatch.trace.abi import OPS as EVERY_OP
from opwatch.trace.unavailable import TRUST

# Limits in percent of spare and wear beyond which a drive is outside its specification, and the saturated
# wear value.
_MIN_SPARE, _WORN, _SATURATED = 10, 100, 255
# Columns of a disk row without its name, and the longest name.
_RATES, _LONGEST_NAME = 70, 22


def build_op_table(
    moment: CompactInterval | None, chosen: str, in_view: Iterable[CompactInterval] = ()
) -> list[Row]:
    """Return the table of an interval's operations, as in plain output. `chosen` is the operation in the map.

    The rows are the same for all intervals in view, so that nothing below the table moves.
    """
    rows: list[Row] = [[(HEADER, Tone.STRONG)]]
    if moment is None:
        return [*rows, [("no interval yet", Tone.FAINT)]]
    wanted, ops = _count_rows_in_view([moment, *in_view]), moment.unpack_ops()
    for name in wanted if ops else ():
        tone = Tone.CHOSEN if name == chosen else None
        if name not in ops:
            rows.append(list(format_idle_row(name, tone)))
            continue
        figures = ops[name].figures
        rows.append(list(format_row(name, figures, tone=tone)))
        rows += [list(row) for row in format_wait_rows(figures)]
    nothing = format_stall(moment.stall) if moment.stall else "idle"
    rows = rows if len(rows) > 1 else [*rows, [(nothing, Tone.FAINT)]]
    blank: Row = []
    return [*rows, *[blank] * (1 + sum(wanted.values()) - len(rows))]


def _count_rows_in_view(moments: Iterable[CompactInterval]) -> dict[str, int]:
    """Return the maximum rows of each operation in these moments, in table order."""
    most: dict[str, int] = {}
    for moment in moments:
        for name, count in moment.count_table_rows():
            most[name] = max(most.get(name, 0), count)
    return {name: most[name] for name in EVERY_OP if name in most}


def build_trust_row(disk: DiskHistory, moment: CompactInterval | None) -> Row:
    """Return whether all requests are accounted for, in this interval and in the whole watch."""
    if moment is None:
        return [("trust: nothing counted yet", Tone.FAINT)]
    if TRUST in moment.absent:
        return [("trust: not available from this source", Tone.FAINT)]
    if moment.unexplained:
        return [("! ", Tone.ALARM), (remove_control_characters("; ".join(moment.unexplained)), Tone.ALARM)]
    if moment.stall:
        return [("! ", Tone.ALARM), (format_stall(moment.stall), Tone.ALARM)]
    clean = "OK in this interval" if disk.doubtful else "all accounted for"
    words = remove_control_characters("; ".join(moment.explained)) or clean
    good: Row = [("trust: ", Tone.GOOD), (words, Tone.GOOD)]
    if disk.doubtful:
        intervals = "interval" if disk.doubtful == 1 else "intervals"
        return [*good, (f"  ! {disk.doubtful} other {intervals} had unexplained requests", Tone.ALARM)]
    return [*good, (f", {moment.in_flight} in flight", Tone.FAINT)]


def build_drive_rows(
    past: WatchHistory, disk: DiskHistory, moment: CompactInterval | None, width: int
) -> list[Row]:
    """Return one or two rows with the drive's health and write amplification."""
    if moment is None:
        return []
    health, row = past.find_health(disk, moment.end_ns), []
    if health:
        row = _build_health_row(health)
    if not moment.live:
        return [row] if row else []
    write = moment.find_op("write")
    host = (write.figures["bytes_per_s"] if write else None) or 0.0
    flash: Row = [(f"host {units.format_megabytes(host)} MB/s  ", Tone.WRITE)]
    flash.append((remove_control_characters(format_live(moment.live)), Tone.STRONG))
    return [[*row, *flash]] if measure_row(row) + measure_row(flash) <= width or not row else [row, flash]


def _build_health_row(health: SmartLog) -> Row:
    row: Row = []
    if health.temperature_celsius is not None:
        row.append((f"{health.temperature_celsius} °C  ", Tone.PLAIN))
    if health.available_spare is not None:
        least = health.spare_threshold or _MIN_SPARE
        tone = Tone.ALARM if health.available_spare <= least else Tone.PLAIN
        row.append((f"spare {health.available_spare} %  ", tone))
    if health.percentage_used is not None:
        tone = Tone.ALARM if health.percentage_used >= _WORN else Tone.PLAIN
        # The field has one byte: 255 means more than 254 %.
        or_more = " or more" if health.percentage_used >= _SATURATED else ""
        row.append((f"wear {health.percentage_used} %{or_more}  ", tone))
    if health.critical_warning:
        row.append((f"critical warning {health.critical_warning:#04x}  ", Tone.ALARM))
    return row


def build_disk_rows(
    past: WatchHistory, chosen: DiskHistory, cursor_ns: int | None, most: int, width: int
) -> list[Row]:
    """Return rows for the selected disk and the disks around it. A last row counts the disks without
    space."""
    disks = past.list_disks()
    if len(disks) < 2 or most < 1:
        return []
    room = most if len(disks) <= most or most < 2 else most - 1
    place = next(number for number, disk in enumerate(disks) if disk is chosen)
    first = min(max(place - room // 2, 0), max(len(disks) - room, 0))
    names = min(max(width - _RATES, 8), _LONGEST_NAME)
    rows = [_build_disk_row(disk, disk is chosen, cursor_ns, names) for disk in disks[first : first + room]]
    hidden = [*disks[:first], *disks[first + room :]]
    if not hidden or most < 2:
        return rows
    never_used = sum(not disk.requests for disk in hidden)
    words = f"{len(hidden)} more disk" + ("s" if len(hidden) > 1 else "")
    words += f", {never_used} without requests" if never_used else ""
    return [*rows, [(f"  {words}: ↑ ↓ or Tab", Tone.FAINT)]]


def _build_disk_row(disk: DiskHistory, is_chosen: bool, cursor_ns: int | None, names: int) -> Row:
    place = len(disk.moments) - 1 if cursor_ns is None else disk.find_index_before(cursor_ns)
    name = remove_control_characters(disk.label)[:names]
    row: Row = [(f"{'▸' if is_chosen else ' '} {name:<{names}}", Tone.CHOSEN if is_chosen else Tone.PLAIN)]
    if disk.has_left:
        return [*row, (" removed", Tone.FAINT)]
    moment = disk.moments[place] if place >= 0 else None
    for name in ("read", "write"):
        op = moment.find_op(name) if moment else None
        row.append((f" {name[0]}", OP_TONES[name]))
        if op is None:
            row.append((f"{'-':>7}/s{'-':>7} MB/s p99 {'-':>5}", Tone.FAINT))
            continue
        row += [*RATE.format_spans(op.figures), ("/s", Tone.PLAIN), *MEGABYTES.format_spans(op.figures)]
        row += [(" MB/s p99", Tone.PLAIN), *P99.format_spans(op.figures)]
    if moment and moment.unexplained:
        row.append((" !", Tone.ALARM))
    return row


def _wrap_lines(lines: Sequence[str], width: int, tone: Tone) -> list[Row]:
    rows: list[Row] = []
    for line in lines:
        folded = textwrap.wrap(remove_control_characters(line), max(width, 20), subsequent_indent="    ")
        rows += [[(part, tone)] for part in folded]
    return rows


def build_message_rows(
    moments: Sequence[CompactInterval],
    marks: Sequence[EventMark],
    shown: CompactInterval | None,
    width: int,
    most_slow: int = 6,
) -> list[Row]:
    """Return messages about a moment: events in view, slow requests until then (newest first), and its
    discard senders."""
    rows = _wrap_lines([f"▲ {mark.text}" for mark in reversed(marks[-5:])], width, Tone.MARK)
    rows += _wrap_lines(_describe_slow(moments, shown, most_slow), width, Tone.SLOW)
    if shown and shown.discards:
        rows += _wrap_lines(format_discards(shown.discards), width, Tone.DISCARD)
    return rows


def _describe_slow(moments: Sequence[CompactInterval], shown: CompactInterval | None, most: int) -> list[str]:
    """Return the number of slow requests in view, and those recorded until the end of the shown interval."""
    lines: list[str] = []
    count, left_out, limit_ns = 0, 0, 0
    for moment in reversed(moments):
        if not moment.slow:
            continue
        count, limit_ns = count + moment.slow.count, moment.slow.limit_ns
        left_out += moment.slow.left_out
        if len(lines) < most and shown and moment.end_ns <= shown.end_ns:
            lines += format_slow_requests(moment.slow, moment.at, moment.end_ns)[1:]
    head = f"slow: {count} in view took longer than {units.format_ns(limit_ns)}"
    head += f", {left_out} of them not recorded: too many at once" if left_out else ""
    return [head, *lines[:most]] if count else []
