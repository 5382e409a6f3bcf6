"""Copies of a RAID 10 of md that do not lie near each other: on which members they are. Pure."""

from __future__ import annotations

from opwatch.frozen import replace
from opwatch.trim.stack.facts import MdFacts

# In place of the number of copies that lie far from each other, and of the sets of members for them.
_NO_FURTHER = 1 << 8


def far_copies(array: MdFacts) -> int:
    """How many copies of everything an array has that do not lie near each other; 1 where all do."""
    return max(1, (array.layout or 0) >> 8 & 0xFF) if array.level == "raid10" else 1


def alone(array: MdFacts, copy: int) -> MdFacts:
    """The array with one of these copies and no other. Where that begins on each member is left open: it is
    laid out as the first one is, each chunk some members further on (__raid10_find_phys; raid10.c)."""
    layout, disks = array.layout or 0, array.raid_disks or 0
    near = layout & 0xFF
    lonely = replace(array, layout=near | _NO_FURTHER)
    names, offsets = array.members or (), array.data_offsets or ()
    if not disks or len(names) != disks or len(offsets) != disks:
        return lonely
    slots = [_further(slot, copy * near, _set_of(slot, layout, disks)) for slot in range(disks)]
    return replace(
        lonely,
        members=tuple(names[slot] for slot in slots),
        data_offsets=tuple(offsets[slot] for slot in slots),
    )


def _further(slot: int, further: int, members: range) -> int:
    """The slot so many members further on, of those that have the copies of each other."""
    return members[(slot - members.start + further) % len(members)]


def _set_of(slot: int, layout: int, disks: int) -> range:
    """The slots that have the copies of what is on one: all of them, or with newer layouts a set of them, of
    which the last has the members that are over (setup_geo)."""
    near, far = layout & 0xFF, layout >> 8 & 0xFF
    size = {1: disks // far, 2: near * far}.get(layout >> 17, disks)
    sets = max(1, disks // size) if size else 1
    number = min(slot // size, sets - 1) if size else 0
    return range(number * size, disks if number == sets - 1 else (number + 1) * size)
