"""The times of a statistic of the kernel's, each a difference to the one before."""

from __future__ import annotations

from opwatch.recording.coding.varints import MODULUS, Varints, put, put_change
from opwatch.trace.stat import KernelTicks

_GROUPS = ("read", "write", "discard", "flush")
# Those of groups, busy, queued, and the length of a jiffy.
TICKS = len(_GROUPS) + 3
_MASK = MODULUS - 1


def put_ticks(facts: bytearray, ticks: KernelTicks, before: list[int]) -> None:
    """Write which groups there are, which values changed, and by how much. What is queued is nearly the sum
    of the groups: it is written by how much it grew beyond that."""
    if not ticks.groups.keys() <= set(_GROUPS):
        raise ValueError(f"a group of times that has no place in a recording: {sorted(ticks.groups)}")
    facts.append(sum(1 << at for at, group in enumerate(_GROUPS) if group in ticks.groups))
    now = [ticks.groups.get(group, before[at]) for at, group in enumerate(_GROUPS)]
    now += [ticks.busy, ticks.queued, ticks.jiffy_ns]
    changes = _changes(before, now)
    put(facts, sum(1 << at for at, change in enumerate(changes) if change))
    for change in changes:
        if change:
            put_change(facts, change)
    before[:] = now


def read_ticks(facts: Varints, before: list[int]) -> KernelTicks:
    """What put_ticks() wrote."""
    groups = facts.up_to((1 << len(_GROUPS)) - 1, "the groups of times")
    changed = facts.up_to((1 << TICKS) - 1, "the times that changed")
    changes = [facts.change() if changed >> at & 1 else 0 for at in range(TICKS)]
    changes[_QUEUED] += sum(changes[: len(_GROUPS)])
    before[:] = [(value + change) & _MASK for value, change in zip(before, changes, strict=True)]
    return KernelTicks(
        groups={group: before[at] for at, group in enumerate(_GROUPS) if groups >> at & 1},
        busy=before[_BUSY],
        queued=before[_QUEUED],
        jiffy_ns=before[_JIFFY],
    )


_BUSY, _QUEUED, _JIFFY = range(len(_GROUPS), TICKS)


def _changes(before: list[int], now: list[int]) -> list[int]:
    changes = [after - value for value, after in zip(before, now, strict=True)]
    changes[_QUEUED] -= sum(changes[: len(_GROUPS)])
    return changes
