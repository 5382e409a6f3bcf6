"""Written bytes by control group."""

from __future__ import annotations

from dataclasses import replace

from opwatch.writes.classes import WriteClass, WriteCount, WriteGroup
from opwatch.writes.groups import NO_GROUP, SHARED, TABLE_FULL, GroupWrites, compute_group_writes

from .readings import make_reading

NAMES = {7: "/db"}
BEGIN = replace(
    make_reading({WriteClass.DATA: 100}, {}),
    groups={WriteGroup(7, 0, WriteClass.DATA): WriteCount(100, 1)},
)
END = replace(
    make_reading({WriteClass.DATA: 600, WriteClass.DIRECT: 50, WriteClass.JOURNAL: 30}, {}),
    groups={
        WriteGroup(7, 0, WriteClass.DATA): WriteCount(400, 3),
        WriteGroup(8, 0, WriteClass.DIRECT): WriteCount(40, 1),
        WriteGroup(0, 0, WriteClass.DIRECT): WriteCount(10, 1),
        WriteGroup(1, 0, WriteClass.JOURNAL): WriteCount(20, 1),
        WriteGroup(7, 0, WriteClass.JOURNAL): WriteCount(10, 1),
    },
)


def test_groups_and_the_uncounted_rest_add_up_to_the_classes() -> None:
    assert compute_group_writes(BEGIN, END, NAMES) == [
        GroupWrites("/db", 300, 0),
        GroupWrites(TABLE_FULL, 200, 0),
        GroupWrites("cgroup 8", 40, 0),
        GroupWrites(SHARED, 0, 30),
        GroupWrites(NO_GROUP, 10, 0),
    ]


def test_journal_and_metadata_belong_to_their_submitters_on_request() -> None:
    groups = compute_group_writes(BEGIN, END, NAMES, splits_shared=True)
    assert groups[0] == GroupWrites("/db", 300, 10)
    assert GroupWrites("cgroup 1", 0, 20) in groups
    assert SHARED not in {group.name for group in groups}
