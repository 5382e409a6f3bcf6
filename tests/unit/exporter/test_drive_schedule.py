"""Drives are polled on time, whatever one of them does."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue

import pytest

from opwatch.counters.reading import CounterReading, Proof
from opwatch.errors import OpwatchError, PermissionMissing
from opwatch.host.device import BlockDevice
from opwatch.metrics.drive_reading import DriveHealth, DriveLabels, DriveReading, FailureReason
from opwatch.tools.exporter.drive_schedule import MAX_POLLS, DriveSchedule, PolledDisk

_DEADLINE_S = 10.0


def make_reading(serial: str, written: int, kernel: int = 0, *, name: str = "sda") -> DriveReading:
    counter = CounterReading(written, "bytes", 512, "test", Proof.SPEC)
    return DriveReading(
        DriveLabels(name, serial=serial),
        counters={"host": counter},
        health=DriveHealth(power_cycles=written),
        read_at_s=float(written),
        kernel_written_bytes=kernel,
    )


@dataclass
class FakeDrive:
    """A drive whose answers the test gives. It counts the polls that run at the same time."""

    answers: SimpleQueue[DriveReading | Exception] = field(default_factory=SimpleQueue)
    polls: int = 0
    running: int = 0
    most_running: int = 0
    is_closed: bool = False

    def poll_drive(self) -> DriveReading:
        self.polls += 1
        self.running += 1
        self.most_running = max(self.running, self.most_running)
        answer = self.answers.get()
        self.running -= 1
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None:
        self.is_closed = True


class Bench:
    """A schedule with a clock of its own. `calls` are those that the loop would make."""

    def __init__(self) -> None:
        self.now = 100.0
        self.calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self.schedule = DriveSchedule(self.calls.put, _DEADLINE_S, lambda: self.now)

    def run(self, seconds: float = 0.0) -> None:
        self.now += seconds
        self.schedule.run_due()

    def end_poll(self) -> None:
        self.calls.get(timeout=10)()

    def poll(self, drive: FakeDrive, answer: DriveReading | Exception, seconds: float = 60.0) -> None:
        """Let a poll happen, and give its answer."""
        self.run(seconds)
        drive.answers.put(answer)
        self.end_poll()

    def read(self, name: str = "sda") -> DriveReading:
        return self.schedule.readings[name]


def make_disk(
    drive: FakeDrive,
    serial: str = "S1",
    *,
    name: str = "sda",
    key: str = "1",
    wwid: str | None = None,
    registration: int | None = None,
) -> PolledDisk:
    """Return a disk, with a worldwide name made from its serial number unless one is given."""
    disk = BlockDevice(name, (8, 0), Path("/nowhere"))
    wwid = f"naa.{serial}" if wwid is None else wwid
    labelled = DriveReading(DriveLabels(name, serial=serial, wwid=wwid))
    registration = int(key) if registration is None else registration
    return PolledDisk(disk, f"{name} {key}", registration, 60.0, labelled, lambda: drive)


def wait_for(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def test_drive_is_polled_at_each_interval() -> None:
    bench, drive = Bench(), FakeDrive()
    bench.schedule.set_disks([make_disk(drive)])
    for count in (1, 2, 3):
        bench.poll(drive, make_reading("S1", count * 512))
        assert bench.read().read_at_s == count * 512
        assert drive.polls == count
        bench.run(1)
        assert drive.polls == count


def test_hung_drive_is_counted_once_and_never_asked_twice_at_a_time() -> None:
    bench, hung, well = Bench(), FakeDrive(), FakeDrive()
    bench.schedule.set_disks([make_disk(hung), make_disk(well, "S2", name="sdb")])
    bench.run()
    for minute in range(1, 6):
        bench.poll(well, make_reading("S2", minute, name="sdb"))
    assert bench.read("sdb").read_at_s == 5
    assert hung.polls == 1
    assert bench.read("sda").failures == {FailureReason.TIMEOUT: 1}
    # It comes back.
    hung.answers.put(make_reading("S1", 7))
    bench.end_poll()
    assert bench.read("sda").read_at_s == 7
    bench.poll(hung, make_reading("S1", 8))
    assert (hung.polls, hung.most_running) == (2, 1)


def test_drives_that_hang_do_not_take_the_places_of_others() -> None:
    bench, hung = Bench(), [FakeDrive() for _ in range(MAX_POLLS + 3)]
    well = FakeDrive()
    disks = [make_disk(drive, f"S{n}", name=f"sd{n}") for n, drive in enumerate(hung)]
    bench.schedule.set_disks([*disks, make_disk(well, "W", name="well")])
    for _ in range(4):
        bench.run(_DEADLINE_S)
    wait_for(lambda: well.polls == 1)
    assert all(drive.polls == 1 for drive in hung)


def test_failures_have_their_reason_and_keep_the_last_values() -> None:
    bench, drive = Bench(), FakeDrive()
    bench.schedule.set_disks([make_disk(drive)])
    bench.poll(drive, make_reading("S1", 512))
    for error in (PermissionMissing("no"), OpwatchError("no"), RuntimeError("bug"), TimeoutError("late")):
        bench.poll(drive, error)
    reading = bench.read()
    assert reading.failures == {
        FailureReason.PERMISSION: 1,
        FailureReason.REFUSED: 2,
        FailureReason.TIMEOUT: 1,
    }
    assert (reading.read_at_s, reading.counters["host"].value) == (512, 512)


def test_sleeping_drive_keeps_its_values() -> None:
    bench, drive = Bench(), FakeDrive()
    bench.schedule.set_disks([make_disk(drive)])
    bench.poll(drive, make_reading("S1", 512))
    bench.poll(drive, DriveReading(DriveLabels("sda", serial="S1"), is_asleep=True))
    assert bench.read().is_asleep
    assert bench.read().counters["host"].value == 512
    bench.poll(drive, make_reading("S1", 1024))
    assert not bench.read().is_asleep


def test_counter_that_decreases_is_refused() -> None:
    bench, drive = Bench(), FakeDrive()
    bench.schedule.set_disks([make_disk(drive)])
    bench.poll(drive, make_reading("S1", 5000))
    bench.poll(drive, make_reading("S1", 4000))
    reading = bench.read()
    assert reading.counters["host"].value is None
    assert reading.counters["host"].reason
    assert reading.health.power_cycles is None


def test_drive_that_returns_under_another_name_goes_on() -> None:
    bench, first, second = Bench(), FakeDrive(), FakeDrive()
    bench.schedule.set_disks([make_disk(first)])
    bench.poll(first, make_reading("S1", 5000, kernel=900))
    bench.poll(first, OpwatchError("gone"))
    bench.schedule.set_disks([])
    assert (first.is_closed, bench.schedule.readings) == (True, {})
    bench.schedule.set_disks([make_disk(second, name="sdc", key="2")])
    assert bench.read("sdc").labels.device == "sdc"
    bench.poll(second, make_reading("S1", 6000, kernel=10, name="sdc"))
    reading = bench.read("sdc")
    # The kernel counts each registration of a disk from 0.
    assert reading.kernel_written_bytes == 910
    assert reading.failures == {FailureReason.REFUSED: 1}
    bench.poll(second, make_reading("S1", 5500, kernel=20, name="sdc"))
    assert bench.read("sdc").counters["host"].value is None


def test_kernel_bytes_are_not_added_twice_when_a_medium_returns_to_the_same_disk() -> None:
    bench, drive = Bench(), FakeDrive()
    bench.schedule.set_disks([make_disk(drive, key="1")])
    bench.poll(drive, make_reading("S1", 5000, kernel=900))
    bench.schedule.set_disks([])
    bench.schedule.set_disks([make_disk(drive, key="2", registration=1)])
    bench.poll(drive, make_reading("S1", 6000, kernel=1000))
    assert bench.read().kernel_written_bytes == 1000
    # Another registration starts at 0, with everything before as its base.
    for key, kernel, expected in (("3", 50, 1050), ("4", 60, 1060)):
        bench.schedule.set_disks([])
        bench.schedule.set_disks([make_disk(drive, key=key, registration=3)])
        bench.poll(drive, make_reading("S1", 7000, kernel=kernel))
        assert bench.read().kernel_written_bytes == expected


def test_drive_whose_bridge_has_another_serial_is_recognised_when_it_returns() -> None:
    bench, drive = Bench(), FakeDrive()
    bench.schedule.set_disks([make_disk(drive, "BRIDGE")])
    bench.poll(drive, make_reading("S1", 5000, kernel=900))
    bench.schedule.set_disks([])
    bench.schedule.set_disks([make_disk(drive, "BRIDGE", name="sdc", key="2")])
    assert bench.read("sdc").labels.serial == "S1"
    bench.poll(drive, make_reading("S1", 6000, kernel=10, name="sdc"))
    assert bench.read("sdc").kernel_written_bytes == 910
    # A sleeping drive does not report its own serial number.
    bench.poll(drive, DriveReading(DriveLabels("sdc", serial="BRIDGE"), is_asleep=True))
    assert bench.read("sdc").counters["host"].value == 6000


def test_drive_without_worldwide_name_inherits_nothing_from_another_with_its_serial() -> None:
    bench, first, second = Bench(), FakeDrive(), FakeDrive()
    bench.schedule.set_disks([make_disk(first, "0123", wwid="")])
    bench.poll(first, make_reading("0123", 5000, kernel=900))
    bench.schedule.set_disks([])
    bench.schedule.set_disks([make_disk(second, "0123", name="sdc", key="2", wwid="")])
    assert bench.read("sdc").read_at_s is None
    bench.poll(second, make_reading("0123", 100, kernel=10, name="sdc"))
    assert bench.read("sdc").counters["host"].value == 100
    assert bench.read("sdc").kernel_written_bytes == 10


def test_another_drive_that_answers_behind_a_returned_bridge_starts_at_its_own_counts() -> None:
    bench, drive = Bench(), FakeDrive()
    bench.schedule.set_disks([make_disk(drive, "BRIDGE")])
    bench.poll(drive, make_reading("S1", 5000, kernel=900))
    bench.schedule.set_disks([])
    bench.schedule.set_disks([make_disk(drive, "BRIDGE", key="2")])
    bench.poll(drive, make_reading("S2", 100, kernel=10))
    assert bench.read().kernel_written_bytes == 10
    assert bench.read().counters["host"].value == 100
    bench.poll(drive, make_reading("S2", 200, kernel=20))
    assert bench.read().kernel_written_bytes == 20


def test_another_drive_under_the_name_starts_at_its_own_counts() -> None:
    bench, first, second = Bench(), FakeDrive(), FakeDrive()
    bench.schedule.set_disks([make_disk(first)])
    bench.poll(first, make_reading("S1", 5000, kernel=900))
    bench.schedule.set_disks([make_disk(second, "S2", key="2")])
    bench.poll(second, make_reading("S2", 100, kernel=10))
    assert bench.read().counters["host"].value == 100
    assert bench.read().kernel_written_bytes == 10


def test_late_answer_of_a_drive_that_left_is_dropped() -> None:
    bench, first, second = Bench(), FakeDrive(), FakeDrive()
    bench.schedule.set_disks([make_disk(first)])
    bench.run()
    wait_for(lambda: first.running == 1)
    bench.schedule.set_disks([make_disk(second, "S2", key="2")])
    first.answers.put(make_reading("S1", 5000))
    bench.end_poll()
    assert first.is_closed
    assert bench.read().read_at_s is None
    assert bench.read().labels.serial == "S2"


def test_nothing_waits_for_a_drive() -> None:
    bench, drive = Bench(), FakeDrive()
    bench.schedule.set_disks([make_disk(drive)])
    begin = time.monotonic()
    bench.run()
    bench.run(5)
    bench.schedule.set_disks([])
    bench.schedule.stop()
    assert time.monotonic() - begin < 1
    drive.answers.put(OpwatchError("over"))
    bench.end_poll()
    assert bench.calls.empty()
    assert bench.schedule.readings == {}


def test_drive_is_polled_again_after_the_system_had_no_thread_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    bench, drive = Bench(), FakeDrive()
    bench.schedule.set_disks([make_disk(drive)])
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        bench.run()
        assert bench.read().failures == {FailureReason.REFUSED: 1}
    bench.poll(drive, make_reading("S1", 512))
    assert bench.read().counters["host"].value == 512
