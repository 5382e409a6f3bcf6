"""The only way out: whatever is printed goes through a Writer, and nothing in it can command a terminal."""

from __future__ import annotations

import contextlib
import io
import json
import locale
import os
import re
import select
import stat
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator, Mapping

from opwatch import units
from opwatch.errors import OpwatchError
from opwatch.sinks.plain.ink import END, Ink, Span

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TextIO

COLUMNS = 80
# How long a pipe may stay full once somebody has asked us to end.
PATIENCE_S = 1.0
_LOOK_S = 0.2
_CHUNK_BYTES = 4096
_SURROGATE = re.compile("[\ud800-\udfff]")
# What stands for these where the encoding lacks them; every other character becomes a question mark.
_SIGNS = {"±": "+-", "µ": "u", "├": "|", "└": "`", "─": "-", "│": "|", "…": "+"}
_BARS_FROM_THE_LOWEST = dict(zip("▁▂▃▄▅▆▇█", ".:-=+*#@", strict=True))
_ASCII = str.maketrans(_SIGNS | _BARS_FROM_THE_LOWEST)


class OutputLost(OpwatchError):
    """What was to be printed could not be."""


class _Hurry:
    """The moment from which on somebody wants us to end, in seconds of time.monotonic()."""

    since: float | None = None


def hurry() -> None:
    """A signal asks us to end: no write waits for ever from now on. Safe in a signal handler."""
    if _Hurry.since is None:
        _Hurry.since = time.monotonic()


def be_patient() -> None:
    """Take hurry() back: nobody has asked yet."""
    _Hurry.since = None


def _descriptor(stream: TextIO) -> int | None:
    try:
        return stream.fileno()
    except (io.UnsupportedOperation, AttributeError, ValueError):
        return None


def _encoding_of(stream: TextIO) -> str:
    """What the stream's reader can show. In the locale C that is ASCII: Python writes UTF-8 there all the
    same, which its terminal need not know."""
    given = os.environ.get("PYTHONIOENCODING") or os.environ.get("PYTHONUTF8")
    if not given and _descriptor(stream) is not None and locale.setlocale(locale.LC_CTYPE) in ("C", "POSIX"):
        return "ascii"
    return stream.encoding or "utf-8"


def _without_surrogates(value: object) -> object:
    """The same document with U+FFFD for each lone surrogate in its texts and names."""
    if isinstance(value, str):
        return _SURROGATE.sub("\ufffd", value)
    if isinstance(value, Mapping):
        return {_without_surrogates(name): _without_surrogates(member) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [_without_surrogates(member) for member in value]
    return value


def encodable(line: str, encoding: str) -> str:
    """The line without what a terminal would obey or this encoding cannot say."""
    line = units.printable(line)
    try:
        line.encode(encoding)
    except UnicodeEncodeError:
        return "".join(_shown(char, encoding) for char in line)
    return line


def _shown(char: str, encoding: str) -> str:
    try:
        char.encode(encoding)
    except UnicodeEncodeError:
        return char.translate(_ASCII).encode(encoding, "replace").decode(encoding)
    return char


def width_of(stream: TextIO) -> int | None:
    """Columns of the terminal that the stream is; None for a pipe or a file, in which nothing is cut."""
    if not stream.isatty():
        return None
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given):
        return int(given)
    # This stream is asked, not standard output, which may be a file.
    try:
        return os.get_terminal_size(stream.fileno()).columns or COLUMNS
    except (OSError, ValueError):
        return COLUMNS


def _reopened(descriptor: int) -> int | None:
    """A pipe or a terminal opened anew, so that a write to it does not block: O_NONBLOCK on the descriptor
    itself would be seen by everybody who shares it, our command for one. None where that cannot be done."""
    mode = os.fstat(descriptor).st_mode
    if not (stat.S_ISFIFO(mode) or os.isatty(descriptor)):
        return None
    try:
        return os.open(
            f"/proc/self/fd/{descriptor}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        )
    except OSError:
        return None


class _Pipe:
    """Writes bytes to a descriptor, and gives up when it is full and hurry() was called."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._own = _reopened(descriptor)
        self._poll = select.poll()
        self._poll.register(descriptor if self._own is None else self._own, select.POLLOUT)

    def write(self, data: bytes) -> None:
        view, moved = memoryview(data), time.monotonic()
        while view:
            room = self._poll.poll(_LOOK_S * 1000)
            try:
                done = self._some(view) if room else 0
            except BlockingIOError:
                # There is room, but not for a write that must not be torn apart.
                done = 0
                time.sleep(_LOOK_S / 20)
            if done:
                view, moved = view[done:], time.monotonic()
            elif _Hurry.since is not None and time.monotonic() - max(moved, _Hurry.since) > PATIENCE_S:
                raise OutputLost("nobody reads the output; what was not read yet is lost")

    def _some(self, view: memoryview) -> int:
        if self._own is not None:
            return os.write(self._own, view)
        # No more than surely has room behind POLLOUT.
        return os.write(self._descriptor, view[:_CHUNK_BYTES])

    def close(self) -> None:
        if self._own is not None:
            os.close(self._own)
            self._own = None

    def __del__(self) -> None:
        self.close()


class PaintedTerminal:
    """A terminal that somebody else paints on: what is written goes there as it is. Once it has gone, or
    nobody reads it and we are in a hurry, all is lost without a word: who paints never waits for ever."""

    def __init__(self, stream: TextIO) -> None:
        stream.flush()
        self._stream, self._pipe = stream, _Pipe(stream.fileno())
        self._is_lost = False

    def write(self, text: str) -> int:
        if not self._is_lost:
            try:
                self._pipe.write(text.encode(self._stream.encoding, "replace"))
            except (OSError, OutputLost):
                self._is_lost = True
        return len(text)

    def flush(self) -> None:
        """Do nothing: what is written is there."""

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._stream.fileno()


class Writer:
    """Prints lines to a stream. A closed pipe raises BrokenPipeError, whatever else goes wrong OutputLost."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._encoding = _encoding_of(stream)
        descriptor = _descriptor(stream)
        self._pipe = None if descriptor is None else _Pipe(descriptor)

    @property
    def width(self) -> int | None:
        """The columns of the stream, as width_of() gives them."""
        return width_of(self._stream)

    def line(self, text: str = "") -> None:
        """One line: a newline in the text is one more character that is not shown."""
        self.lines((text,))

    def lines(self, texts: Iterable[str]) -> None:
        self._put("".join(encodable(text, self._encoding) + "\n" for text in texts))

    def inked(self, lines: Iterable[Iterable[Span]]) -> None:
        """Lines of pieces with colours, which come from here alone: one in a text is shown, not obeyed."""
        self._put("".join("".join(map(self._inked, line)) + "\n" for line in lines))

    def _inked(self, span: Span) -> str:
        text, ink = encodable(span[0], self._encoding), span[1]
        return text if ink is Ink.PLAIN or not text else f"{ink.value}{text}{END}"

    def page(self, lines: Iterable[Iterable[Span]]) -> None:
        """Lines of pieces in place of all that the terminal shows; only for a terminal."""
        self._put("\x1b[H\x1b[J" + "".join("".join(map(self._inked, line)) + "\n" for line in lines))

    def json(self, document: object, indent: int | None = None) -> None:
        """One document. JSON has its own escapes, for all but DEL; bytes of names that are no UTF-8 become
        U+FFFD, because most parsers refuse half of a surrogate pair."""
        text = json.dumps(document, indent=indent)
        if "\\ud" in text:
            text = json.dumps(_without_surrogates(document), indent=indent)
        self._put(text.replace("\x7f", "\\u007f") + "\n")

    def part(self, text: str) -> None:
        """Text without the end of a line, for what is written over later: see over()."""
        self._put(encodable(text, self._encoding))

    def over(self, text: str) -> None:
        """Text in place of the line begun before; only for a terminal."""
        self._put("\r\x1b[K" + encodable(text, self._encoding))

    def _put(self, text: str) -> None:
        try:
            if self._pipe is None:
                self._stream.write(text)
                self._stream.flush()
            else:
                self._stream.flush()
                self._pipe.write(text.encode(self._encoding, "replace"))
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OutputLost(f"cannot write the output: {error.strerror}") from error


def data() -> Writer:
    """Standard output, which is for data."""
    return Writer(sys.stdout)


class _Listener:
    """Who hears talk in place of standard error, while the terminal is all theirs."""

    hears: Callable[[str], None] | None = None


@contextlib.contextmanager
def hearing(listener: Callable[[str], None]) -> Iterator[None]:
    """Have this called with all that is said meanwhile, by any thread."""
    _Listener.hears = listener
    try:
        yield
    finally:
        _Listener.hears = None


def say(text: str, head: str = "opwatch: ") -> None:
    """A line of talk to standard error, folded on a terminal. That nobody listens is no reason to fail."""
    if _Listener.hears:
        _Listener.hears(text)
        return
    try:
        writer = Writer(sys.stderr)
        width = writer.width
        shown = units.printable(head + text)
        texts = [shown]
        if width and len(shown) > width:
            texts = textwrap.wrap(
                shown, width, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
            )
        writer.lines(texts)
    except (OSError, OutputLost, ValueError):
        return


class Progress:
    """One line of talk that is written over, on standard error: only where that is a terminal."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._writer = Writer(sys.stderr)
        self._is_shown = not quiet and self._writer.width is not None
        self._is_begun = False

    def show(self, text: str) -> None:
        """Put this in place of what was shown before, in one line."""
        if self._is_shown:
            # A line that is as wide as the terminal would wrap, and not be written over.
            self._over(units.printable(text)[: max((self._writer.width or COLUMNS) - 1, 1)])
            self._is_begun = True

    def clear(self) -> None:
        """Take the line away, before anything else is printed."""
        if self._is_begun:
            self._is_begun = False
            self._over("")

    def _over(self, text: str) -> None:
        with contextlib.suppress(OSError, OutputLost, ValueError):
            self._writer.over(text)


def abandon() -> None:
    """What Python would flush to standard output on its way out has nowhere to go."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
