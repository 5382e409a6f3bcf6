"""The intervals of a measurement in progress, with readings and a clock made up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import pytest

from opwatch.collectors.writes.reader import WritesReader
from opwatch.errors import OpwatchError
from opwatch.samples.end import End
from opwatch.tools.runs.nand_polls import NandPolls
from opwatch.tools.runs.progress import ProgressReporter
from opwatch.tools.runs.waiting import Waiter
from opwatch.tools.runs.writes_run import WritesPlan, WritesRun
from opwatch.writes.classes import WriteClass
from opwatch.writes.reading import DriveAmplification, WriteLayer, WritesReading, WriteStack
from opwatch.writes.series import WritesOutcome, WritesPart, WritesQuestion

from .readings import make_reading
from .series import CLOCK

STACK = WriteStack("sda", None, ("sda",), (WriteLayer("sda", ""),))
S = 10**9


class FakeWaiter:
    """A clock that jumps to the end of each wait. A signal arrives at second `signal`."""

    def __init__(self, signal: float) -> None:
        self.second, self._signal = 0.0, signal

    def now(self) -> float:
        return self.second

    def wait_until(self, until: float) -> End:
        self.second = min(until, self._signal)
        return End.SIGNAL if self.second >= self._signal else End.TICK

    def start_command(self, command: object, *, quiet_stdout: bool) -> None: ...
    def finish_command(self, *, stop: bool) -> int:
        return 0

    def reap(self) -> None: ...


class FakePolls:
    """Drives that are polled at once."""

    next_due = float("inf")

    def begin_work(self, waiter: object) -> bool:
        return True

    def poll_if_due(self, now: float) -> None: ...
    def end_interval(self, seconds: float) -> Mapping[str, DriveAmplification]:
        return {"sda": DriveAmplification(seconds, 0.0)}

    def end_work(self) -> None: ...
    def wait_for_pages(self, *_: object) -> None: ...
    def measure(self) -> Mapping[str, DriveAmplification]:
        return {"sda": DriveAmplification(9.0, 0.0)}


class FakeReader:
    """A device with 1000 bytes per second, which is gone at second `gone`."""

    accounting_reason = None

    def __init__(self, waiter: FakeWaiter, gone: float) -> None:
        self._waiter, self._gone, self.syncs = waiter, gone, 0
        self.tracer = cast(Any, type("Tracer", (), {"notes": ()}))

    def sync(self) -> None:
        self.syncs += 1

    def read(self) -> WritesReading:
        second = self._waiter.second
        if second >= self._gone:
            raise OpwatchError("sda is gone")
        size = round(1000 * second)
        reading = make_reading({WriteClass.RAW: size}, {"sda": size})
        values = {name: getattr(reading, name) for name in reading.__slots__}
        return WritesReading(**values | {"mono_ns": round(second * S)})

    def count_missed_runs(self) -> tuple[int, int]:
        return 0, 0


def measure(
    every_s: float | None, *, seconds: float | None = None, signal: float = 1e9, gone: float = 1e9
) -> tuple[list[WritesOutcome], FakeReader, str]:
    """Return the outcomes, the reader, and the error that ended the measurement."""
    waiter = FakeWaiter(signal)
    reader = FakeReader(waiter, gone)
    plan = WritesPlan(WritesQuestion(STACK, every_s, synced=True), None, seconds, 1.0, quiet_stdout=False)
    run = WritesRun(plan, cast(WritesReader, reader), cast(NandPolls, FakePolls()), None, CLOCK)
    talk = ProgressReporter(quiet=True)
    outcomes, error = [], ""
    try:
        for outcome in run.iter_outcomes(cast(Waiter, waiter), talk):
            outcomes.append(outcome)
    except OpwatchError as raised:
        error = str(raised)
    return outcomes, reader, error


def list_bytes(outcomes: list[WritesOutcome]) -> list[tuple[str, float, int | None]]:
    rows = [next(row for row in one.waterfall.rows if row.kind == "device") for one in outcomes]
    return [
        (one.part.value, one.waterfall.seconds, row.added) for one, row in zip(outcomes, rows, strict=True)
    ]


@pytest.mark.parametrize(
    ("seconds", "signal", "last"),
    [(None, 25.0, ("interval", 5.0, 5000)), (20.0, 1e9, None), (25.0, 1e9, ("interval", 5.0, 5000))],
)
def test_intervals_repeat_until_the_end_and_add_up(
    seconds: float | None, signal: float, last: tuple[str, float, int] | None
) -> None:
    outcomes, reader, _ = measure(10.0, seconds=seconds, signal=signal)
    parts = [("interval", 10.0, 10_000)] * 2 + ([last] if last else [])
    assert list_bytes(outcomes)[:-1] == parts
    whole = sum(part[1] for part in parts)
    assert list_bytes(outcomes)[-1] == ("total", whole, 1000 * whole)
    assert reader.syncs == 1 + len(parts)


def test_one_interval_has_one_outcome() -> None:
    outcomes, _, _ = measure(None)
    assert list_bytes(outcomes) == [("whole", 60.0, 60_000)]


def test_the_rows_until_a_device_is_gone_are_shown() -> None:
    outcomes, _, error = measure(10.0, gone=30.0)
    assert list_bytes(outcomes)[-1] == ("total", 20.0, 20_000)
    assert [one.part for one in outcomes] == [WritesPart.INTERVAL] * 2 + [WritesPart.TOTAL]
    assert error == "sda is gone"


def test_a_device_that_is_gone_in_the_first_interval_has_no_rows() -> None:
    assert measure(None, gone=60.0)[::2] == ([], "sda is gone")
