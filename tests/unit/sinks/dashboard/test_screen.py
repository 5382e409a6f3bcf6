"""Whole screens: size, numbers, escaping of control sequences, and appearance."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from opwatch import units
from opwatch.owners.cells import OwnedCounts, OwnerGrouping, OwnerKey, OwnerKind
from opwatch.owners.sample import OwnerCounts, Owners
from opwatch.samples.entries import CountersRead, IntervalEnded, RunEntry
from opwatch.samples.observation import Observation
from opwatch.samples.presenter import RunPresenter
from opwatch.sinks.dashboard.history import WatchHistory
from opwatch.sinks.dashboard.rows import fit_row
from opwatch.sinks.dashboard.screen import Frame, draw_screen
from opwatch.sinks.dashboard.view import View
from opwatch.sinks.jsonl import build_observation_document
from opwatch.sinks.tones import Tone
from opwatch.trace.unavailable import OWNERS
from tests.unit.sinks.dashboard.rendering import encode_smart_page, make_history, render_screen
from tests.unit.sinks.test_jsonl import BUSY, change_account, make_observation
from tests.unit.support.runs import GeneratedRun, generate_run

SCREENS = Path(__file__).parents[3] / "fixtures" / "good" / "dashboard"


@pytest.fixture(autouse=True)
def one_time_zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def _add_health(run: Iterator[RunEntry]) -> Iterator[RunEntry]:
    """Yield the same run, for a drive that reports its temperature."""
    for entry in run:
        if isinstance(entry, CountersRead):
            first, *rest = entry.sample.answers
            warm = replace(first, answer=encode_smart_page(celsius=41, spare=100, used=3))
            entry = CountersRead(replace(entry.sample, answers=(warm, *rest)))
        yield entry


@cache
def make_busy_history() -> WatchHistory:
    return make_history(_add_health(generate_run(90, seed=5)))[0]


@pytest.mark.parametrize("is_help", [False, True])
@pytest.mark.parametrize("height", [1, 2, 5, 10, 16, 24, 40, 60])
@pytest.mark.parametrize("width", [1, 20, 60, 80, 120, 149, 150, 250])
def test_a_screen_is_as_large_as_its_terminal(width: int, height: int, is_help: bool) -> None:
    past = make_busy_history()
    for view in (View(is_help=is_help), View(disk_name="sda", zoom_place=3), View(cursor_ns=past.span_ns[0])):
        for is_file in (False, True):
            lines = render_screen(past, view, width, height, is_file=is_file)
            assert [len(line) for line in lines] == [width] * height
    assert len(render_screen(WatchHistory(), View(), width, height)) == height


def test_numbers_match_json() -> None:
    """Interval by interval, the table shows the numbers of the JSON output."""
    past, intervals = make_history(generate_run(40, seed=7))
    of_disk = [one for one in intervals if one.device == "nvme0n1"]
    view = View(disk_name="nvme0n1")
    for one in of_disk:
        view.cursor_ns = one.interval.end_ns
        tree, lines = build_observation_document(one), render_screen(past, view, 80, 24)
        rows = {line.split()[0]: line.split()[1:] for line in lines if line.startswith(("read ", "write "))}
        counted = {name for name, op in tree["ops"].items() if op["count"]}
        # An operation from other intervals in view keeps its row, without latencies.
        assert counted <= set(rows)
        assert all(rows[name] == ["0.00", "0.00"] for name in set(rows) - counted)
        for name in counted:
            shown = rows[name]
            op = tree["ops"][name]
            times = [op["latency_ns"][key] for key in ("mean", "p50", "p90", "p99", "p99_9", "max")]
            mark = "<" if op["latency_ns"]["max_slack"] else ""
            assert shown[:2] == [units.format_rate(op["per_s"]), units.format_megabytes(op["bytes_per_s"])]
            assert shown[2:7] == [units.format_ns(value) for value in times[:5]]
            assert shown[7] == mark + units.format_ns(times[5])
            assert shown[8:10] == [f"{op['queue_depth']:.1f}", units.format_size(op["size_bytes"]["p50"])]
        total = sum(op["per_s"] for op in tree["ops"].values())
        assert any(line.lstrip().startswith(f"{units.format_rate(total)} IO/s") for line in lines)


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40), (150, 24), (250, 60)])
def test_owners_match_json(width: int, height: int) -> None:
    """Interval by interval: the owners of that moment, and rows that add up to the disk's total."""
    past, intervals = make_history(generate_run(20, seed=7))
    for one in (one for one in intervals if one.device == "nvme0n1"):
        tree, owners = build_observation_document(one), build_observation_document(one)["owners"]
        lines = render_screen(past, View(disk_name="nvme0n1", cursor_ns=one.interval.end_ns), width, height)
        begin = next(place for place, line in enumerate(lines) if "trim   reqs/s" in line)
        at = lines[begin].index("  read   write")
        panel = [line[at:].split() for line in lines[begin + 1 : begin + 4]]
        parts = [*owners["owners"], owners["other"]]
        for row, part in zip(panel, (part for part in parts if part["ops"]), strict=False):
            ops, seconds = part["ops"], tree["interval_s"]
            moved = [ops[op]["bytes"] / seconds if op in ops else 0 for op in ("read", "write")]
            count = sum(op["count"] for op in ops.values())
            mean = sum(op["time_ns"] for op in ops.values()) / count
            assert row[:2] == [units.format_megabytes(value) for value in moved]
            assert row[3:5] == [units.format_rate(count / seconds), units.format_ns(mean)]
        counted = sum(op["count"] for part in parts for op in part["ops"].values())
        assert counted == sum(op["count"] for op in tree["ops"].values())
        assert ["docker", "5a5a5a5a5a5a"] in [row[-2:] for row in panel]


def test_panel_of_many_owners_adds_up() -> None:
    key = OwnerKey(OwnerKind.PROCESS, 1, 5)
    rows = [
        OwnerCounts(key._replace(number=number), EVIL, {"write": OwnedCounts(1, 4096 * (99 - number), 1000)})
        for number in range(1, 41)
    ]
    whole = replace(make_observation(read=BUSY), owners=Owners(OwnerGrouping.PROCESS, tuple(rows), {}))
    past = WatchHistory()
    past.write_observation(whole)
    for width, height, most in ((80, 24, 2), (80, 60, 8), (250, 60, 16)):
        lines = render_screen(past, View(), width, height)
        assert all(line.isprintable() for line in lines)
        panel = [line for line in lines if "sd?[31mA?B?C??|<script> (" in line]
        assert len(panel) == most
        other = next(line for line in lines if f"other: {40 - most} more" in line)
        seconds = whole.interval.seconds
        left = sum(4096 * (99 - number) for number in range(most + 1, 41))
        assert units.format_megabytes(left / seconds) in other
        assert units.format_rate((40 - most) / seconds) in other


@pytest.mark.parametrize(("width", "height"), [(80, 24), (80, 60), (150, 24), (250, 60)])
def test_the_panel_of_owners_reports_a_full_table(width: int, height: int) -> None:
    row = OwnerCounts(OwnerKey(OwnerKind.PROCESS, 1, 5), "fio", {"write": OwnedCounts(9, 36_864, 9000)})
    other, lost = {"write": OwnedCounts(1500, 6_144_000, 9)}, OwnedCounts(1234, 5_054_464, 7)
    for no_room, count in ((lost, 1), (OwnedCounts(), 0)):
        past = WatchHistory()
        whole = Owners(OwnerGrouping.PROCESS, (row,), other, no_room)
        past.write_observation(replace(make_observation(read=BUSY), owners=whole))
        lines = render_screen(past, View(), width, height)
        assert sum("full: 1,234 requests, 5.05 MB" in line for line in lines) == count
        assert sum("fio (1)" in line for line in lines) == 1


def test_reason_for_missing_owners_is_a_single_line() -> None:
    past = WatchHistory()
    past.write_observation(
        replace(make_observation(read=BUSY), lacks=(f"{OWNERS}: the kernel {EVIL} refused",))
    )
    for width, height in ((80, 24), (250, 60)):
        lines = render_screen(past, View(), width, height)
        assert sum("owners unknown: the kernel sd?[31m" in line for line in lines) == 1
    past.write_observation(make_observation(read=BUSY))
    assert not any("owners" in line for line in render_screen(past, View(), 80, 24))


def test_unexplained_losses_are_always_visible() -> None:
    past, _ = make_history(generate_run(3))
    lost = make_observation(read=BUSY)
    past.write_observation(change_account(lost, overwritten=2, no_drift=None))
    view = View(disk_name="sda")
    for width, height in ((80, 24), (250, 60), (60, 12)):
        rows = draw_screen(past, view, Frame(width, height))
        assert ("not traced: 2 requests, cause unknown", Tone.ALARM) in [
            piece for row in rows for piece in row
        ]
    past.write_observation(change_account(lost, no_drift=None))
    lines = render_screen(past, view, 80, 24)
    assert "trust: OK in this interval  ! 1 other interval had unexplained requests" in lines[1]


def test_loss_with_a_known_cause_is_shown_without_alarm() -> None:
    past, _ = make_history(generate_run(3))
    past.write_observation(
        change_account(make_observation(read=BUSY), is_blind=True, overwritten=2, no_drift=None)
    )
    view = View(disk_name="sda")
    rows = draw_screen(past, view, Frame(80, 24))
    assert any("2 requests (PID 1)" in text for row in rows for text, _ in row)
    assert not any(tone is Tone.ALARM for text, tone in rows[1])


def test_drive_health_is_shown_as_of_the_cursor() -> None:
    run = GeneratedRun()
    entries: list[RunEntry] = [run.add_disk(0, "nvme0n1"), run.make_interval_entry([0])]
    for celsius in (35, 70):
        look = run.make_poll_entry("nvme0n1", 2)
        warm = replace(look.sample.answers[0], answer=encode_smart_page(celsius=celsius, spare=9, used=101))
        entries += [CountersRead(replace(look.sample, answers=(warm,))), run.make_interval_entry([0])]
    past, intervals = make_history(entries)
    for one, text in zip(intervals, ("", "35 °C  spare 9 %  wear 101 %", "70 °C"), strict=True):
        screen_now = "\n".join(render_screen(past, View(cursor_ns=one.interval.end_ns), 80, 24))
        assert text in screen_now
        assert ("°C" in screen_now) is bool(text)
    pieces = [piece for row in draw_screen(past, View(), Frame(80, 24)) for piece in row]
    assert ("spare 9 %  ", Tone.ALARM) in pieces
    assert ("wear 101 %  ", Tone.ALARM) in pieces


EVIL = "sd\x1b[31mA\u202eB\nC\x07\x9b|<script>"


def test_control_sequences_in_names_are_not_printed() -> None:
    past = WatchHistory()
    evil = replace(make_observation(read=BUSY), device=EVIL, origin=EVIL + "2", level=EVIL)
    evil = replace(evil, trust=replace(evil.trust, no_drift=EVIL))
    past.write_observation(evil)
    past.write_observation(replace(evil, device="sdb\x1b", origin="sdb\x1b"))
    run = GeneratedRun()
    list(run.make_interval_entry([]).samples)
    past.add_mark(evil.interval.end_ns, EVIL)
    past.set_message(EVIL)
    for view in (View(), View(disk_name="sdb\x1b"), View(cursor_ns=evil.interval.end_ns)):
        for width in (80, 250):
            for line in render_screen(past, view, width, 40, is_file=True):
                assert line.isprintable(), line
    shown = "\n".join(render_screen(past, View(), 250, 40))
    assert "sd?[31mA?B?C??|<script>" in shown


def test_slow_request_names_are_escaped() -> None:
    past, _ = make_history(generate_run(60, seed=2))
    shown = "\n".join(render_screen(past, View(), 120, 60))
    assert "took longer than 10.0m" in shown
    assert all(line.isprintable() for line in shown.split("\n"))


def test_marks_are_below_their_column() -> None:
    past, intervals = make_history(generate_run(30, seed=1))
    ends = [one.interval.end_ns for one in intervals if one.device == "sda"]
    past = make_history(generate_run(30, seed=1), WatchHistory())[0]
    past.marks.clear()
    past.add_mark(ends[-3] - 1000, "fio began")
    lines = render_screen(past, View(disk_name="sda"), 120, 40)
    rule = next(line for line in lines if "└" in line)
    assert rule.rstrip().rindex("▲") == len(rule.rstrip()) - 3
    assert any("▲ fio began" in line for line in lines)


def generate_nine_disks(seconds: int = 3) -> Iterator[RunEntry]:
    """Eight disks without requests, and a busy disk that was added last."""
    run = GeneratedRun(seed=3)
    names = [*(f"loop{number}" for number in range(8)), "nvme0n1"]
    yield from [run.add_disk(place, name) for place, name in enumerate(names)]
    for _ in range(seconds):
        tick = run.make_interval_entry([8])
        yield replace(tick, samples={place: run.make_sample(place) for place in range(8)} | {**tick.samples})


@pytest.mark.parametrize(("height", "shown"), [(24, 3), (40, 5), (60, 9), (10, 1)])
def test_busiest_disk_is_shown_with_a_hint_at_other_disks(height: int, shown: int) -> None:
    past, _ = make_history(generate_nine_disks())
    lines = render_screen(past, View(), 80, height)
    assert lines[0].startswith("opwatch nvme0n1  disk 1 of 9")
    rows = [line for line in lines if line[2:].startswith(("loop", "nvme0n1"))]
    assert len(rows) == shown
    hints = [line for line in lines if "more disks" in line]
    assert [line.split()[0] for line in hints] == ([str(9 - shown)] if 1 < shown < 9 else [])
    assert all("Tab" in line for line in hints)


def test_every_disk_can_be_reached_from_the_busiest() -> None:
    past, _ = make_history(generate_nine_disks())
    view, names_shown = View(), list[str]()
    for _ in range(9):
        names_shown.append(render_screen(past, view, 80, 24)[0].split()[1])
        assert any(line.startswith(f"▸ {names_shown[-1]}") for line in render_screen(past, view, 80, 24))
        view.select_next_disk(past, 1)
    assert sorted(names_shown) == sorted(past.disks)


def test_equally_busy_disks_do_not_take_turns() -> None:
    run, past, view = GeneratedRun(seed=5), WatchHistory(), View()
    shown, ahead = set[str | None](), set[str]()
    entries: list[RunEntry] = [run.add_disk(0, "sda"), run.add_disk(1, "sdb")]
    entries += [run.make_interval_entry([0, 1]) for _ in range(60)]
    story = RunPresenter()
    for entry in entries:
        past.add_entry(entry)
        for news in story.process_entry(entry):
            assert isinstance(news, Observation)
            past.write_observation(news)
        if isinstance(entry, IntervalEnded) and past.disks["sda"].moments:
            view.follow_busiest(past)
            shown.add(view.disk_name)
            ahead.add(max(past.disks.values(), key=lambda disk: disk.requests).name)
    assert ahead == {"sda", "sdb"}
    assert len(shown) == 1


def test_column_time_is_the_requested_interval() -> None:
    run, past = GeneratedRun(seed=1), WatchHistory()
    entries: list[RunEntry] = [run.add_disk(0, "sda")]
    for shift_ms in (0, 30, 7, 41, 13):
        run.delay_next_reading(shift_ms * 10**6)
        entries.append(run.make_interval_entry([0]))
    # One interval was three times as long, because the machine was busy.
    run.delay_next_reading(2 * 10**9)
    entries.append(run.make_interval_entry([0]))
    past, intervals = make_history(entries)
    *even, late = intervals
    for one in even:
        lines = render_screen(past, View(cursor_ns=one.interval.end_ns), 80, 24, interval_s=1.0)
        assert " 1 s  " in lines[0]
        assert any(", 1 s per column" in line for line in lines)
        zoomed = View(cursor_ns=one.interval.end_ns, zoom_place=2)
        assert any(", 5 s per column" in line for line in render_screen(past, zoomed, 80, 24, interval_s=1.0))
    lines = render_screen(past, View(cursor_ns=late.interval.end_ns), 80, 24, interval_s=1.0)
    assert " 3 s  " in lines[0]
    assert any(", 1 s per column" in line for line in lines)


def test_message_does_not_move_the_keys_and_the_map() -> None:
    past = make_history(generate_run(30, seed=5))[0]
    before = render_screen(past, View(), 80, 24)
    past.set_message("written: /tmp/x.opw")
    after = render_screen(past, View(), 80, 24)
    assert after[-2].startswith("written: /tmp/x.opw")
    assert [*after[:-2], after[-1]] == [*before[:-2], before[-1]]
    past.set_message("written: " + "/a-long-name" * 11 + "; opwatch replay shows it")
    long = render_screen(past, View(), 80, 24)
    assert "".join(line.strip() for line in long[-4:-1]).count("/a-long-name") == 11
    assert [*long[:-4], long[-1]] == [*before[:-4], before[-1]]


def test_map_height_does_not_depend_on_the_cursor() -> None:
    """The height is constant although the drive first reports no health, and then a short or a long line."""
    past, intervals = make_history(_add_health(generate_run(40, seed=7)))
    ends = [one.interval.end_ns for one in intervals if one.device == "nvme0n1"]
    for width, height in ((80, 24), (120, 40)):
        places = set[tuple[int, ...]]()
        for end_ns in ends:
            view = View(disk_name="nvme0n1", cursor_ns=end_ns, edge_ns=ends[-1])
            lines = render_screen(past, view, width, height)
            heads = (" latency, ", "└", "op ")
            places.add(tuple(next(n for n, line in enumerate(lines) if head in line) for head in heads))
        assert len(places) == 1


def test_rows_below_the_table_do_not_move_between_intervals() -> None:
    past, intervals = make_history(generate_run(40, seed=7))
    ends = [one.interval.end_ns for one in intervals if one.device == "nvme0n1"]
    heights = set[int]()
    for end_ns in ends:
        lines = render_screen(past, View(disk_name="nvme0n1", cursor_ns=end_ns, edge_ns=ends[-1]), 80, 24)
        begin = next(place for place, line in enumerate(lines) if line.startswith("op "))
        owners = next(place for place, line in enumerate(lines) if "trim   reqs/s" in line)
        heights.add(owners - begin)
    assert heights == {3}


def test_at_most_an_hour_is_kept() -> None:
    past = WatchHistory(most=10)
    _, intervals = make_history(generate_run(30, seed=1), past)
    ends = [one.interval.end_ns for one in intervals if one.device == "sda"]
    assert [moment.end_ns for moment in past.disks["sda"].moments] == ends[-10:]


def test_overlong_text_ends_with_an_ellipsis() -> None:
    assert fit_row([("abcdef", Tone.PLAIN)], 4) == [("abc…", Tone.PLAIN)]
    assert fit_row([("ab", Tone.GOOD), ("cdef", Tone.PLAIN)], 2)[:1] == [("ab", Tone.GOOD)]


def test_help_is_whole_at_80_columns() -> None:
    lines = render_screen(make_busy_history(), View(is_help=True), 80, 24)
    assert not any("…" in line for line in lines)
    assert any(line.startswith("q Ctrl-C") for line in lines)


@pytest.mark.parametrize(
    ("name", "width", "height", "view"),
    [
        ("80x24", 80, 24, View()),
        ("120x40", 120, 40, View()),
        ("250x60", 250, 60, View()),
        ("80x24-zoomed", 80, 24, View(zoom_place=2, chosen_op="write")),
        ("80x24-help", 80, 24, View(is_help=True)),
        ("80x24-cursor", 80, 24, View(cursor_ns=make_busy_history().span_ns[1] - 40 * 10**9)),
        ("80x24-empty", 80, 24, View(chosen_op="discard")),
    ],
)
def test_screens_match_their_references(name: str, width: int, height: int, view: View) -> None:
    """The reference screens were checked by eye: OPWATCH_WRITE_SCREENS=1 rewrites them."""
    lines = [line.rstrip() for line in render_screen(make_busy_history(), view, width, height)]
    path = SCREENS / f"{name}.txt"
    if os.environ.get("OPWATCH_WRITE_SCREENS"):
        path.write_text("\n".join(lines) + "\n")
    assert lines == path.read_text().splitlines()
