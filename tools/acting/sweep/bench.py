"""Shared state of a sweep: the claimed disk, its counters, the journal and the clock."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from opwatch.collectors.firmware.counting import CounterPoller
from opwatch.counters.catalogue.families import load_catalogue
from opwatch.counters.looks.sample import FirmwareSample
from opwatch.errors import OpwatchError, RefusedError
from opwatch.guard.budget import Health
from opwatch.host.device import BlockDevice, Presence
from opwatch.journal.file import JournalFile
from opwatch.journal.results import LevelRecord
from opwatch.journal.state import SweepState
from opwatch.samples.end import End
from opwatch.samples.measurement_run import Clock, ProgressSink
from opwatch.tools.acting.fio.runner import FioProcess, FioRun
from opwatch.tools.acting.guard.held_disk import HeldDisk
from opwatch.tools.acting.guard.held_mount import HeldMount

# Interval between trace drains.
TICK_S = 0.1
# Writes by others above this share of a round would distort its results.
_MAX_FOREIGN = 0.01


class SweepStopped(OpwatchError):
    """A signal ended the sweep. Completed work is in the journal."""

    exit_status = 7


class SweepClock(Clock, Protocol):
    """Clock of a sweep, which waits while a process runs."""

    def watch_process(self, process: subprocess.Popen[bytes]) -> None:
        """Let the end of this process end a wait, from now on."""


class SweepKeeper(Protocol):
    """Records a sweep.

    A phase is a level or a step of one. `was` reports a phase that is identified only after its end, in
    monotonic time.
    """

    def record_poll(self, sample: FirmwareSample) -> None: ...
    def record_start(self, phase: str) -> None: ...
    def record_end(self, phase: str) -> None: ...
    def record_phase(self, phase: str, begin_ns: int, end_ns: int) -> None: ...
    def record_outcome(self, record: LevelRecord) -> None: ...
    def record_completion(self) -> None: ...


class NullKeeper:
    """Keeper for a sweep that is not recorded."""

    def record_poll(self, sample: FirmwareSample) -> None:
        """Do nothing."""

    def record_start(self, phase: str) -> None:
        """Do nothing."""

    def record_end(self, phase: str) -> None:
        """Do nothing."""

    def record_phase(self, phase: str, begin_ns: int, end_ns: int) -> None:
        """Do nothing."""

    def record_outcome(self, record: LevelRecord) -> None:
        """Do nothing."""

    def record_completion(self) -> None:
        """Do nothing."""


@dataclass(slots=True)
class SweepBench:
    """All objects that a sweep works with.

    `before` is the drive's health at the start of the sweep, `folder` the place of fio's logs, `keeper` the
    recording, and `presence` tells whether the disk is still there.
    """

    claim: HeldDisk | HeldMount
    counting: CounterPoller
    presence: Presence
    journal: JournalFile
    state: SweepState
    time: SweepClock
    talk: ProgressSink
    before: Health
    folder: Path
    keeper: SweepKeeper = field(default_factory=NullKeeper)

    def is_same_device(self) -> bool:
        return self.presence.is_same_device()

    def close(self) -> None:
        self.counting.close()
        self.presence.close()

    def close_disk(self) -> None:
        """Close all descriptors of the disk, because its namespace is gone."""
        self.close()
        self.disk_claim.close()

    def switch_disk(self, disk: BlockDevice) -> None:
        """Continue with the disk that replaces the previous disk. The kernel's counts restart."""
        self.close()
        self.disk_claim.switch_disk(disk)
        self.counting = CounterPoller(self.claim.devices, disk, load_catalogue(()))
        self.presence = Presence(disk)
        counted = self.counting.read_written().get(disk.name)
        self.before = replace(self.before, host_bytes=counted)

    @property
    def disk(self) -> BlockDevice:
        return self.claim.disk

    @property
    def disk_claim(self) -> HeldDisk:
        """Return the claim of a sweep on a whole disk, whose contents are lost."""
        if isinstance(self.claim, HeldDisk):
            return self.claim
        raise OpwatchError(f"{self.disk.name} is not exclusively held: a filesystem on it is in use")

    @property
    def mount(self) -> HeldMount:
        """Return the claim of a sweep on a file system."""
        if isinstance(self.claim, HeldMount):
            return self.claim
        raise OpwatchError(f"{self.disk.name} has no filesystem: the whole disk is held")

    def announce_step(self, place: int, kind: str, write_bytes: int) -> None:
        """Journal a step before its start. Raise RefusedError for a step beyond the budget."""
        allowed = self.state.request.budget.write_bytes
        if self.state.announced_bytes + write_bytes > allowed:
            raise RefusedError(
                f"{self.disk.name}: the next step ({kind}) writes {write_bytes} bytes, and "
                f"{self.state.announced_bytes} of the {allowed} bytes allowed are used; if the drive "
                f"may take that wear: {self.journal.resume_command}, with a larger --max-write"
            )
        self.journal.append_entry("step", {"level": place, "kind": kind, "write_bytes": write_bytes})
        self.state.announced_bytes += write_bytes

    def return_budget(self, n_bytes: int) -> None:
        """Record that a step wrote this much less than announced."""
        if n_bytes > 0:
            self.journal.append_entry("unwritten", {"bytes": n_bytes})
            self.state.announced_bytes -= n_bytes

    def wait_unless_stopped(self, seconds: float) -> None:
        """Wait. Checks for a stop at least once, even for zero seconds, because a discard of a large drive
        consists of many pieces without waits."""
        until = self.time.now() + seconds
        while True:
            self.require_not_stopped(self.time.wait_until(min(until, self.time.now() + 1)))
            if self.time.now() >= until:
                return

    def require_not_stopped(self, end: End) -> None:
        if end is End.SIGNAL:
            raise SweepStopped(f"stopped; the results so far are kept: {self.journal.resume_command}")
        if not self.is_same_device():
            raise RefusedError(f"{self.disk.name} has disappeared, or another disk has its name now")

    def run_fio(self, words: list[str], least_bytes: int, meanwhile: Callable[[], None]) -> FioRun:
        """Run fio until the end. Calls `meanwhile` periodically."""
        with FioProcess(words, self.folder) as process:
            self.time.watch_process(process.process)
            while True:
                end = self.time.wait_until(self.time.now() + TICK_S)
                meanwhile()
                if end is End.COMMAND:
                    self.time.reap()
                    break
                if end is End.SIGNAL:
                    process.stop()
                self.require_not_stopped(end)
            run = process.wait_for_result()
        require_written(run, least_bytes, self.disk.name)
        return run


def require_written(run: FioRun, least_bytes: int, name: str) -> None:
    """Raise OpwatchError if less was written.

    fio exits with 0 without writing if its window is beyond the end of the disk.
    """
    written = run.report.total.bytes["write"] if run.report else 0
    if written < least_bytes:
        raise OpwatchError(f"{name}: fio wrote {written} bytes instead of {least_bytes}")


def require_alone(counted: int | None, written: int, name: str, *, is_mounted: bool = False) -> None:
    """Raise RefusedError if other processes wrote, which the kernel permits.

    `counted` is the kernel's count while fio ran, or None if unknown.
    """
    if counted is not None and counted - written > _MAX_FOREIGN * written:
        who = "the filesystem or another process" if is_mounted else "another process"
        raise RefusedError(
            f"{name}: {who} wrote {counted - written} bytes while fio wrote {written}: the figures do "
            "not describe the workload; find the process (opwatch --dev ... shows the processes), stop "
            "it, and resume"
        )
