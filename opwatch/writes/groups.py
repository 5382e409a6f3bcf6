"""Written bytes by control group, as the kernel accounts bios. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from opwatch.writes.classes import WriteClass
from opwatch.writes.reading import WritesReading

# File systems submit these on behalf of everyone.
SHARED_CLASSES = frozenset({WriteClass.JOURNAL, WriteClass.METADATA, WriteClass.NODE})
SHARED, NO_GROUP, TABLE_FULL = "(shared)", "(none)", "(not counted)"


@dataclass(frozen=True, slots=True)
class GroupWrites:
    """A group's bytes. Its name is a path, or one of the names above."""

    name: str
    data_bytes: int
    shared_bytes: int

    @property
    def total(self) -> int:
        return self.data_bytes + self.shared_bytes


def compute_group_writes(
    begin: WritesReading, end: WritesReading, names: Mapping[int, str], *, splits_shared: bool = False
) -> list[GroupWrites]:
    """Return the bytes of each group, the largest first. They add up to the bytes of all classes.

    `names` are the groups' paths by id. Journal and metadata are one entry unless `splits_shared`.
    """
    sums: dict[str, list[int]] = {}
    counted = 0
    for key, count in end.groups.items():
        before = begin.groups.get(key)
        size = count.bytes - (before.bytes if before else 0)
        counted += size
        is_shared = key.write_class in SHARED_CLASSES
        name = names.get(key.cgroup, f"cgroup {key.cgroup}" if key.cgroup else NO_GROUP)
        _add_bytes(sums, SHARED if is_shared and not splits_shared else name, size, is_shared=is_shared)
    # The table of groups is limited; the counters of classes are not.
    _add_bytes(sums, TABLE_FULL, sum_classes(end) - sum_classes(begin) - counted, is_shared=False)
    groups = [GroupWrites(name, data, shared) for name, (data, shared) in sums.items() if data or shared]
    return sorted(groups, key=lambda group: (-group.total, group.name))


def _add_bytes(sums: dict[str, list[int]], name: str, size: int, *, is_shared: bool) -> None:
    sums.setdefault(name, [0, 0])[is_shared] += size


def sum_classes(reading: WritesReading) -> int:
    """Return the bytes of all classes and devices."""
    return sum(count.bytes for target in reading.targets for count in target.classes.values())
