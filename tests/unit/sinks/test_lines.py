"""Plain lines: time and length of an interval, and optional parts that are left out."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import pytest

from opwatch.counters.reading import CounterReading, DriveFacts, Proof, Report
from opwatch.cpu import CpuUse
from opwatch.sinks.columns import HEADER
from opwatch.sinks.counters import format_counters as counter_lines
from opwatch.sinks.lines import TextLines, format_cpu, format_discards
from opwatch.trim.audit.live import DiscardSummary
from tests.unit.sinks.test_jsonl import BUSY, make_observation


def format_heading(every_s: float, seconds: float) -> str:
    """Return the first line of an interval with this nominal and this actual length."""
    interval = make_observation(read=BUSY)
    interval = replace(
        interval,
        at=interval.at.replace(microsecond=123_456),
        interval=replace(interval.interval, begin_ns=interval.interval.end_ns - int(seconds * 1e9)),
    )
    stream = io.StringIO()
    TextLines(stream, every_s=every_s).write_observation(interval)
    lines = stream.getvalue().splitlines()
    assert max(len(line) for line in lines) <= 80
    return lines[1 if lines[0] == HEADER else 0]


@pytest.mark.parametrize(
    ("every_s", "seconds", "form"),
    [
        (1, 1.0, r"\d\d:\d\d:05 sda \(of dm-0\).*"),
        (30, 29.9, r"\d\d:\d\d:05 sda \(of dm-0\).*"),
        (0.2, 0.2, r"\d\d:\d\d:05\.123 sda \(of dm-0\).*"),
        (0.2, 0.0421, r"\d\d:\d\d:05\.123 \(0\.042 s\) sda \(of dm-0\).*"),
        (1, 0.5, r"\d\d:\d\d:05 \(0\.500 s\) sda \(of dm-0\).*"),
        (30, 3.25, r"\d\d:\d\d:05 \(3\.250 s\) sda \(of dm-0\).*"),
    ],
)
def test_short_interval_has_its_time_and_length(every_s: float, seconds: float, form: str) -> None:
    assert re.fullmatch(form, format_heading(every_s, seconds))


class _CountingStream(io.StringIO):
    """Counts the writes."""

    writes = 0

    def write(self, text: str) -> int:
        self.writes += 1
        return super().write(text)


@pytest.mark.parametrize("final", [False, True])
def test_observation_is_written_immediately(final: bool) -> None:
    """Each write costs up to three system calls, for every disk and interval."""
    stream = _CountingStream()
    sink = TextLines(stream)
    for number in (1, 2, 3):
        sink.write_observation(replace(make_observation(read=BUSY, write=BUSY), final=final))
        assert stream.writes == number
    assert len(stream.getvalue().splitlines()) > 6


def _list_numbers(line: str) -> list[str]:
    return re.findall(r"\d+(?:\.\d+)?", line)


def test_ratio_is_missing_without_requests() -> None:
    """A driver without requests, or one that took all of them back."""
    for ratio in (0.0, None):
        none = DiscardSummary((), 4, 0, 4, 0, 4096, ratio, 1.0, 5.0, ())
        [line] = format_discards(none)
        assert _list_numbers(line) == ["4", "100.0", "5"]
    [line] = format_discards(DiscardSummary((), 4, 8, 4, 6, 4096, 2.0, 1.0, 5.0, ()))
    assert _list_numbers(line) == ["4", "8", "2.00", "6", "100.0", "5"]
    assert format_discards(DiscardSummary((), 0, 0, 0, 0, 0, None, None, None, ())) == []


@pytest.mark.parametrize(("step", "shown"), [(512_000, "512 kB"), (1, "1 B"), (32 << 20, "33.6 MB")])
def test_a_step_is_in_units_of_the_value(step: int, shown: str) -> None:
    reading = CounterReading(960_000_000_000, "bytes", step, "log 02h", Proof.SPEC)
    rows = counter_lines(Report(DriveFacts(name="nvme0"), {"host_written": reading}, {}, ()))
    [row] = [line for line in rows if line.startswith("host_written")]
    assert f" 960 GB     {shown} " in row


def test_summary_reports_cpu_use() -> None:
    use = CpuUse(10.0, 4, 12.0, 3.0, 0.04, 0.5)
    assert format_cpu(use) == "CPU: 1.504 ± 0.009 of 4 busy (user 1.20, system 0.30, stolen 0.05)"
    assert format_cpu(CpuUse(1.0, 1, 0.0, 0.0, 0.0, 0.0)) == "CPU: 0.00 ± 0.06 of 1 busy"
