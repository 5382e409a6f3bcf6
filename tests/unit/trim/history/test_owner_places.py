"""Owners of recorded changes: control groups by the low bits of their id, with stable places in the file."""

from __future__ import annotations

import pytest

from opwatch.collectors.history import owners as module
from opwatch.collectors.history.owners import OwnerPlaces
from opwatch.trim.history.changes import RECORD, ChangeKind


def make_records(*owners: int) -> bytes:
    return b"".join(RECORD.pack(8, 1, 2, 8, ChangeKind.WRITE, 0, owner) for owner in owners)


def test_owners_get_the_next_places_when_they_first_appear() -> None:
    places = OwnerPlaces(read_names=lambda: {7: "/a", 9: "/b", (1 << 16) + 11: "/c"})
    assert places.find_places(make_records(9, 11, 9)) == {9: 1, 11: 2}
    assert places.find_places(make_records(7, 9)) == {7: 3, 9: 1}
    assert places.names == ["/b", "/c", "/a"]


def test_names_of_an_earlier_recording_keep_their_places() -> None:
    places = OwnerPlaces(("/old", "/a"), lambda: {7: "/a"})
    assert places.find_places(make_records(7)) == {7: 2}
    assert places.names == ["/old", "/a"]


def test_unknown_and_ambiguous_owners_have_no_place() -> None:
    places = OwnerPlaces(read_names=lambda: {7: "/a", 7 + (1 << 16): "/b"})
    assert places.find_places(make_records(0, 7, 8)) == {7: 0, 8: 0}
    assert places.names == []


def test_groups_are_listed_again_for_an_unknown_owner_but_not_always(monkeypatch: pytest.MonkeyPatch) -> None:
    groups, lists, now = {7: "/a"}, [], [100.0]

    def read_names() -> dict[int, str]:
        lists.append(now[0])
        return dict(groups)

    monkeypatch.setattr("time.monotonic", lambda: now[0])
    places = OwnerPlaces(read_names=read_names)
    assert places.find_places(make_records(7)) == {7: 1}
    groups[8] = "/b"
    assert places.find_places(make_records(8)) == {8: 0}
    now[0] += 2
    assert places.find_places(make_records(7)) == {7: 1}
    assert len(lists) == 1
    assert places.find_places(make_records(8)) == {8: 2}
    # A group that vanished keeps its name until another takes over its bits.
    del groups[7]
    now[0] += 20
    assert places.find_places(make_records(7)) == {7: 1}
    groups[7 + (1 << 16)] = "/c"
    now[0] += 20
    assert places.find_places(make_records(7)) == {7: 3}
    assert len(lists) == 4


def test_names_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_NAMES", 1)
    places = OwnerPlaces(("/old",), lambda: {7: "/a"})
    assert places.find_places(make_records(7)) == {7: 0}
    assert places.names == ["/old"]
