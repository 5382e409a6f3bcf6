"""A level's seconds from the block trace: the time between rounds is left out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opwatch.codec import decode, encode
from opwatch.errors import BadInput
from opwatch.journal.results import LevelRecord
from opwatch.sweep.outcome import LevelSecond
from opwatch.tools.acting.sweep import seconds as module
from opwatch.tools.acting.sweep.seconds import LevelSeconds
from opwatch.trace.trust import Reading
from tests.unit.support.samples import Op, make_sample
from tests.unit.sweep.test_journal import RECORD

_MS = 10**6


class _SteppedTrace:
    """A disk that the test advances."""

    def __init__(self) -> None:
        self.now_ns = self.ios = 0

    def read(self) -> Reading:
        done = {"completed": self.ios, "issued": self.ios, "bytes": 4096 * self.ios}
        return Reading(make_sample(self.now_ns, write=Op(scalars=done)), None, None)

    def advance_time(self, ms: int, ios: int) -> None:
        self.now_ns += ms * _MS
        self.ios += ios


def _run_round(trace: _SteppedTrace, seconds: LevelSeconds, ticks: int) -> None:
    """Run a fio that needs 300 ms to start and then writes 100 I/Os per 100 ms."""
    seconds.begin_round()
    for _ in range(3):
        trace.advance_time(100, 0)
        seconds.record_second()
    for _ in range(ticks):
        trace.advance_time(100, 100)
        seconds.record_second()
    seconds.end_round(ticks * 100 * 4096, ticks / 10)


def test_seconds_keep_their_position_across_gaps() -> None:
    trace = _SteppedTrace()
    seconds = LevelSeconds(trace.read)
    _run_round(trace, seconds, 25)
    trace.advance_time(700, 0)
    _run_round(trace, seconds, 12)
    assert [(one.seconds, one.ios, one.n_bytes) for one in seconds.seconds] == [(1.0, 1000, 4096000)] * 3
    # The first 100 I/Os of each round mark its start.
    assert [one.begin_bytes for one in seconds.seconds] == [409600, 4505600, 2500 * 4096 + 409600]
    assert [one.begin_s for one in seconds.seconds] == [0.0, 1.0, 2.5]


def test_without_a_trace_there_are_no_seconds() -> None:
    seconds = LevelSeconds(lambda: None)
    seconds.begin_round()
    seconds.record_second()
    assert seconds.seconds == ()


def test_number_of_seconds_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_ROWS", 4)
    trace = _SteppedTrace()
    seconds = LevelSeconds(trace.read)
    _run_round(trace, seconds, 41)
    assert sum(one.ios for one in seconds.seconds) == 4000
    assert [one.seconds for one in seconds.seconds] == [2.0, 2.0]


def test_journal_keeps_the_seconds() -> None:
    record = replace(RECORD, seconds=(LevelSecond(0.5, 4096, 1.001, 17, 69632),))
    document = encode(record)
    assert decode(LevelRecord, document, "it") == record
    document["seconds"][0][2] = 0
    with pytest.raises(BadInput, match=r"\bsecond\b.* 0$"):
        decode(LevelRecord, document, "it")
