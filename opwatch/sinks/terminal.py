"""Single path for all output: a Writer escapes every character that could control a terminal."""

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
from typing import TextIO

from opwatch import units
from opwatch.errors import OpwatchError
from opwatch.sinks.tones import CODES, END, Span

COLUMNS = 80
# Longest time in seconds that a full pipe may block a write after a signal has asked us to end.
MAX_BLOCKED_S = 1.0
_POLL_S = 0.2
_CHUNK_BYTES = 4096
_SURROGATE = re.compile("[\ud800-\udfff]")
# ASCII replacements for limited encodings; any other character becomes a question mark.
_ASCII_SIGNS = {"±": "+-", "µ": "u", "├": "|", "└": "`", "─": "-", "│": "|", "…": "+", "→": "->", "°": ""}
_ASCII_BARS = dict(zip("▁▂▃▄▅▆▇█", ".:-=+*#@", strict=True))
_ASCII = str.maketrans(_ASCII_SIGNS | _ASCII_BARS)


class OutputLost(OpwatchError):
    """Output could not be written."""


class _EndRequest:
    """Time of the first request to end, in seconds of time.monotonic(), or None."""

    since: float | None = None


def limit_blocking() -> None:
    """Limit how long writes may block from now on, because a signal asks us to end. Safe in a signal
    handler."""
    if _EndRequest.since is None:
        _EndRequest.since = time.monotonic()


def allow_blocking() -> None:
    """Undo limit_blocking(): let writes block without a limit."""
    _EndRequest.since = None


def _get_descriptor(stream: TextIO) -> int | None:
    try:
        return stream.fileno()
    except (io.UnsupportedOperation, AttributeError, ValueError):
        return None


def _find_encoding(stream: TextIO) -> str:
    """Return the encoding that the stream's reader can show.

    In the C locale Python writes UTF-8, but the terminal may only understand ASCII, so return ASCII there.
    """
    given = os.environ.get("PYTHONIOENCODING") or os.environ.get("PYTHONUTF8")
    if (
        not given
        and _get_descriptor(stream) is not None
        and locale.setlocale(locale.LC_CTYPE) in ("C", "POSIX")
    ):
        return "ascii"
    return stream.encoding or "utf-8"


def _replace_surrogates(value: object) -> object:
    """Return the same document with U+FFFD for each lone surrogate in its strings and keys."""
    if isinstance(value, str):
        return _SURROGATE.sub("\ufffd", value)
    if isinstance(value, Mapping):
        return {_replace_surrogates(name): _replace_surrogates(member) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [_replace_surrogates(member) for member in value]
    return value


def make_encodable(line: str, encoding: str) -> str:
    """Return the line without control characters, and with replacements for characters the encoding lacks."""
    line = units.replace_unprintable(line)
    try:
        line.encode(encoding)
    except UnicodeEncodeError:
        return "".join(_replace_unencodable(char, encoding) for char in line)
    return line


def _replace_unencodable(char: str, encoding: str) -> str:
    try:
        char.encode(encoding)
    except UnicodeEncodeError:
        return char.translate(_ASCII).encode(encoding, "replace").decode(encoding)
    return char


def get_width(stream: TextIO) -> int | None:
    """Return the columns of the terminal behind the stream, or None for a pipe or a file, where no line is
    cut."""
    if not stream.isatty():
        return None
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given):
        return int(given)
    # Query this stream rather than standard output, which may be a file.
    try:
        return os.get_terminal_size(stream.fileno()).columns or COLUMNS
    except (OSError, ValueError):
        return COLUMNS


def _reopen_nonblocking(descriptor: int) -> int | None:
    """Reopen a pipe or a terminal for non-blocking writes, or return None if impossible.

    Setting O_NONBLOCK on the descriptor itself would affect every process sharing the descriptor, such as the
    command that opwatch runs.
    """
    mode = os.fstat(descriptor).st_mode
    if not (stat.S_ISFIFO(mode) or os.isatty(descriptor)):
        return None
    try:
        return os.open(
            f"/proc/self/fd/{descriptor}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        )
    except OSError:
        return None


class _PipeWriter:
    """Writes bytes to a descriptor, and gives up if the descriptor is full after limit_blocking()."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._own = _reopen_nonblocking(descriptor)
        self._poll = select.poll()
        self._poll.register(descriptor if self._own is None else self._own, select.POLLOUT)

    def write(self, data: bytes) -> None:
        view, moved = memoryview(data), time.monotonic()
        while view:
            room = self._poll.poll(_POLL_S * 1000)
            try:
                done = self._write_some(view) if room else 0
            except BlockingIOError:
                # The descriptor has space, but not enough for a write that must be atomic.
                done = 0
                time.sleep(_POLL_S / 20)
            if done:
                view, moved = view[done:], time.monotonic()
            elif (
                _EndRequest.since is not None
                and time.monotonic() - max(moved, _EndRequest.since) > MAX_BLOCKED_S
            ):
                raise OutputLost("no process reads the output; the unread part is lost")

    def _write_some(self, view: memoryview) -> int:
        if self._own is not None:
            return os.write(self._own, view)
        # POLLOUT guarantees space for this many bytes only.
        return os.write(self._descriptor, view[:_CHUNK_BYTES])

    def close(self) -> None:
        if self._own is not None:
            os.close(self._own)
            self._own = None

    def __del__(self) -> None:
        self.close()


class PaintedTerminal:
    """A terminal under the control of another component: text passes through unescaped.

    Once the terminal is gone, or is full after limit_blocking(), further text is dropped silently instead of
    blocking the caller forever.
    """

    def __init__(self, stream: TextIO) -> None:
        stream.flush()
        self._stream, self._pipe = stream, _PipeWriter(stream.fileno())
        self._is_lost = False

    def write(self, text: str) -> int:
        if not self._is_lost:
            try:
                self._pipe.write(text.encode(self._stream.encoding, "replace"))
            except (OSError, OutputLost):
                self._is_lost = True
        return len(text)

    def flush(self) -> None:
        """Do nothing, because write() does not buffer."""

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._stream.fileno()


class Writer:
    """Prints lines to a stream. Raises BrokenPipeError for a closed pipe and OutputLost for any other
    failure."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._encoding = _find_encoding(stream)
        descriptor = _get_descriptor(stream)
        self._pipe = None if descriptor is None else _PipeWriter(descriptor)

    @property
    def width(self) -> int | None:
        """Return the columns of the stream, as get_width() does."""
        return get_width(self._stream)

    def write_line(self, text: str = "") -> None:
        """Print one line. A newline in the text is escaped like any other control character."""
        self.write_lines((text,))

    def write_lines(self, texts: Iterable[str]) -> None:
        self._write_text("".join(make_encodable(text, self._encoding) + "\n" for text in texts))

    def write_spans(self, lines: Iterable[Iterable[Span]]) -> None:
        """Print lines of coloured spans. Colour codes come from the tone only; escape sequences in a text are
        shown."""
        self._write_text("".join("".join(map(self._colour_span, line)) + "\n" for line in lines))

    def _colour_span(self, span: Span) -> str:
        text, code = make_encodable(span[0], self._encoding), CODES.get(span[1])
        return f"{code}{text}{END}" if code and text else text

    def draw_page(self, lines: Iterable[Iterable[Span]]) -> None:
        """Clear the terminal and print lines of coloured spans. Only for a terminal."""
        self._write_text(
            "\x1b[H\x1b[J" + "".join("".join(map(self._colour_span, line)) + "\n" for line in lines)
        )

    def write_json(self, document: object, indent: int | None = None) -> None:
        """Print one JSON document.

        json.dumps() escapes every control character except DEL. Invalid UTF-8 in names becomes U+FFFD,
        because most parsers reject a lone surrogate.
        """
        text = json.dumps(document, indent=indent)
        if "\\ud" in text:
            text = json.dumps(_replace_surrogates(document), indent=indent)
        self._write_text(text.replace("\x7f", "\\u007f") + "\n")

    def overwrite_line(self, text: str) -> None:
        """Replace the unfinished line with this text. Only for a terminal."""
        self._write_text("\r\x1b[K" + make_encodable(text, self._encoding))

    def _write_text(self, text: str) -> None:
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


def open_stdout() -> Writer:
    """Return a writer to standard output, which carries data only."""
    return Writer(sys.stdout)


class _Listener:
    """Callback that receives messages instead of standard error while a full-screen view owns the
    terminal."""

    hears: Callable[[str], None] | None = None


@contextlib.contextmanager
def redirect_messages(listener: Callable[[str], None]) -> Iterator[None]:
    """Pass every message of every thread to this listener inside the context."""
    _Listener.hears = listener
    try:
        yield
    finally:
        _Listener.hears = None


def print_message(text: str, head: str = "opwatch: ") -> None:
    """Print a message to standard error, wrapped on a terminal. A failure to write it is ignored."""
    if _Listener.hears:
        _Listener.hears(text)
        return
    try:
        writer = Writer(sys.stderr)
        width = writer.width
        shown = units.replace_unprintable(head + text)
        texts = [shown]
        if width and len(shown) > width:
            texts = textwrap.wrap(
                shown, width, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
            )
        writer.write_lines(texts)
    except (OSError, OutputLost, ValueError):
        return


class Progress:
    """A progress line on standard error that is overwritten in place. Shown only on a terminal."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._writer = Writer(sys.stderr)
        self._is_shown = not quiet and self._writer.width is not None
        self._is_begun = False

    def show_text(self, text: str) -> None:
        """Replace the progress line with this text."""
        if self._is_shown:
            # A line as wide as the terminal would wrap, and could not be overwritten.
            self._overwrite_line(
                units.replace_unprintable(text)[: max((self._writer.width or COLUMNS) - 1, 1)]
            )
            self._is_begun = True

    def clear(self) -> None:
        """Clear the progress line before other output."""
        if self._is_begun:
            self._is_begun = False
            self._overwrite_line("")

    def _overwrite_line(self, text: str) -> None:
        with contextlib.suppress(OSError, OutputLost, ValueError):
            self._writer.overwrite_line(text)


def discard_stdout() -> None:
    """Redirect standard output to /dev/null, so that Python's flush at exit does not fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
