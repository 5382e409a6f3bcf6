"""Moving the cursor through the past."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opwatch.sinks.dashboard.history import WatchHistory
from opwatch.sinks.dashboard.view import ZOOMS, View
from tests.unit.sinks.dashboard.rendering import make_history
from tests.unit.support.runs import generate_run

PAST, INTERVALS = make_history(generate_run(50, seed=4))
ENDS = [one.interval.end_ns for one in INTERVALS if one.device == "nvme0n1"]


def get_end_ns(view: View) -> int:
    moment = view.find_moment(PAST)
    assert moment is not None
    return moment.end_ns


def test_live_view_follows_until_paused() -> None:
    view = View()
    assert get_end_ns(view) == ENDS[-1]
    view.toggle_pause(PAST)
    assert view.cursor_ns == ENDS[-1]
    view.toggle_pause(PAST)
    assert not view.is_paused


@pytest.mark.parametrize("zoom_place", [0, 2])
def test_scrolling_moves_by_columns_and_stops_at_both_ends(zoom_place: int) -> None:
    view = View(zoom_place=zoom_place)
    view.scroll(PAST, -2)
    assert get_end_ns(view) == ENDS[-1 - 2 * view.zoom_factor]
    view.scroll(PAST, 1)
    assert get_end_ns(view) == ENDS[-1 - view.zoom_factor]
    view.scroll(PAST, 1)
    assert not view.is_paused
    view.scroll(PAST, -1000)
    assert get_end_ns(view) == ENDS[0]
    view.show_newest()
    assert get_end_ns(view) == ENDS[-1]
    view.scroll_to_oldest(PAST)
    assert get_end_ns(view) == ENDS[0]


def test_columns_of_several_intervals_are_stable() -> None:
    """At any scroll position, complete columns contain the same intervals."""
    disk = PAST.disks["nvme0n1"]
    live = View(zoom_place=2)
    whole = {tuple(m.end_ns for m in moments) for moments in live.build_columns(disk, 40)}
    assert sorted(end for ends in whole for end in ends) == ENDS
    scrolled = View(zoom_place=2, cursor_ns=ENDS[-8])
    for moments in list(scrolled.build_columns(disk, 40))[:-1]:
        assert tuple(m.end_ns for m in moments) in whole


def test_columns_are_full_with_uneven_intervals() -> None:
    """Intervals vary by some microseconds, and old ones are dropped during use."""
    past, _ = make_history(generate_run(48, seed=4), WatchHistory(most=33))
    disk = past.disks["nvme0n1"]
    uneven = [replace(m, begin_ns=m.begin_ns + 1000 * n) for n, m in enumerate(disk.moments)]
    disk.moments[:] = uneven
    assert disk.dropped == 15
    sizes = [len(moments) for moments in View(zoom_place=2).build_columns(disk, 40)]
    assert sizes == [5, 5, 5, 5, 5, 5, 3]


def test_next_disk_cycles_through_all_disks() -> None:
    view, names = View(), list(PAST.disks)
    for place in (1, 2, 0):
        view.select_next_disk(PAST, 1)
        disk = view.find_disk(PAST)
        assert disk is not None
        assert disk.name == names[place]


def test_zoom_is_limited_at_both_ends() -> None:
    view = View()
    view.zoom_by(-1)
    assert view.zoom_factor == ZOOMS[0]
    view.zoom_by(100)
    assert view.zoom_factor == ZOOMS[-1]
    view.zoom_to_fit(3600, 100)
    assert view.zoom_factor == 60
    view.zoom_to_fit(100, 100)
    assert view.zoom_factor == 1


def test_the_busiest_operation_in_the_map_is_shown_until_another_is_chosen() -> None:
    disk = PAST.disks["nvme0n1"]
    counts = dict.fromkeys(("read", "write"), 0)
    for moment in disk.moments[-30:]:
        for name, op in moment.unpack_ops().items():
            counts[name] += int(op.figures["count"] or 0)
    columns = View().build_columns(disk, 30)
    assert counts[View().choose_op(columns)] == max(counts.values())
    assert View(chosen_op="flush").choose_op(columns) == "flush"


def test_map_keeps_later_intervals_when_the_cursor_moves_back() -> None:
    disk = PAST.disks["nvme0n1"]
    view = View(disk_name="nvme0n1")
    view.scroll(PAST, -5)
    assert get_end_ns(view) == ENDS[-6]
    shown = [moments[-1].end_ns for moments in view.build_columns(disk, 30)]
    assert shown == ENDS[-30:]
    assert view.find_cursor_column(disk, view.build_columns(disk, 30)) == 24


def test_cursor_stays_in_the_map_with_both_sides_in_view() -> None:
    disk = PAST.disks["nvme0n1"]
    view = View(disk_name="nvme0n1")
    for steps in range(1, len(ENDS)):
        view.scroll(PAST, -1)
        shown = [moments[-1].end_ns for moments in view.build_columns(disk, 20)]
        place = len(ENDS) - 1 - steps
        assert len(shown) == 20
        assert ENDS[place] in shown
        # Half of the map is before the cursor, unless the past starts there.
        assert shown[0] == ENDS[min(max(place - 9, 0), len(ENDS) - 20)]
    assert shown == ENDS[:20]


@pytest.mark.parametrize("zoom_place", [1, 2, 3])
def test_cursor_stays_in_its_column_at_any_zoom(zoom_place: int) -> None:
    disk = PAST.disks["nvme0n1"]
    for end in ENDS:
        view = View(disk_name="nvme0n1", zoom_place=zoom_place, cursor_ns=end)
        for width in (3, 10, 80):
            columns = view.build_columns(disk, width)
            place = view.find_cursor_column(disk, columns)
            assert place is not None
            assert len(columns) <= width
            assert end in [moment.end_ns for moment in columns[place]]


def test_map_stands_still_during_a_pause() -> None:
    run = list(generate_run(50, seed=4))
    past, intervals = make_history(run[: len(run) // 2])
    view = View(disk_name="nvme0n1")
    view.scroll(past, -3)
    disk = past.disks["nvme0n1"]
    before = [moments[-1].end_ns for moments in view.build_columns(disk, 20)]
    kept = disk.moments[-1]
    for step in range(1, 8):
        past_ns = kept.end_ns + step * 10**9
        disk.moments.append(replace(kept, begin_ns=past_ns - 10**9, end_ns=past_ns))
    assert [moments[-1].end_ns for moments in view.build_columns(disk, 20)] == before
    # Moving beyond the map's edge shows the intervals added since.
    view.scroll(past, 5)
    assert view.build_columns(disk, 20)[-1][-1] is view.find_moment(past)
    assert intervals


def test_live_map_has_no_cursor() -> None:
    view, disk = View(disk_name="nvme0n1"), PAST.disks["nvme0n1"]
    assert view.find_cursor_column(disk, view.build_columns(disk, 20)) is None
