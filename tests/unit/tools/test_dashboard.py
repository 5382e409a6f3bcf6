"""The dashboard in a terminal: keys, colours, when it starts, and the end of the run behind it."""

from __future__ import annotations

import argparse
import asyncio
import gzip
import io
import os
import re
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from rich.console import Console

from opwatch.cpu import CommandCpu
from opwatch.errors import UsageError
from opwatch.host.device import Leaf
from opwatch.recording.reading.reader import RecordedRun
from opwatch.recording.ring.folder import RingFolder
from opwatch.samples.end import End
from opwatch.samples.entries import DiskAdded, IntervalEnded, RunEntry
from opwatch.samples.presenter import RunPresenter
from opwatch.sinks.dashboard.history import WatchHistory
from opwatch.sinks.dashboard.rows import Heat, Line
from opwatch.sinks.dashboard.screen import Frame
from opwatch.sinks.dashboard.view import View
from opwatch.sinks.tones import Tone
from opwatch.tools.dashboard import choice, keeping
from opwatch.tools.dashboard.app import Board, DashboardApp
from opwatch.tools.dashboard.paint import Painter, count_colours
from opwatch.tools.dashboard.running import DashboardRun
from opwatch.tools.dashboard.showing import DeferredHourRecorder
from tests.terminals import run_on_terminal
from tests.unit.sinks.dashboard.rendering import make_history
from tests.unit.support.runs import generate_run

RECORDING = Path(__file__).parents[2] / "fixtures" / "good" / "recordings" / "1.opw.gz"
PAST, _ = make_history(generate_run(40, seed=6))


def make_app(view: View) -> DashboardApp:
    return DashboardApp(PAST, view, Frame, is_coloured=True)


def render_after(keys: str, view: View, size: tuple[int, int] = (80, 24)) -> list[str]:
    """Return the screen lines after these keys."""

    async def press() -> list[str]:
        app = make_app(view)
        async with app.run_test(size=size) as pilot:
            await pilot.press(*keys.split())
            await pilot.pause()
            board = app.query_one(Board)
            return [board.render_line(y).text for y in range(size[1])]

    return asyncio.run(press())


def test_keys_move_through_the_past() -> None:
    view = View()
    assert any(line.startswith("op  ") for line in render_after("", view))
    assert "PAUSED" in render_after("space", view)[0]
    paused_ns = view.cursor_ns
    assert paused_ns is not None
    render_after("left left", view)
    assert view.cursor_ns is not None and view.cursor_ns < paused_ns
    render_after("end w plus tab", view)
    names = [disk.name for disk in PAST.list_disks()]
    first = max(PAST.disks.values(), key=lambda disk: disk.requests).name
    second = names[(names.index(first) + 1) % len(names)]
    assert view == View(disk_name=second, has_chosen_disk=True, chosen_op="write", zoom_place=1)
    render_after("a minus up", view)
    assert view == View(disk_name=first, has_chosen_disk=True)
    assert render_after("question_mark", view)[0].startswith("opwatch: screen")
    render_after("escape home", view)
    assert not view.is_help
    assert view.cursor_ns == PAST.disks[first].moments[0].end_ns


def find_map_rows(lines: list[str]) -> list[str]:
    """Return the rows of the heat map without their axis."""
    return [
        re.split("[┤│]", line, maxsplit=1)[1] for line in lines if re.match(r" *[0-9.]*[nums]? [┤│]", line)
    ]


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (250, 60)])
def test_pausing_and_moving_the_cursor_keep_the_map(size: tuple[int, int]) -> None:
    before = render_after("", View(), size)
    assert len(find_map_rows(before)) >= 4
    assert find_map_rows(render_after("space", View(), size)) != []
    for keys in ("space", "left", "left left left left left"):
        shown = render_after(keys, View(), size)
        assert "PAUSED" in shown[0]
        # The map differs only by the cursor.
        assert [line.replace("│", " ") for line in find_map_rows(shown)] == find_map_rows(before)
        # The cursor's time is below the map.
        at = shown[0].split()[-2]
        assert at in shown[next(place for place, line in enumerate(shown) if "└" in line) + 1]


def test_an_operation_without_requests_has_no_ticks() -> None:
    shown = render_after("d", View())
    assert any(line.strip("│ ").startswith("no discard ") for line in shown)
    assert not any("┤" in line for line in shown)


def test_a_message_does_not_cover_the_keys() -> None:
    shown = render_after("o", View())
    assert any(line.startswith("o: ") for line in shown)
    assert shown[-1].startswith("q quit")


@pytest.mark.parametrize("size", [(20, 6), (80, 24), (120, 40), (250, 60)])
def test_the_screen_fills_its_terminal(size: tuple[int, int]) -> None:
    assert [len(line) for line in render_after("", View(), size)] == [size[0]] * size[1]


def test_dashboard_follows_a_resized_terminal() -> None:
    async def resize() -> tuple[int, int]:
        app = make_app(View())
        async with app.run_test(size=(80, 24)) as pilot:
            await pilot.resize_terminal(130, 30)
            await pilot.pause()
            board = app.query_one(Board)
            return len(board.render_line(0).text), sum(bool(board.render_line(y).text) for y in range(40))

    assert asyncio.run(resize()) == (130, 40) or asyncio.run(resize())[0] == 130


def paint_rows(colours: int, rows: list[tuple[str, Tone | Heat]]) -> str:
    """Return the bytes for a terminal with this many colours."""
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, color_system="256", width=100)
    for segment in Painter(colours).make_strip(rows, sum(len(text) for text, _ in rows)):
        console.print(segment.text, style=segment.style, end="", highlight=False, markup=False)
    return stream.getvalue()


ROW: list[tuple[str, Tone | Heat]] = [
    *((tone.name, tone) for tone in Tone),
    *(("▀", Heat(upper, lower, line)) for upper in (0, 1, 8) for lower in (0, 1, 8) for line in Line),
]


def test_without_colours_no_colour_is_sent() -> None:
    codes = re.findall(r"\x1b\[([0-9;]*)m", paint_rows(0, ROW))
    assert {code for given in codes for code in given.split(";")} <= {"", "0", "1", "2", "7"}
    # Hot and warm cells stay distinguishable.
    assert len({paint_rows(0, [("▀", Heat(level, 0))]) for level in (0, 1, 3, 5, 7)}) == 5


def test_sixteen_colours_are_enough() -> None:
    assert "38;5" not in paint_rows(16, ROW)
    assert "48;5" not in paint_rows(16, ROW)
    assert len({paint_rows(16, [("▀", Heat(level, 0))]) for level in range(9)}) >= 6


def test_cell_halves_have_separate_colours() -> None:
    assert paint_rows(256, [("▀", Heat(8, 1))]) != paint_rows(256, [("▀", Heat(8, 2))])
    assert "▄" in paint_rows(256, [("▀", Heat(0, 1))])
    for upper, lower in ((0, 8), (8, 8), (8, 0)):
        assert "━" in paint_rows(256, [("▀", Heat(upper, lower, Line.P50))])


@pytest.mark.parametrize(
    ("system", "wanted", "colours"),
    [
        ("truecolor", True, 256),
        ("256", True, 256),
        ("standard", True, 16),
        (None, True, 0),
        ("256", False, 0),
    ],
)
def test_colour_count_follows_the_terminal(system: str | None, wanted: bool, colours: int) -> None:
    assert count_colours(system, is_wanted=wanted) == colours


class _Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def make_arguments(**options: bool) -> argparse.Namespace:
    return argparse.Namespace(**({"tui": False, "plain": False, "json": False, "quiet": False} | options))


def fake_terminals(patch: pytest.MonkeyPatch, but: str | None = None) -> None:
    """Make every stream but one a terminal. Called inside the test, because pytest replaces the streams
    earlier."""
    for name in ("stdin", "stdout", "stderr"):
        patch.setattr(sys, name, io.StringIO() if name == but else _Terminal())
    patch.setenv("TERM", "xterm-256color")


def test_dashboard_is_the_default_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_terminals(monkeypatch)
    assert choice.is_dashboard_chosen(make_arguments())
    for option in ("plain", "json", "quiet"):
        assert not choice.is_dashboard_chosen(make_arguments(**{option: True}))
    assert not choice.is_dashboard_chosen(make_arguments(), unless="COUNT")


STREAMS = {"stdin": "standard input", "stdout": "standard output", "stderr": "standard error"}


@pytest.mark.parametrize("name", STREAMS)
def test_a_pipe_gets_lines(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    fake_terminals(monkeypatch, but=name)
    assert not choice.is_dashboard_chosen(make_arguments())
    with pytest.raises(UsageError, match=f"--tui: {STREAMS[name]} "):
        choice.is_dashboard_chosen(make_arguments(tui=True))


def test_without_textual_there_are_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_terminals(monkeypatch)
    monkeypatch.setitem(sys.modules, "textual", None)
    assert not choice.is_dashboard_chosen(make_arguments())
    with pytest.raises(UsageError, match=r"-m pip install 'textual"):
        choice.is_dashboard_chosen(make_arguments(tui=True))


def test_incapable_terminal_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_terminals(monkeypatch)
    monkeypatch.setenv("TERM", "dumb")
    assert not choice.is_dashboard_chosen(make_arguments())
    fake_terminals(monkeypatch)
    monkeypatch.setattr(_Terminal, "encoding", "iso8859-1")
    assert not choice.is_dashboard_chosen(make_arguments())


class _EndlessSource:
    """A source that runs until it is stopped."""

    def __init__(self, fails: bool = False) -> None:
        self.stopped, self._fails = False, fails

    def stop(self) -> None:
        self.stopped = True

    def iter_entries(self) -> Iterator[RunEntry]:
        *entries, end = generate_run(8, seed=1)
        yield from entries
        if self._fails:
            raise UsageError("burnt")
        while not self.stopped:
            time.sleep(0.01)
        yield end


def run_headless(run: DashboardRun, keys: str) -> None:
    async def press() -> None:
        async with run.app.run_test(size=(80, 24)) as pilot:
            await pilot.pause(0.5)
            await pilot.press(*keys.split())
            for _ in range(300):
                if run.app._exit:
                    break
                await pilot.pause(0.01)

    run.app.run = lambda **_: asyncio.run(press())  # type: ignore[method-assign]
    run.run()


def test_quitting_prints_the_summary() -> None:
    source, past = _EndlessSource(), WatchHistory()
    run_headless(DashboardRun(source, RunPresenter(), past, stop=source.stop), "q")
    assert source.stopped
    assert sorted(one.device for one in past.finals) == ["nvme0n1", "sda", "sdb"]
    assert len(past.disks["sda"].moments) == 8


def test_whole_recording_is_shown_until_a_key_moves_the_view() -> None:
    looked = threading.Event()

    class File:
        def iter_entries(self) -> Iterator[RunEntry]:
            yield from generate_run(150, seed=1)
            # Wait, so that the run does not end before the keys are pressed.
            looked.wait(30)

    for keys, zoom in (("", 5), ("r", 1)):
        looked.clear()
        run = DashboardRun(File(), RunPresenter(), WatchHistory(), is_file=True)

        async def look(run: DashboardRun = run, keys: str = keys) -> None:
            async with run.app.run_test(size=(80, 24)) as pilot:
                await pilot.pause(0.2)
                await pilot.press(*keys.split())
                looked.set()
                for _ in range(500):
                    await pilot.pause(0.02)
                    if run.app.view.zoom_factor > 1 or (run.app.has_moved and run.has_ended):
                        break

        run.app.run = lambda **_: asyncio.run(look())  # type: ignore[method-assign]
        run.run()
        assert run.app.view.zoom_factor == zoom


def test_failure_of_the_run_is_raised() -> None:
    past = WatchHistory()
    with pytest.raises(UsageError, match="burnt"):
        run_headless(DashboardRun(_EndlessSource(fails=True), RunPresenter(), past), "")
    assert past.disks["sda"].moments


def test_a_recording_is_replayed_on_a_real_terminal(tmp_path: Path) -> None:
    path = tmp_path / "run.opw"
    path.write_bytes(gzip.decompress(RECORDING.read_bytes()))
    argv = [sys.executable, "-m", "opwatch", "replay", str(path)]
    status, written = run_on_terminal(argv, {b"q quit": b" ", b"PAUSED": b"q"}, {"TERM": "xterm-256color"})
    assert status == 0
    assert "PAUSED" in written
    # The terminal is restored: the normal screen, with a cursor.
    assert written.index("\x1b[?1049h") < written.index("\x1b[?1049l")
    assert "\x1b[?25h" in written
    status, plain = run_on_terminal(argv, {}, {"TERM": "dumb"})
    assert status == 0
    assert "\x1b" not in plain
    assert "== nvme0n1" in plain


class _FakeLiveRun(_EndlessSource):
    """A live run as the recorder sees it."""

    end: End | None = None
    status = 0
    command_cpu: CommandCpu | None = None

    @property
    def leaves(self) -> list[Leaf]:
        return []


def test_kept_hour_starts_after_the_first_shown_interval(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "_IN_MEMORY", (tmp_path,))
    monkeypatch.chdir(tmp_path)
    live, answers, shown = _FakeLiveRun(), list[str](), list[RunEntry]()
    with closing(DeferredHourRecorder(live, 1.0)) as hour:
        for entry in hour.iter_entries():
            shown.append(entry)
            before, ticks = (
                sum(isinstance(one, IntervalEnded) for one in some) for some in (shown[:-1], shown)
            )
            assert len([*tmp_path.glob("opwatch-shown-*")]) == bool(before)
            if len(shown) == 1:
                # Requested immediately, and written as soon as there are intervals.
                asking = threading.Thread(target=hour.write_recording, args=(answers.append,))
                asking.start()
            if (before, ticks) == (7, 8):
                asking.join()
                time.sleep(1)
                hour.write_recording(answers.append)
            live.stopped = ticks == 8
    assert not [*tmp_path.glob("opwatch-shown-*")]
    assert [text.partition(":")[0] for text in answers] == ["recorded", "recorded"]
    # The recording is complete, although its first entries were shown before it started.
    with closing(RecordedRun(Path(answers[-1].removeprefix("recorded: ").partition(";")[0]))) as run:
        entries = [*run.iter_entries()]
    for kind, count in ((DiskAdded, 3), (IntervalEnded, 7)):
        assert sum(isinstance(entry, kind) for entry in entries) == count


def test_leftovers_of_a_killed_dashboard_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders of a running dashboard, new folders and unrelated names stay."""
    monkeypatch.setattr(keeping, "_IN_MEMORY", (tmp_path,))
    left, shown, young, other = (
        tmp_path / f"opwatch-{name}" for name in ("shown-a", "shown-b", "shown-c", "x")
    )
    for folder in (left, shown, young, other):
        folder.mkdir(mode=0o700)
        (folder / "0000000001.opw").write_bytes(b"a segment")
    (tmp_path / "opwatch-shown-d").symlink_to(other)
    with closing(RingFolder(shown)) as ring:
        ring.lock_as_recorder()
        for folder in (left, shown, other):
            os.utime(folder, (1, 1))
        keeping._remove_abandoned(tmp_path)
    assert [folder.exists() for folder in (left, shown, young, other)] == [False, True, True, True]
    assert (other / "0000000001.opw").exists()
