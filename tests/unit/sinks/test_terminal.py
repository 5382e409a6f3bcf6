"""All output goes through one writer, and no output controls the terminal."""

from __future__ import annotations

import ast
import contextlib
import errno
import fcntl
import io
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from opwatch.counters.reading import CounterReading, DriveFacts, Proof, Report
from opwatch.errors import OpwatchError
from opwatch.sinks import terminal
from opwatch.sinks.counters import format_counters as counter_lines
from opwatch.sinks.jsonl import JsonLines
from opwatch.sinks.lines import TextLines
from opwatch.sinks.rows import CsvRows, JsonRows
from opwatch.sinks.terminal import OutputLost, Writer, print_message
from opwatch.tools import cli
from opwatch.trim.audit.live import DiscardSummary, Sender
from tests.unit.sinks.test_jsonl import BUSY, make_observation

ROOT = Path(__file__).parents[3]
# ESC, BEL, a newline, C1 (CSI as one byte), DEL, a right-to-left override and mark, a line separator, a lone
# surrogate (an invalid UTF-8 byte).
EVIL = "a\x1b[31mb\x07c\nd\x9b31me\x7ff\u202eg\u200fh\u2028i\udc9bj"
SHOWN = "a?[31mb?c?d?31me?f?g?h?i?j"


def find_printing_calls(source: str) -> list[str]:
    called = [ast.unparse(node.func) for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    forbidden = ("sys.stdout.write", "sys.stderr.write", "stream.write", "out.write", "self._stream.write")
    return [name for name in called if name in ("print", "input", *forbidden)]


def test_only_the_terminal_module_prints() -> None:
    modules = [
        path
        for top in ("tools", "opwatch", "collectors")
        for path in (ROOT / top).rglob("*.py")
        if not any(parent.is_symlink() for parent in path.parents) and path.name != "terminal.py"
    ]
    assert len(modules) > 100
    calls_by_file = {str(path.relative_to(ROOT)): find_printing_calls(path.read_text()) for path in modules}
    assert {name: calls for name, calls in calls_by_file.items() if calls} == {}


def test_print_detection_finds_a_print() -> None:
    assert find_printing_calls("if x:\n    print('x')") == ["print"]
    assert find_printing_calls("sys.stderr.write('x')") == ["sys.stderr.write"]


def is_harmless(text: str) -> bool:
    return all(char.isprintable() or char == "\n" for char in text)


def show_lines(final: bool) -> str:
    stream = io.StringIO()
    sender = Sender(EVIL, EVIL, EVIL, "discard", False, 1, 4096, 4096, 4096, 0)
    interval = make_observation(final=final, read=BUSY)
    discards = DiscardSummary((sender,), 1, 1, 1, 1, 4096, 1.0, 1.0, 5.0, (), 0)
    TextLines(stream).write_observation(
        replace(interval, device=EVIL, origin=EVIL, level=EVIL, discards=discards)
    )
    return stream.getvalue()


def show_json() -> str:
    stream = io.StringIO()
    JsonLines(stream).write_observation(replace(make_observation(read=BUSY), device=EVIL))
    assert json.loads(stream.getvalue())["device"] == EVIL.replace("\udc9b", "\ufffd")
    return stream.getvalue()


def show_rows() -> str:
    stream = io.StringIO()
    for sink in (CsvRows(stream, ("device", "unexplained")), JsonRows(stream, ("device",))):
        sink.write_observation(replace(make_observation(read=BUSY), device=EVIL))
    return stream.getvalue()


def show_counters() -> str:
    stream = io.StringIO()
    reading = CounterReading(7, EVIL, 1, EVIL, Proof.SPEC, caveat=EVIL)
    counters = Report(
        DriveFacts(name=EVIL, model=EVIL, firmware=EVIL), {"host_written": reading}, {}, (EVIL,)
    )
    Writer(stream).write_lines(counter_lines(counters))
    return stream.getvalue()


SINKS: dict[str, Callable[[], str]] = {
    "an interval": lambda: show_lines(False),
    "a summary": lambda: show_lines(True),
    "JSON": show_json,
    "rows": show_rows,
    "counters": show_counters,
}


@pytest.mark.parametrize("name", SINKS)
def test_no_sink_prints_escape_sequences(name: str) -> None:
    text = SINKS[name]()
    assert "31m" in text
    assert is_harmless(text)


def test_name_is_printed_on_a_single_line(capsys: pytest.CaptureFixture[str]) -> None:
    Writer(sys.stdout).write_line(EVIL)
    print_message(EVIL)
    cli.report_error(OpwatchError(EVIL))
    output = capsys.readouterr()
    assert output.out == SHOWN + "\n"
    assert output.err == f"opwatch: {SHOWN}\n" * 2


@pytest.mark.parametrize(
    "argv", [["--" + EVIL], [EVIL], ["waf", "--dev", "sda", EVIL], ["drive", EVIL], ["trim", EVIL]]
)
def test_printed_arguments_have_no_control_codes(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with contextlib.suppress(SystemExit):
        assert cli.main(argv) == 2
    output = capsys.readouterr()
    assert is_harmless(output.out + output.err)
    assert output.err


SHOW = (
    "from opwatch.sinks.terminal import open_stdout, print_message; "
    "open_stdout().write_line('1 ± 2 µs é… → °C'); print_message('1 ± 2')"
)


@pytest.mark.parametrize(
    ("environment", "out"),
    [
        ({"LC_ALL": "C"}, b"1 +- 2 us ?+ -> C\n"),
        ({"LC_ALL": "C.UTF-8"}, "1 ± 2 µs é… → °C\n".encode()),
        ({"LC_ALL": "C.UTF-8", "PYTHONIOENCODING": "ascii"}, b"1 +- 2 us ?+ -> C\n"),
        ({"LC_ALL": "C.UTF-8", "PYTHONIOENCODING": "latin-1"}, b"1 \xb1 2 \xb5s \xe9+ -> \xb0C\n"),
    ],
)
def test_unsupported_characters_are_replaced(environment: dict[str, str], out: bytes) -> None:
    foreign = ("LC_", "PYTHON", "LANG")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    done = subprocess.run(
        [sys.executable, "-c", SHOW], capture_output=True, env=kept | environment, check=False
    )
    assert (done.stdout, done.returncode) == (out, 0), done.stderr


@pytest.fixture
def full_pipe() -> Iterator[tuple[int, io.TextIOWrapper]]:
    """Yield a full pipe without a reader: its read end, and a stream on the write end."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    for size in (65536, 1):
        while True:
            try:
                os.write(writing, b"x" * size)
            except BlockingIOError:
                break
    os.set_blocking(writing, True)
    stream = os.fdopen(writing, "w")
    yield reading, stream
    terminal.allow_blocking()
    os.close(reading)
    stream.close()


def test_full_pipe_blocks_until_its_reader_reads(full_pipe: tuple[int, io.TextIOWrapper]) -> None:
    reading, stream = full_pipe
    got = bytearray()

    def read_later() -> None:
        time.sleep(0.3)
        while not got.endswith(b"the end\n"):
            got.extend(os.read(reading, 65536))

    reader = threading.Thread(target=read_later)
    reader.start()
    Writer(stream).write_lines(["y" * 100_000, "the end"])
    reader.join(10)
    assert got.endswith(b"y" * 100_000 + b"\nthe end\n")
    assert os.get_blocking(stream.fileno()), "others share the pipe: it must stay as it was"


def test_full_pipe_is_abandoned_at_shutdown(full_pipe: tuple[int, io.TextIOWrapper]) -> None:
    _, stream = full_pipe
    threading.Timer(0.3, terminal.limit_blocking).start()
    begun = time.monotonic()
    with pytest.raises(OutputLost) as lost:
        Writer(stream).write_line("one more")
    assert lost.value.__cause__ is None
    assert 0.3 + terminal.MAX_BLOCKED_S <= time.monotonic() - begun < 0.3 + terminal.MAX_BLOCKED_S + 3
    assert not fcntl.fcntl(stream.fileno(), fcntl.F_GETFL) & os.O_NONBLOCK


def test_full_disk_is_reported_as_an_error() -> None:
    done = subprocess.run(
        ["bash", "-c", '"$0" -m opwatch devices --json > /dev/full', sys.executable],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert line.startswith("opwatch: ") and os.strerror(errno.ENOSPC) in line


def test_closed_pipe_is_not_an_error() -> None:
    done = subprocess.run(
        ["bash", "-c", '"$0" -m opwatch devices -a -v | true; exit ${PIPESTATUS[0]}', sys.executable],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_unwritable_standard_error_is_ignored() -> None:
    for where in ("/dev/full", "/dev/null"):
        done = subprocess.run(
            ["bash", "-c", '"$0" -m opwatch devices nosuchdisk 2> ' + where, sys.executable],
            capture_output=True,
            check=False,
        )
        assert done.returncode == 2


def test_json_has_no_half_of_a_surrogate_pair() -> None:
    """A name that is invalid UTF-8, or a foreign \\ud800: strict parsers refuse both."""
    stream = io.StringIO()
    Writer(stream).write_json({"a\udcff": ["\ud800x", "\U0001f600", "\\ud800", 5, None], "b": ("\udc80",)})
    text = stream.getvalue()
    assert json.loads(text) == {"a\ufffd": ["\ufffdx", "\U0001f600", "\\ud800", 5, None], "b": ["\ufffd"]}
    json.loads(text)["a\ufffd"][0].encode()
