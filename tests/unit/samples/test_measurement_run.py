"""The phases of a measurement, on a drive with a fake clock."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from opwatch.counters.prove.report import make_report
from opwatch.samples.end import End
from opwatch.samples.measurement_run import LEAD_POLLS, MeasurementRun, RunPlan
from opwatch.waf.polls import make_poll
from opwatch.waf.trail import Poll
from tests.unit.support.virtual_drive import CATALOGUE, GIB, MIB, OCP, VirtualDrive


class Clock:
    """Waiting advances the drive's time. `due` lists the events and their times."""

    def __init__(self, drive: VirtualDrive) -> None:
        self.drive = drive
        self.due: list[tuple[float, End]] = []
        self.is_reaped = False

    def now(self) -> float:
        return self.drive.now_ns / 1e9

    def wait_until(self, until: float) -> End:
        at, end = min([*self.due, (until, End.TICK)], key=lambda event: event[0])
        self.drive.advance_time(max(0.0, at - self.now()))
        if end is End.TICK:
            return end
        if end is not End.COMMAND:
            self.due.remove((at, end))
        return end

    def reap(self) -> None:
        self.is_reaped = True
        self.due = [event for event in self.due if event[1] is not End.COMMAND]


class FakeProgress:
    def __init__(self) -> None:
        self.said: list[str] = []
        self.shown: list[str] = []

    def print_message(self, text: str) -> None:
        self.said.append(text)

    def show_progress(self, text: str) -> None:
        self.shown.append(text)


class VirtualMeasurement:
    """A measurement on a virtual drive, with its inputs and outputs."""

    def __init__(self, *, refresh_s: float = 0.0, **plan: float) -> None:
        self.drive = VirtualDrive(OCP, 7, refresh_s=refresh_s, scale=16)
        self.clock, self.words = Clock(self.drive), FakeProgress()
        self.is_there = True
        # The duration of a poll of the pages.
        self.look_s = 0.01
        times = {"idle_poll_s": 1.0, "busy_poll_s": 1.0, "settle_s": 700.0, "seconds": 5.0} | plan
        whole = RunPlan(**times)  # type: ignore[arg-type]  # times alone, and no texts
        self.course = MeasurementRun(self.poll_drive, lambda: self.is_there, self.clock, self.words, whole)

    def poll_drive(self) -> Poll:
        drive = self.drive
        begin_ns, before = drive.now_ns, drive.kernel_bytes
        drive.advance_time(self.look_s / 2)
        counters = make_report(drive.read_evidence(), CATALOGUE)
        drive.advance_time(self.look_s / 2)
        return make_poll(counters, begin_ns, drive.now_ns, before, drive.kernel_bytes)

    def make_work(self, seconds: float, rate: float) -> Callable[[], None]:
        """Return work that writes at `rate` for the given seconds."""

        def start_load() -> None:
            self.drive.rate = rate
            self.clock.due.append((self.clock.now() + seconds, End.COMMAND))

        return start_load


def test_work_is_between_readings_of_the_idle_drive() -> None:
    one = VirtualMeasurement()
    before = one.drive.read_truth()
    assert one.course.measure_work(one.make_work(20, 50 * MIB)) is End.COMMAND
    assert one.clock.is_reaped
    one.drive.rate = 0
    assert one.course.begin == LEAD_POLLS
    assert one.course.end == len(one.course.trail.moments) - 1
    assert one.course.wait_for_pages(has_work=True) is End.COUNT
    after, measured = one.drive.read_truth(), one.course.build_measurement().make_result()
    assert measured.waf is not None
    truth = (after.nand - before.nand) / (after.host - before.host)
    assert measured.waf == pytest.approx(truth, rel=0.02)


def test_settling_waits_for_fresh_pages() -> None:
    one = VirtualMeasurement(refresh_s=60)
    one.course.measure_work(one.make_work(200, 50 * MIB))
    one.drive.rate = 0
    ended = one.clock.now()
    assert one.course.wait_for_pages(has_work=True) is End.COUNT
    assert one.clock.now() - ended > 3
    assert one.words.said and re.search(r"\b\d+ s old\b", one.words.said[0])
    assert one.course.build_measurement().is_settled()


def test_settling_message_explains_the_interrupt() -> None:
    for gives in ("show the result so far", "ends it, and the level starts again"):
        one = VirtualMeasurement(refresh_s=60)
        plan = RunPlan(1.0, 1.0, 700.0, 5.0, on_interrupt=gives)
        one.course = MeasurementRun(one.poll_drive, lambda: True, one.clock, one.words, plan)
        one.course.measure_work(one.make_work(200, 50 * MIB))
        one.drive.rate = 0
        one.course.wait_for_pages(has_work=True)
        assert f"(Ctrl-C: {gives};" in one.words.said[0]


def test_settling_ends_at_its_time_limit() -> None:
    one = VirtualMeasurement(refresh_s=600, settle_s=30)
    one.course.measure_work(one.make_work(5, GIB))
    one.drive.rate = 0
    ended = one.clock.now()
    assert one.course.wait_for_pages(has_work=True) is End.COUNT
    assert 30 <= one.clock.now() - ended < 33
    assert not one.course.build_measurement().is_settled()


def test_signal_before_the_work_prevents_the_start() -> None:
    one = VirtualMeasurement()
    one.clock.due.append((one.clock.now() + 1.5, End.SIGNAL))
    assert one.course.measure_work(lambda: pytest.fail("it began")) is End.SIGNAL


def test_vanished_drive_is_not_read() -> None:
    one = VirtualMeasurement()

    def remove_drive() -> None:
        one.is_there = False

    assert one.course.measure_work(remove_drive) is End.VANISHED
    assert len(one.course.trail.moments) == LEAD_POLLS + 1


def test_measurement_without_work_lasts_the_requested_time() -> None:
    one = VirtualMeasurement(seconds=5)
    begun = one.clock.now()
    assert one.course.measure_work(None) is End.COUNT
    assert 5 <= one.clock.now() - begun < 7
    assert one.words.shown[-1].startswith("5 of 5 s")


def test_measurement_continues_until_the_error_is_small() -> None:
    one = VirtualMeasurement(until_error=0.05)
    one.drive.rate = 20 * MIB
    assert one.course.measure_work(None) is End.COUNT
    assert one.course.build_measurement().make_result().waf is not None


def test_reached_error_stays_reached() -> None:
    # The last poll took long, as on a busy machine: its values are from some moment within half a minute.
    one = VirtualMeasurement(until_error=0.2)
    one.drive.rate = 20 * MIB
    assert one.course.measure_work(None) is End.COUNT
    one.look_s = 30
    assert one.course.wait_for_pages(has_work=False) is End.COUNT
    measured = one.course.build_measurement().make_result()
    assert measured.error is not None and measured.waf is not None
    assert measured.error <= 0.2 * measured.waf
