"""Colours and sparklines of plain lines add to the text and never change it."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from opwatch.samples.observation import Observation
from opwatch.sinks.columns import (
    HEADER,
    draw_latency_shape,
    format_header,
    format_row,
    format_wait_rows,
    read_figures,
)
from opwatch.sinks.jsonl import build_op_document
from opwatch.sinks.lines import LEGEND, TextLines, paint_bar, paint_title, paint_trust
from opwatch.sinks.tones import CODES, END, Span, Tone, is_colour_wanted
from opwatch.trace.abi import LATENCY
from opwatch.trace.contexts import BLIND_CONTEXT
from opwatch.trace.hist import Histogram
from opwatch.trace.kernel_times import KernelTimes, MeanAwait
from opwatch.trace.trust import Drift
from opwatch.trace.unavailable import DEPTH, ERRORS, SEQUENTIAL
from tests.unit.sinks.test_jsonl import BUSY, change_account, make_observation
from tests.unit.support.samples import Op

_SGR = re.compile(r"\x1b\[[0-9;]*m")


class _Terminal(io.StringIO):
    """A terminal with the width in COLUMNS."""

    def isatty(self) -> bool:
        return True


def format_observations(
    observations: list[Observation], *, stream: io.StringIO | None = None, inked: bool = False
) -> str:
    stream = stream or io.StringIO()
    lines = TextLines(stream, every_s=1.0, inked=inked)
    for one in observations:
        lines.write_observation(one)
    return stream.getvalue()


@pytest.fixture
def watched() -> list[Observation]:
    busy = make_observation(read=Op([20_000], [4096]), write=replace(BUSY, statuses={7: 3}))
    busy = change_account(busy, no_drift=None)
    lost = change_account(busy, overwritten=2)
    return [busy, lost, make_observation(), replace(lost, final=True), replace(busy, final=True)]


@pytest.mark.parametrize("paint", [paint_title, paint_trust, paint_bar])
def test_painting_keeps_the_text(paint: Callable[[str], list[Span]], watched: list[Observation]) -> None:
    for line in [*format_observations(watched).splitlines(), "", "|", " in queue", "a|b|c", "x  ! y  ! z"]:
        assert "".join(text for text, _ in paint(line)) == line


def test_lines_without_colours_are_the_same_text(watched: list[Observation]) -> None:
    plain = format_observations(watched)
    assert "\x1b" not in plain
    assert LEGEND not in plain
    assert _SGR.sub("", format_observations(watched, inked=True)).replace(LEGEND + "\n", "") == plain
    assert len(LEGEND) <= 80


def test_terminal_of_80_columns_shows_the_same_as_a_pipe(
    watched: list[Observation], monkeypatch: pytest.MonkeyPatch
) -> None:
    for columns in ("80", "119"):
        monkeypatch.setenv("COLUMNS", columns)
        assert format_observations(watched, stream=_Terminal()) == format_observations(watched)


def test_problems_are_highlighted(watched: list[Observation]) -> None:
    text = format_observations(watched, inked=True)
    [loss] = watched[1].losses
    assert "2" in loss.words
    for wrong in (f"  ! {loss.brief}", "write errors, medium: 3", f"  UNEXPLAINED: {loss.words}"):
        assert f"{CODES[Tone.ALARM]}{wrong}" in text
    assert f"{CODES[Tone.ALARM]}trust:" in text
    assert f"{CODES[Tone.GOOD]}trust:" in text
    rows = [line for line in text.splitlines() if "write\x1b" in line or "write  " in line]
    assert any(f"{CODES[Tone.ALARM]}3" in row for row in rows)


def test_loss_with_a_known_cause_is_a_single_line_without_alarm() -> None:
    lost = change_account(
        make_observation(read=Op([20_000], [4096])),
        is_blind=True,
        overwritten=1,
        no_drift=None,
        drift={"read": Drift(1, 0)},
        byte_drift={"read": Drift(4096, 0)},
    )
    text = format_observations([lost, replace(lost, final=True)], inked=True)
    assert CODES[Tone.ALARM] not in text
    summary = _SGR.sub("", text).partition("==")[2].replace("\n    ", " ")
    [loss] = lost.losses
    assert "1 read (4096 bytes)" in loss.words and BLIND_CONTEXT in loss.words
    assert [line for line in summary.splitlines() if BLIND_CONTEXT in line] == [f"  {loss.words}"]


def test_only_errors_of_a_row_are_an_alarm(watched: list[Observation]) -> None:
    op = watched[0].interval.ops["read"]
    for errors, shown, tone in ((0, "0", Tone.PLAIN), (7, "7", Tone.ALARM), (12_345, "12k", Tone.ALARM)):
        figures = read_figures(build_op_document(replace(op, errors=errors), 1.0))
        assert format_row("read", figures)[-1] == (shown, tone)


def test_a_value_that_the_source_lacks_is_a_dash(watched: list[Observation]) -> None:
    op = watched[0].interval.ops["read"]
    figures = read_figures(build_op_document(op, 1.0, {DEPTH, SEQUENTIAL, ERRORS}))
    cells = dict(
        zip(HEADER.split(), "".join(text for text, _ in format_row("read", figures)).split(), strict=True)
    )
    assert [name for name, text in cells.items() if text == "-"] == ["qd", "seq%", "err"]


def test_a_row_of_queue_times_is_below_the_latencies(watched: list[Observation]) -> None:
    figures = read_figures(build_op_document(watched[0].interval.ops["write"], 1.0))
    [queue_row] = format_wait_rows(figures)
    row, queue = ("".join(text for text, _ in one) for one in (format_row("write", figures), queue_row))
    assert queue.split()[:2] == ["in", "queue"]
    ends = [[word.end() for word in re.finditer(r"\S+", text)] for text in (row, queue)]
    assert ends[1][2:] == ends[0][3:9]


def test_rows_of_waits_have_a_mean_and_a_maximum(watched: list[Observation]) -> None:
    waits = {"throttle_ns": (2e6, None, 9_000_000), "admission_ns": (500.0, 700, 700)}
    figures = read_figures(build_op_document(watched[0].interval.ops["write"], 1.0))
    for name, values in waits.items():
        figures |= {
            f"{name}.{key}": value for key, value in zip(("mean", "max", "max_limit"), values, strict=True)
        }
    rows = ["".join(text for text, _ in row).split() for row in format_wait_rows(figures)]
    assert rows[:2] == [
        ["throttled", "2.00m", "-", "-", "-", "-", "<9.00m"],
        ["admission", "500n", "-", "-", "-", "-", "700n"],
    ]
    assert len(rows) == 3


def test_a_wide_terminal_gets_more_columns(
    watched: list[Observation], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    narrow, lines = (
        format_observations(watched).splitlines(),
        format_observations(watched, stream=_Terminal()).splitlines(),
    )
    assert format_header(120) in lines
    assert format_header(120).startswith(HEADER)
    assert max(map(len, lines)) <= 120
    assert all(wider.startswith(line) for line, wider in zip(narrow[:3], lines, strict=False))
    assert lines[2].startswith("read ")
    assert len(lines[2]) > 80


def test_wide_layout_has_iostats_columns(watched: list[Observation], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "119")
    assert format_observations(watched, stream=_Terminal()) == format_observations(watched)
    monkeypatch.setenv("COLUMNS", "120")
    wider = format_observations(watched, stream=_Terminal()).splitlines()
    monkeypatch.setenv("COLUMNS", "132")
    nothing = [replace(one, kernel_times=None) for one in watched]
    lines = format_observations(nothing, stream=_Terminal()).splitlines()
    assert format_header(132) in lines
    assert max(map(len, lines)) <= 132
    assert all(line.startswith(short) for line, short in zip(lines[2:4], wider[2:4], strict=True))
    assert lines[2].split()[-2:] == ["-", "-"]
    times = KernelTimes({"read": MeanAwait(1.25e6, 1e3)}, 0.417, 0.004, 3.5)
    known = [replace(one, kernel_times=times) for one in watched]
    lines = format_observations(known, stream=_Terminal()).splitlines()
    assert lines[2].startswith("read ")
    assert lines[2].split()[-2:] == ["1.25m", "42"]
    assert format_observations(known) == format_observations(nothing)


def test_bars_show_the_latency_distribution() -> None:
    values = [500, 1500, 1500, 1_100_000, 1_100_000_000, 60_000_000_000]
    bars = draw_latency_shape(Histogram.from_values(LATENCY, values))
    ruler = format_header(120).removeprefix(f"{HEADER}  mean size  ")
    # Values below a microsecond are in the first octave.
    assert bars[ruler.index("1u")] == "█"
    assert bars[ruler.index("1m")] == bars[ruler.index("1s")] == bars[-1] == "▃"
    assert bars.count(" ") == len(bars) - 4
    assert draw_latency_shape(Histogram.from_values(LATENCY, [10**6] * 10_000 + [10**9])).count("▁") == 1


def test_control_sequences_in_names_are_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    evil = replace(make_observation(read=BUSY), device="sd\x1b[2J\u202e\n", origin="sd\x1b[2J\u202e\n")
    text = format_observations([evil, replace(evil, final=True)], stream=_Terminal(), inked=True)
    assert set(_SGR.findall(text)) <= {*CODES.values(), END}
    assert "\x1b" not in _SGR.sub("", text)
    assert "\u202e" not in text
    assert "sd?[2J??" in text


def test_bars_are_ascii_on_ascii_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    monkeypatch.setattr(stream, "isatty", lambda: True)
    TextLines(stream).write_observation(make_observation(read=BUSY))
    assert raw.getvalue().isascii()
    assert b"?" not in raw.getvalue()


@pytest.mark.parametrize(
    ("choice", "environment", "terminal", "wanted"),
    [
        ("auto", {"TERM": "xterm"}, True, True),
        ("auto", {"TERM": "xterm"}, False, False),
        ("auto", {"TERM": "dumb"}, True, False),
        ("auto", {}, True, False),
        ("auto", {"TERM": "xterm", "NO_COLOR": "1"}, True, False),
        ("auto", {"TERM": "xterm", "NO_COLOR": ""}, True, True),
        ("always", {"NO_COLOR": "1"}, False, True),
        ("never", {"TERM": "xterm"}, True, False),
    ],
)
def test_colours_depend_on_terminal_and_environment(
    choice: str,
    environment: dict[str, str],
    terminal: bool,
    wanted: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("TERM", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert is_colour_wanted(choice, _Terminal() if terminal else io.StringIO()) is wanted


def test_help_lists_every_command_once(capsys: pytest.CaptureFixture[str]) -> None:
    from opwatch.tools.cli import parse
    from opwatch.tools.command_list import COMMANDS

    with pytest.raises(SystemExit):
        parse(["--help"])
    text = capsys.readouterr().out
    for name in COMMANDS:
        assert len(re.findall(rf"^  {name:<10} \S", text, re.MULTILINE)) == 1
    assert max(map(len, text.splitlines())) <= 80
