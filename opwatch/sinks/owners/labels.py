"""Owners of requests as lines: those with the most bytes per operation."""

from __future__ import annotations

from opwatch import units
from opwatch.owners.cells import NO_WAITS, OwnedCounts, OwnerKind, add_counts
from opwatch.owners.sample import OwnerCounts, Owners
from opwatch.units import shorten

# JSON lists all of them.
MAX_SHOWN = 5
_WAITS = " throttle admit queue"
_SHORT = {"write_zeroes": "wzeroes", "secure_erase": "serase"}


def format_owner(owner: OwnerCounts) -> str:
    """Return an owner's display name: engine and ID for a container, path or name for others."""
    key, name, container = owner.key, owner.name, owner.container
    match key.kind:
        case OwnerKind.CGROUP:
            return container.usual_name if container else name or f"cgroup {key.number}"
        case OwnerKind.PROCESS:
            return f"{name or 'process'} ({key.number})" + (
                f" in {container.usual_name}" if container else ""
            )
        case OwnerKind.WRITE_BACK:
            return f"write-back ({name})"
        case OwnerKind.KERNEL:
            return f"kernel: {name or 'unnamed'}" + (f" ({key.number})" if key.since_ns else "")
        case OwnerKind.NOBODY:
            return "(none)"


def format_owner_lines(owners: Owners, seconds: float, columns: int = 80) -> list[str]:
    """Return rows for the largest owners of each operation, and a remainder row that completes the sum, in at
    most `columns` columns."""
    ops = dict.fromkeys(op for one in owners.owners for op in one.ops) | dict.fromkeys(owners.other)
    if not ops:
        return []
    waits = _WAITS if owners.has_waits else ""
    lines = [f"by {owners.by.value:<8} {'/s':>6}   MB/s  mean    qd{waits}"]
    for op in ops:
        own = sorted((one for one in owners.owners if op in one.ops), key=lambda one: _make_sort_key(one, op))
        shown, rest = own[:MAX_SHOWN], own[MAX_SHOWN:]
        for one in shown:
            row = _format_numbers(op, one.ops[op], seconds, has_waits=owners.has_waits)
            lines.append(row + shorten(format_owner(one), columns - len(row)))
        other = add_counts([owners.other.get(op, OwnedCounts()), *(one.ops[op] for one in rest)])
        if any(other):
            words = f"other: {len(rest)} more" if rest else "other"
            row = _format_numbers(op, other, seconds, has_waits=owners.has_waits)
            lines.append(row + shorten(words, columns - len(row)))
    return [*lines, *format_full_table(owners.no_room)]


def format_full_table(lost: OwnedCounts) -> list[str]:
    """Return a line with the part of `other` that found the owner table full, or no line."""
    if not lost.requests and not lost.bytes:
        return []
    words = f"{lost.requests:,} requests, {units.format_megabytes(lost.bytes).strip()} MB"
    return [f"table of owners full: {words} are in other"]


def _format_numbers(op: str, counts: OwnedCounts, seconds: float, *, has_waits: bool) -> str:
    per_s, bytes_per_s = (one / seconds if seconds else 0 for one in (counts.requests, counts.bytes))
    depth = counts.sum_ns / (seconds * 1e9) if seconds else 0.0
    mean = units.format_ns(counts.sum_ns / counts.requests if counts.requests else None)
    row = f"  {_SHORT.get(op, op):<9} {units.format_rate(per_s):>6} {units.format_megabytes(bytes_per_s):>6} "
    row += f"{mean:>5} {depth:>5.1f}"
    if has_waits:
        throttle, admission, queue = map(units.format_ns, (counts.waits or NO_WAITS).list_means())
        row += f" {throttle:>8} {admission:>5} {queue:>5}"
    return row + "  "


def _make_sort_key(one: OwnerCounts, op: str) -> tuple[int, int, int]:
    counts = one.ops[op]
    return -counts.bytes, -counts.requests, -counts.sum_ns
