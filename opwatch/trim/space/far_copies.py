"""Members that hold the far copies of an md RAID 10 array. Pure."""

from __future__ import annotations

from dataclasses import replace

from opwatch.trim.stack.facts import MdFacts

# Far copies = 1, and no far sets: replaces the upper bits of md's layout word.
_NO_FURTHER = 1 << 8


def count_far_copies(array: MdFacts) -> int:
    """Return the array's number of far copies; 1 if it has near copies only."""
    return max(1, (array.layout or 0) >> 8 & 0xFF) if array.level == "raid10" else 1


def select_far_copy(array: MdFacts, copy: int) -> MdFacts:
    """Return the array reduced to one far copy. The copy's start on each member is not computed: it has the
    layout of the first copy, with each chunk shifted by some members (__raid10_find_phys; raid10.c)."""
    layout, disks = array.layout or 0, array.raid_disks or 0
    near = layout & 0xFF
    lonely = replace(array, layout=near | _NO_FURTHER)
    names, offsets = array.members or (), array.data_offsets or ()
    if not disks or len(names) != disks or len(offsets) != disks:
        return lonely
    slots = [
        _find_further_slot(slot, copy * near, _find_far_set(slot, layout, disks)) for slot in range(disks)
    ]
    return replace(
        lonely,
        members=tuple(names[slot] for slot in slots),
        data_offsets=tuple(offsets[slot] for slot in slots),
    )


def _find_further_slot(slot: int, further: int, members: range) -> int:
    """Return the slot `further` members on, wrapping around within the far set."""
    return members[(slot - members.start + further) % len(members)]


def _find_far_set(slot: int, layout: int, disks: int) -> range:
    """Return the slots that hold the copies of a slot's data: all slots, or one far set in newer layouts.
    The last far set also takes the remaining members (setup_geo)."""
    near, far = layout & 0xFF, layout >> 8 & 0xFF
    size = {1: disks // far, 2: near * far}.get(layout >> 17, disks)
    sets = max(1, disks // size) if size else 1
    number = min(slot // size, sets - 1) if size else 0
    return range(number * size, disks if number == sets - 1 else (number + 1) * size)
