"""The phases of a measurement, on a drive with a fake clock."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from opwatch.counters.prove.report import report
from opwatch.samples.course import LEAD_POLLS, Course, CoursePlan
from opwatch.samples.end import End
from opwatch.waf.polls import poll_of
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

    def wait(self, until: float) -> End:
        at, end = min([*self.due, (until, End.TICK)], key=lambda event: event[0])
        self.drive.advance(max(0.0, at - self.now()))
        if end is End.TICK:
            return end
        if end is not End.COMMAND:
            self.due.remove((at, end))
        return end

    def reap(self) -> None:
        self.is_reaped = True
        self.due = [event for event in self.due if event[1] is not End.COMMAND]


class Words:
    def __init__(self) -> None:
        self.said: list[str] = []
        self.shown: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)

    def show(self, text: str) -> None:
        self.shown.append(text)


class Measuring:
    """A measurement on a virtual drive, with its inputs and outputs."""

    def __init__(self, *, refresh_s: float = 0.0, **plan: float) -> None:
        self.drive = VirtualDrive(OCP, 7, refresh_s=refresh_s, scale=16)
        self.clock, self.words = Clock(self.drive), Words()
        self.is_there = True
        # The duration of a poll of the pages.
        self.look_s = 0.01
        times = {"idle_poll_s": 1.0, "busy_poll_s": 1.0, "settle_s": 700.0, "seconds": 5.0} | plan
        whole = CoursePlan(**times)  # type: ignore[arg-type]  # times alone, and no texts
        self.course = Course(self.poll, lambda: self.is_there, self.clock, self.words, whole)

    def poll(self) -> Poll:
        drive = self.drive
        begin_ns, before = drive.now_ns, drive.kernel
        drive.advance(self.look_s / 2)
        counters = report(drive.evidence(), CATALOGUE)
        drive.advance(self.look_s / 2)
        return poll_of(counters, begin_ns, drive.now_ns, before, drive.kernel)

    def load(self, seconds: float, rate: float) -> Callable[[], None]:
        """Return work that writes at `rate` for the given seconds."""

        def start() -> None:
            self.drive.rate = rate
            self.clock.due.append((self.clock.now() + seconds, End.COMMAND))

        return start


def test_work_is_between_readings_of_the_idle_drive() -> None:
    one = Measuring()
    before = one.drive.truth()
    assert one.course.work(one.load(20, 50 * MIB)) is End.COMMAND
    assert one.clock.is_reaped
    one.drive.rate = 0
    assert one.course.begin == LEAD_POLLS
    assert one.course.end == len(one.course.trail.moments) - 1
    assert one.course.settle(has_work=True) is End.COUNT
    after, measured = one.drive.truth(), one.course.measurement().result()
    assert measured.waf is not None
    truth = (after.nand - before.nand) / (after.host - before.host)
    assert measured.waf == pytest.approx(truth, rel=0.02)


def test_settling_waits_for_fresh_pages() -> None:
    one = Measuring(refresh_s=60)
    one.course.work(one.load(200, 50 * MIB))
    one.drive.rate = 0
    ended = one.clock.now()
    assert one.course.settle(has_work=True) is End.COUNT
    assert one.clock.now() - ended > 3
    assert one.words.said and "may be up to" in one.words.said[0]
    assert one.course.measurement().settled()


def test_settling_says_the_effect_of_an_interrupt() -> None:
    for gives in ("what is known now", "ends it, and the level begins anew"):
        one = Measuring(refresh_s=60)
        plan = CoursePlan(1.0, 1.0, 700.0, 5.0, on_interrupt=gives)
        one.course = Course(one.poll, lambda: True, one.clock, one.words, plan)
        one.course.work(one.load(200, 50 * MIB))
        one.drive.rate = 0
        one.course.settle(has_work=True)
        assert f"(Ctrl-C: {gives};" in one.words.said[0]


def test_settling_ends_at_its_time_limit() -> None:
    one = Measuring(refresh_s=600, settle_s=30)
    one.course.work(one.load(5, GIB))
    one.drive.rate = 0
    ended = one.clock.now()
    assert one.course.settle(has_work=True) is End.COUNT
    assert 30 <= one.clock.now() - ended < 33
    assert not one.course.measurement().settled()


def test_signal_before_the_work_prevents_the_start() -> None:
    one = Measuring()
    one.clock.due.append((one.clock.now() + 1.5, End.SIGNAL))
    assert one.course.work(lambda: pytest.fail("it began")) is End.SIGNAL


def test_a_drive_that_has_gone_is_not_read() -> None:
    one = Measuring()

    def start() -> None:
        one.is_there = False

    assert one.course.work(start) is End.VANISHED
    assert len(one.course.trail.moments) == LEAD_POLLS + 1


def test_measurement_without_work_lasts_the_requested_time() -> None:
    one = Measuring(seconds=5)
    begun = one.clock.now()
    assert one.course.work(None) is End.COUNT
    assert 5 <= one.clock.now() - begun < 7
    assert one.words.shown[-1].startswith("5 of 5 s")


def test_measurement_continues_until_the_error_is_small() -> None:
    one = Measuring(until_error=0.05)
    one.drive.rate = 20 * MIB
    assert one.course.work(None) is End.COUNT
    assert one.course.measurement().result().waf is not None


def test_an_error_that_was_small_enough_stays_so() -> None:
    # The last poll took long, as on a busy machine: its values are from some moment within half a minute.
    one = Measuring(until_error=0.2)
    one.drive.rate = 20 * MIB
    assert one.course.work(None) is End.COUNT
    one.look_s = 30
    assert one.course.settle(has_work=False) is End.COUNT
    measured = one.course.measurement().result()
    assert measured.error is not None and measured.waf is not None
    assert measured.error <= 0.2 * measured.waf
