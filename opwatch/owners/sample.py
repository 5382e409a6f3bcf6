"""Owners of a disk's requests at one moment, and between two: what all together did is exactly what the disk
did."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from opwatch.frozen import field, frozen
from opwatch.owners.cells import By, OwnedCounts, OwnerKey, OwnerKind, counts_sum
from opwatch.owners.containers import Container, container_of
from opwatch.owners.lives import Earlier
from opwatch.trace.abi import TargetSample

_NOTHING = OwnedCounts()


@frozen
class OwnerRow:
    """What an owner did since the tracer was attached, by operation. `name` is the path of a group, or what a
    process or the kernel's work is called; None where it had gone before it was asked. `group` is the path of
    the control group that a process was in, likewise. `earlier`, by operation, is what it had done when the
    tracer last forgot it, if it did: samples of the time until it came back do not have it."""

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


@frozen
class OwnerSample:
    """The owners of one disk, with the moment of its sample. What they lack of it is others'. `no_room` is
    what was counted for others because the table of owners was full."""

    by: By
    rows: tuple[OwnerRow, ...]
    no_room: OwnedCounts = _NOTHING


@frozen
class Owned:
    """What an owner did in an interval, by operation: none of them is idle."""

    key: OwnerKey
    name: str | None
    ops: Mapping[str, OwnedCounts]
    group: str | None = None

    @property
    def container(self) -> Container | None:
        """The container that it is, or lies in; None where it is in none, or nobody knows."""
        path = self.name if self.key.kind is OwnerKind.CGROUP else self.group
        return container_of(path) if path else None

    @property
    def total(self) -> OwnedCounts:
        """What it did in all operations together."""
        return counts_sum(self.ops.values())


@frozen
class Owners:
    """Whose a disk's requests were, the most bytes first. `other`, by operation, closes the sum: with it each
    column is exactly the disk's. `no_room` is the part of it for which the table of owners was full."""

    by: By
    owners: tuple[Owned, ...]
    other: Mapping[str, OwnedCounts]
    no_room: OwnedCounts = _NOTHING


def owners_between(then: OwnerSample, now: OwnerSample, begin: TargetSample, end: TargetSample) -> Owners:
    """Whose the requests between two samples were. `begin` and `end` are the disk's, of the same moments."""
    before = {row.key: row.counts for row in then.rows}
    grown: dict[OwnerKey, dict[str, list[int]]] = {}
    for row in now.rows:
        was = before.get(row.key, {})
        grown[row.key] = {
            op: _grown(counts, was[op] if op in was else _counts_away(row, op, begin))
            for op, counts in row.counts.items()
        }
    other = {op: _closed(op, [ops[op] for ops in grown.values() if op in ops], begin, end) for op in end.ops}
    owners = [
        Owned(
            row.key,
            row.name,
            {op: OwnedCounts(*counts) for op, counts in ops.items() if any(counts)},
            row.group,
        )
        for row in now.rows
        if (ops := grown[row.key])
    ]
    return Owners(
        by=now.by,
        owners=tuple(sorted((one for one in owners if one.ops), key=_largest_first)),
        other={op: counts for op, counts in other.items() if any(counts)},
        no_room=OwnedCounts(*_grown(now.no_room, then.no_room)),
    )


def _grown(now: OwnedCounts, then: OwnedCounts) -> list[int]:
    return [max(0, more - less) for more, less in zip(now, then, strict=True)]


def _counts_away(row: OwnerRow, op: str, begin: TargetSample) -> OwnedCounts:
    """Return the total that a later owner has at a sample that does not list it. If it was forgotten several
    times, that may be its total of a later moment: what it did until then is others'."""
    earlier = row.earlier.get(op)
    return earlier.counts if earlier and earlier.first_ns <= begin.begin_ns else _NOTHING


def together(parts: Iterable[Owners], by: By) -> Owners:
    """Owners of several disks as those of one."""
    owners: dict[OwnerKey, Owned] = {}
    other: dict[str, OwnedCounts] = {}
    no_room = _NOTHING
    for part in parts:
        other = _added(other, part.other)
        no_room = counts_sum((no_room, part.no_room))
        for one in part.owners:
            before = owners.get(one.key)
            ops = _added(before.ops, one.ops) if before else one.ops
            owners[one.key] = Owned(one.key, one.name, ops, one.group)
    return Owners(by, tuple(sorted(owners.values(), key=_largest_first)), other, no_room)


def _added(one: Mapping[str, OwnedCounts], more: Mapping[str, OwnedCounts]) -> dict[str, OwnedCounts]:
    return {
        op: counts_sum(part[op] for part in (one, more) if op in part) for op in dict.fromkeys([*one, *more])
    }


def _closed(op: str, owned: list[list[int]], begin: TargetSample, end: TargetSample) -> OwnedCounts:
    """What is left for others of an operation. What owners have too much of, by a request that was on its way
    from the disk's count to theirs, is taken from those who have most."""
    then, now = begin.ops[op], end.ops[op]
    left = [now.completed - then.completed, now.bytes - then.bytes, now.sum_ns - then.sum_ns]
    for at in range(len(left)):
        left[at] -= sum(counts[at] for counts in owned)
        for counts in sorted(owned, key=lambda one: -one[at]) if left[at] < 0 else ():
            less = min(counts[at], -left[at])
            counts[at] -= less
            left[at] += less
    return OwnedCounts(*left)


def _largest_first(owned: Owned) -> tuple[int, ...]:
    total = owned.total
    return (-total.bytes, -total.requests, -total.sum_ns, owned.key.number)
