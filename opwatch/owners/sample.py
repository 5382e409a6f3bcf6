"""Owners of a disk's requests at a sample, and between two samples.

The sum of all owners equals the disk's totals exactly.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from opwatch.owners.cells import (
    OwnedCounts,
    OwnerGrouping,
    OwnerKey,
    OwnerKind,
    add_counts,
    extract_counts,
    subtract_counts,
)
from opwatch.owners.containers import Container, find_container
from opwatch.owners.lives import Earlier
from opwatch.trace.abi import TargetSample

_NOTHING = OwnedCounts()


@dataclass(frozen=True, slots=True)
class OwnerRow:
    """An owner's counts since the tracer was attached, by operation.

    `name` is the path of a cgroup, or the name of a process or kernel work; None if the owner disappeared
    before opwatch read the name. `group` is the cgroup path of a process, under the same condition. `earlier`
    has the totals at the last eviction, by operation; samples between the eviction and the owner's return do
    not list the owner.
    """

    kind: OwnerKind
    number: int
    since_ns: int
    name: str | None
    counts: Mapping[str, OwnedCounts]
    group: str | None = None
    earlier: Mapping[str, Earlier] = field(default_factory=dict)

    @property
    def key(self) -> OwnerKey:
        return OwnerKey(self.kind, self.number, self.since_ns)


@dataclass(frozen=True, slots=True)
class OwnerSample:
    """The owners of one disk at a sample.

    Counts of the disk that are missing here belong to others. `no_room` is the part that was not attributed
    because the table of owners was full. `has_waits`: waits were counted by owner; false in recordings of
    older versions.
    """

    by: OwnerGrouping
    rows: tuple[OwnerRow, ...]
    no_room: OwnedCounts = _NOTHING
    has_waits: bool = False


@dataclass(frozen=True, slots=True)
class OwnerCounts:
    """An owner's counts in an interval, by operation; operations without any count are left out."""

    key: OwnerKey
    name: str | None
    ops: Mapping[str, OwnedCounts]
    group: str | None = None

    @property
    def container(self) -> Container | None:
        """Return the container that the owner is or belongs to, or None if unknown or not in a container."""
        path = self.name if self.key.kind is OwnerKind.CGROUP else self.group
        return find_container(path) if path else None

    @property
    def total(self) -> OwnedCounts:
        """Return the sum over all operations."""
        return add_counts(self.ops.values())


@dataclass(frozen=True, slots=True)
class Owners:
    """The owners of a disk's requests, sorted by bytes in descending order.

    `other`, by operation, is the remainder: with it, each column adds up to the disk's total exactly.
    `no_room` is the part of it due to a full table of owners. `has_waits`: waits were counted by owner.
    """

    by: OwnerGrouping
    owners: tuple[OwnerCounts, ...]
    other: Mapping[str, OwnedCounts]
    no_room: OwnedCounts = _NOTHING
    has_waits: bool = False


def compare_owners(then: OwnerSample, now: OwnerSample, begin: TargetSample, end: TargetSample) -> Owners:
    """Return the owners of the requests between two samples.

    `begin` and `end` are the disk's own samples of the same times.
    """
    before = {row.key: row.counts for row in then.rows}
    has_waits = then.has_waits and now.has_waits
    grown: dict[OwnerKey, dict[str, list[int]]] = {}
    for row in now.rows:
        was = before.get(row.key, {})
        grown[row.key] = {
            op: _count_growth(
                counts, was[op] if op in was else _find_absent_counts(row, op, begin), waits=has_waits
            )
            for op, counts in row.counts.items()
        }
    other = {
        op: _compute_remainder(
            subtract_counts(extract_counts(end.ops[op]), extract_counts(begin.ops[op])).list_numbers(
                waits=has_waits
            ),
            [ops[op] for ops in grown.values() if op in ops],
        )
        for op in end.ops
    }
    owners = [
        OwnerCounts(
            row.key,
            row.name,
            {op: OwnedCounts.from_numbers(counts) for op, counts in ops.items() if any(counts)},
            row.group,
        )
        for row in now.rows
        if (ops := grown[row.key])
    ]
    return Owners(
        by=now.by,
        owners=tuple(sorted((one for one in owners if one.ops), key=_sort_key)),
        other={op: counts for op, counts in other.items() if any(counts)},
        no_room=OwnedCounts.from_numbers(_count_growth(now.no_room, then.no_room, waits=has_waits)),
        has_waits=has_waits,
    )


def _count_growth(now: OwnedCounts, then: OwnedCounts, *, waits: bool) -> list[int]:
    return [
        max(0, more - less)
        for more, less in zip(now.list_numbers(waits=waits), then.list_numbers(waits=waits), strict=True)
    ]


def _find_absent_counts(row: OwnerRow, op: str, begin: TargetSample) -> OwnedCounts:
    """Return the total of a reappeared owner at a sample that does not list it.

    If the owner was evicted several times, this total may be of a later time; its counts until then go to
    others.
    """
    earlier = row.earlier.get(op)
    return earlier.counts if earlier and earlier.first_ns <= begin.begin_ns else _NOTHING


def merge_owners(parts: Iterable[Owners], by: OwnerGrouping) -> Owners:
    """Merge the owners of several disks."""
    owners: dict[OwnerKey, OwnerCounts] = {}
    other: dict[str, OwnedCounts] = {}
    no_room, has_waits = _NOTHING, False
    for part in parts:
        has_waits |= part.has_waits
        other = _merge_counts(other, part.other)
        no_room = add_counts((no_room, part.no_room))
        for one in part.owners:
            before = owners.get(one.key)
            ops = _merge_counts(before.ops, one.ops) if before else one.ops
            owners[one.key] = OwnerCounts(one.key, one.name, ops, one.group)
    return Owners(by, tuple(sorted(owners.values(), key=_sort_key)), other, no_room, has_waits)


def _merge_counts(one: Mapping[str, OwnedCounts], more: Mapping[str, OwnedCounts]) -> dict[str, OwnedCounts]:
    return {
        op: add_counts(part[op] for part in (one, more) if op in part) for op in dict.fromkeys([*one, *more])
    }


def _compute_remainder(left: list[int], owned: list[list[int]]) -> OwnedCounts:
    """Return what is left of an operation's counts, those that belong to no listed owner.

    Owners may exceed the disk's count by requests already counted for one but not the other; the excess is
    subtracted from the largest owners.
    """
    for at in range(len(left)):
        left[at] -= sum(counts[at] for counts in owned)
        for counts in sorted(owned, key=lambda one: -one[at]) if left[at] < 0 else ():
            less = min(counts[at], -left[at])
            counts[at] -= less
            left[at] += less
    return OwnedCounts.from_numbers(left)


def _sort_key(owned: OwnerCounts) -> tuple[int, ...]:
    total = owned.total
    return (-total.bytes, -total.requests, -total.sum_ns, owned.key.number)
