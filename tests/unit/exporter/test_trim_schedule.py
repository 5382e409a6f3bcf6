"""Trim checks run in a process, and their answers become metrics."""

from __future__ import annotations

import sys
from collections.abc import Callable
from queue import SimpleQueue

import pytest

from opwatch.errors import BadInput
from opwatch.metrics.family import MetricSamples
from opwatch.tools.exporter.trim_schedule import TRIM_EVERY_S, TrimCheck, TrimSchedule, parse_checks

_LINE = b'{"mountpoint": "/a", "verdict": "part", "lost": [["dm-crypt", "crypt-door", 4096]]}\n'


def run_once(script: str) -> tuple[TrimSchedule, list[str]]:
    """Return a schedule after a check by a Python script, and its messages."""
    calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
    messages: list[str] = []
    schedule = TrimSchedule(calls.put, messages.append, (sys.executable, "-S", "-c", script))
    assert schedule.run_check() == TRIM_EVERY_S
    # A second call does not start a check beside the first.
    schedule.run_check()
    calls.get(timeout=20)()
    assert calls.empty()
    return schedule, messages


def test_answer_becomes_metrics() -> None:
    schedule, messages = run_once(f"print({_LINE.decode().strip()!r})")
    samples = MetricSamples()
    schedule.add_metrics(samples)
    assert messages == []
    assert samples.rows["opwatch_trim_verdict"] == [(("/a", "part"), 1)]
    assert samples.rows["opwatch_trim_lost_bytes_total"] == [(("/a", "dm-crypt", "crypt-door"), 4096)]


@pytest.mark.parametrize(
    "script", ["print('rubbish')", "import sys; sys.exit('it failed')", "raise OSError(1)"]
)
def test_failure_is_reported_and_nothing_is_made_up(script: str) -> None:
    schedule, messages = run_once(script)
    samples = MetricSamples()
    schedule.add_metrics(samples)
    assert len(messages) == 1
    assert samples.rows == {}


def test_lines_are_parsed_or_refused() -> None:
    assert parse_checks(_LINE * 2) == [TrimCheck("/a", "part", {("dm-crypt", "crypt-door"): 4096})] * 2
    for text in (b"[]", b"{}", b'{"mountpoint": 1, "verdict": 2, "lost": [3]}', b"\xff", b"null"):
        with pytest.raises(BadInput):
            parse_checks(text)
