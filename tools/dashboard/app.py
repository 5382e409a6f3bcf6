"""The terminal screen: keys in, rows out. opwatch.sinks.dashboard computes the contents."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual.app import App, ComposeResult
from textual.events import Key, Resize
from textual.strip import Strip
from textual.widget import Widget

from opwatch.sinks.dashboard.history import WatchHistory
from opwatch.sinks.dashboard.screen import MARGIN, Frame, draw_screen
from opwatch.sinks.dashboard.view import View
from opwatch.tools.dashboard.hangup import ResilientDriver
from opwatch.tools.dashboard.paint import Painter, count_colours, make_strips

# Shortest time between redraws in seconds, however much data arrives.
_REDRAW_S = 0.1
_OPS = {"r": "read", "w": "write", "d": "discard", "f": "flush", "x": "other", "a": None}
_SCROLL = {"left": -1, "right": 1, "pageup": -60, "pagedown": 60}
_DISKS = {"up": -1, "down": 1, "tab": 1, "shift+tab": -1}
_ZOOM = {"plus": 1, "equals_sign": 1, "minus": -1}


class Board(Widget):
    """The whole screen as lines."""

    can_focus = True
    DEFAULT_CSS = "Board { width: 100%; height: 100%; background: ansi_default; color: ansi_default; }"

    def __init__(
        self, past: WatchHistory, view: View, frame: Callable[[int, int], Frame], painter: Painter
    ) -> None:
        super().__init__()
        self._past, self._view, self._frame, self._painter = past, view, frame, painter
        self._lines: list[Strip] = []

    def draw(self) -> None:
        """Compute the visible rows, and redraw the lines that changed."""
        width, height = self.size
        if not width or not height:
            return
        self._view.follow_busiest(self._past)
        rows = draw_screen(self._past, self._view, self._frame(width, height))
        self._lines = make_strips(self._painter, rows, width)
        self.refresh()

    def render_line(self, y: int) -> Strip:
        return self._lines[y] if y < len(self._lines) else Strip.blank(self.size.width)

    def on_resize(self, event: Resize) -> None:
        self.draw()


class DashboardApp(App[None]):
    """Displays a past. `stop` asks the run to end; `keep` saves the kept data as a recording and reports its
    path. Both return immediately."""

    ENABLE_COMMAND_PALETTE = False
    CSS = "Screen { background: ansi_default; color: ansi_default; overflow: hidden; }"
    BINDINGS: ClassVar = []

    def __init__(
        self,
        past: WatchHistory,
        view: View,
        frame: Callable[[int, int], Frame],
        *,
        is_coloured: bool,
        begin: Callable[[], None] = lambda: None,
        stop: Callable[[], None] = lambda: None,
        keep: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(driver_class=ResilientDriver, ansi_color=True)
        self.past, self.view = past, view
        self._frame, self._begin, self._stop, self._keep = frame, begin, stop, keep
        colours = count_colours(self.console.color_system, is_wanted=is_coloured)
        self._painter = Painter(colours)
        self._is_due = False
        self._is_first = True
        self._asked_to_stop = 0
        # True once the user has changed the view.
        self.has_moved = False

    def compose(self) -> ComposeResult:
        yield Board(self.past, self.view, self._frame, self._painter)

    def on_mount(self) -> None:
        self._begin()

    def schedule_redraw(self) -> None:
        """Schedule a redraw after an addition to the past."""
        if self._is_first:
            # Draw the first data immediately.
            self._is_first = False
            self._redraw_boards()
        elif not self._is_due:
            self._is_due = True
            self.set_timer(_REDRAW_S, self._redraw_boards)

    def _redraw_boards(self) -> None:
        self._is_due = False
        # A key may arrive before the board exists, and a timer may fire after it is gone.
        for board in self.query(Board):
            board.draw()

    def on_key(self, event: Key) -> None:
        event.stop()
        event.prevent_default()
        key = event.key
        if key in ("q", "ctrl+c", "ctrl+q"):
            self._request_quit()
        elif key in ("question_mark", "h", "f1"):
            self.view.is_help = not self.view.is_help
        elif key == "escape":
            self.view.is_help = False
            self.past.clear_note()
        elif key == "o":
            self._save_recording()
        else:
            self._handle_move(key)
        self._redraw_boards()

    def _handle_move(self, key: str) -> None:
        view, past = self.view, self.past
        self.has_moved = True
        view.pin_disk(past)
        if key in _OPS:
            view.chosen_op = _OPS[key]
        elif key in _SCROLL:
            view.scroll(past, _SCROLL[key])
        elif key in _DISKS:
            view.select_next_disk(past, _DISKS[key])
        elif key in _ZOOM:
            view.zoom_by(_ZOOM[key])
        elif key == "space":
            view.toggle_pause(past)
        elif key == "home":
            view.scroll_to_oldest(past)
        elif key == "end":
            view.show_newest()

    def _save_recording(self) -> None:
        if self._keep:
            self._keep()
        else:
            self.past.set_message("o: this is already a recording")

    def _request_quit(self) -> None:
        """Ask the run to end; the second time, leave without waiting for it."""
        self._asked_to_stop += 1
        if self._asked_to_stop > 1:
            self.exit()
            return
        self._stop()

    @property
    def chart_width(self) -> int:
        """Return the columns of a heat map."""
        return max(self.size.width - MARGIN - 1, 10)
