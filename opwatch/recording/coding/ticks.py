"""Encode the times of a kernel statistic as differences to predicted values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from opwatch.recording.coding.varints import MODULUS, Varints, put_change, put_number
from opwatch.trace.stat import KernelTicks

_GROUPS = ("read", "write", "discard", "flush")
# The groups' times, busy, queued, and the length of a jiffy.
TICKS = len(_GROUPS) + 3
_MASK = MODULUS - 1


def put_ticks(facts: bytearray, ticks: KernelTicks, before: list[int], waited: Mapping[str, int]) -> None:
    """Append the mask of groups, the mask of changed values, and the changes.

    A group's time grows by nearly its requests' time in the device, `waited`, and `queued` by nearly the sum
    of all groups. Only the differences from these predictions are written.
    """
    if not ticks.groups.keys() <= set(_GROUPS):
        raise ValueError(f"a recording cannot store this group of times: {sorted(ticks.groups)}")
    facts.append(sum(1 << at for at, group in enumerate(_GROUPS) if group in ticks.groups))
    now = [ticks.groups.get(group, before[at]) for at, group in enumerate(_GROUPS)]
    now += [ticks.busy, ticks.queued, ticks.jiffy_ns]
    changes = [after - value for value, after in zip(before, now, strict=True)]
    changes[_QUEUED] -= sum(changes[: len(_GROUPS)])
    for at, by in _predict_ticks(ticks.groups, waited):
        changes[at] -= by
    put_number(facts, sum(1 << at for at, change in enumerate(changes) if change))
    for change in changes:
        if change:
            put_change(facts, change)
    before[:] = now


def read_ticks(facts: Varints, before: list[int], waited: Mapping[str, int]) -> KernelTicks:
    """Read the output of put_ticks()."""
    mask = facts.number_up_to((1 << len(_GROUPS)) - 1, "the groups of times")
    groups = [group for at, group in enumerate(_GROUPS) if mask >> at & 1]
    changed = facts.number_up_to((1 << TICKS) - 1, "the times that changed")
    changes = [facts.read_change() if changed >> at & 1 else 0 for at in range(TICKS)]
    for at, by in _predict_ticks(groups, waited):
        changes[at] += by
    changes[_QUEUED] += sum(changes[: len(_GROUPS)])
    before[:] = [(value + change) & _MASK for value, change in zip(before, changes, strict=True)]
    return KernelTicks(
        groups={group: before[_GROUPS.index(group)] for group in groups},
        busy=before[_BUSY],
        queued=before[_QUEUED],
        jiffy_ns=before[_JIFFY],
    )


_BUSY, _QUEUED, _JIFFY = range(len(_GROUPS), TICKS)


def _predict_ticks(groups: Iterable[str], waited: Mapping[str, int]) -> Iterator[tuple[int, int]]:
    """Yield the index and predicted growth of each group's time, if requests wait only in the device."""
    return ((_GROUPS.index(group), waited[group]) for group in groups)
