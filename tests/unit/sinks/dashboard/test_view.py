"""Moving through the past."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opwatch.sinks.dashboard.past import Past
from opwatch.sinks.dashboard.view import ZOOMS, View
from tests.unit.sinks.dashboard.shown import shown_past
from tests.unit.support.runs import a_run

PAST, INTERVALS = shown_past(a_run(50, seed=4))
ENDS = [one.interval.end_ns for one in INTERVALS if one.device == "nvme0n1"]


def end_of(view: View) -> int:
    moment = view.moment(PAST)
    assert moment is not None
    return moment.end_ns


def test_it_is_live_until_somebody_stops_it() -> None:
    view = View()
    assert end_of(view) == ENDS[-1]
    view.pause(PAST)
    assert view.until_ns == ENDS[-1]
    view.pause(PAST)
    assert not view.is_paused


@pytest.mark.parametrize("zoom_place", [0, 2])
def test_scrolling_goes_by_columns_and_ends_at_both_ends(zoom_place: int) -> None:
    view = View(zoom_place=zoom_place)
    view.scroll(PAST, -2)
    assert end_of(view) == ENDS[-1 - 2 * view.zoom]
    view.scroll(PAST, 1)
    assert end_of(view) == ENDS[-1 - view.zoom]
    view.scroll(PAST, 1)
    assert not view.is_paused
    view.scroll(PAST, -1000)
    assert end_of(view) == ENDS[0]
    view.newest()
    assert end_of(view) == ENDS[-1]
    view.oldest(PAST)
    assert end_of(view) == ENDS[0]


def test_columns_of_several_intervals_stay_what_they_are() -> None:
    """However far one scrolls, the whole columns in view have the same intervals in them."""
    disk = PAST.disks["nvme0n1"]
    live = View(zoom_place=2)
    whole = {tuple(m.end_ns for m in moments) for moments in live.columns(disk, 40)}
    assert sorted(end for ends in whole for end in ends) == ENDS
    scrolled = View(zoom_place=2, until_ns=ENDS[-8])
    for moments in list(scrolled.columns(disk, 40))[:-1]:
        assert tuple(m.end_ns for m in moments) in whole


def test_columns_are_full_however_uneven_the_intervals_are() -> None:
    """An interval is off by some microseconds, and old ones are dropped while one looks."""
    past, _ = shown_past(a_run(48, seed=4), Past(most=33))
    disk = past.disks["nvme0n1"]
    uneven = [replace(m, begin_ns=m.begin_ns + 1000 * n) for n, m in enumerate(disk.moments)]
    disk.moments[:] = uneven
    assert disk.dropped == 15
    sizes = [len(moments) for moments in View(zoom_place=2).columns(disk, 40)]
    assert sizes == [5, 5, 5, 5, 5, 5, 3]


def test_disks_come_one_after_the_other() -> None:
    view, names = View(), list(PAST.disks)
    for place in (1, 2, 0):
        view.next_disk(PAST, 1)
        disk = view.disk(PAST)
        assert disk is not None
        assert disk.name == names[place]


def test_zoom_has_ends() -> None:
    view = View()
    view.zoom_by(-1)
    assert view.zoom == ZOOMS[0]
    view.zoom_by(100)
    assert view.zoom == ZOOMS[-1]
    view.zoom_to_fit(3600, 100)
    assert view.zoom == 60
    view.zoom_to_fit(100, 100)
    assert view.zoom == 1


def test_the_busiest_operation_is_shown_until_another_is_chosen() -> None:
    disk = PAST.disks["nvme0n1"]
    counts = dict.fromkeys(("read", "write"), 0)
    for moment in disk.moments[-30:]:
        for name, op in moment.ops().items():
            counts[name] += op.count
    assert counts[View().op(disk)] == max(counts.values())
    assert View(chosen_op="flush").op(disk) == "flush"
