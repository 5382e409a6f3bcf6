"""The recording of a running sweep: one file for the whole sweep, with levels and steps as phases."""

from __future__ import annotations

import subprocess
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from opwatch.codec import encode
from opwatch.collectors.audit.live_discards import LiveDiscards
from opwatch.collectors.block.blk import BlockTracer
from opwatch.collectors.firmware.live import LiveWaf, find_drives
from opwatch.counters.looks.sample import FirmwareSample
from opwatch.host.device import BlockDevice, Devices
from opwatch.journal.results import LevelRecord
from opwatch.journal.state import SCHEMA, SweepState
from opwatch.recording.schema import NOTE, PHASE_BEGAN, PHASE_ENDED, SWEEP, format_json
from opwatch.recording.writing.recorder import Recorder
from opwatch.samples.end import End
from opwatch.samples.entries import CountersRead, RunEntry
from opwatch.samples.membership import Membership
from opwatch.samples.selection import Selection
from opwatch.sinks.terminal import print_message
from opwatch.tools.acting.sweep.bench import SweepClock
from opwatch.tools.runs.run_recorder import create_recording, make_header, warn_of_own_disk
from opwatch.tools.runs.watching import DiskWatcher
from opwatch.trace.tracer_set import TracerSet

EVERY_S = 1.0


class SweepRecorder:
    """Watches and records the drive of a sweep inside the context.

    The sweep itself reads the drive's counters, so the log pages have a single reader. `problem` is the
    reason for missing entries, or None.
    """

    def __init__(self, path: Path, disk: BlockDevice, state: SweepState) -> None:
        self._path, self._disk, self._state = path, disk, state
        self._stack = ExitStack()
        self._why = "interrupted"

    def __enter__(self) -> SweepRecorder:
        with ExitStack() as stack:
            # Create the file first, so that a failure ends the sweep before anything is attached.
            self._recorder = Recorder(create_recording(self._path, make_header(EVERY_S)), print_message)
            stack.callback(lambda: self._recorder.finish_recording(self._why))
            self._watching = self._start_watching(stack)
            warn_of_own_disk(self._recorder, self._path, (self._disk.name,))
            self._recorder.add_event(NOTE, f"sweep {self._state.request.name}")
            self._record_state()
            self._record_entries(self._watching.make_initial_entries())
            self._stack = stack.pop_all()
        return self

    def _start_watching(self, stack: ExitStack) -> DiskWatcher:
        devices = Devices()
        tracers = TracerSet(BlockTracer)
        stack.callback(tracers.close)
        membership = Membership(devices, Selection(devices, [self._disk.name]))
        # Never started; it only finds the drive behind the disk.
        drive = LiveWaf(devices, lambda leaves: find_drives(leaves, all_kinds=True), EVERY_S)
        discards = LiveDiscards(lambda _: False)
        return stack.enter_context(closing(DiskWatcher(membership, tracers, drive, discards)))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._stack:
            self._why = f"interrupted: {kind.__name__}" if kind else "the sweep has ended"
            self._record_entries(self._watching.end_watch(with_rest=True))

    @property
    def problem(self) -> str | None:
        return self._recorder.problem

    def record_interval(self) -> None:
        """Record the interval since the last tick."""
        self._record_entries(self._watching.read_interval())

    def record_poll(self, sample: FirmwareSample) -> None:
        """Record a reading of the drive's counters."""
        self._recorder.add_entry(CountersRead(sample))

    def record_start(self, phase: str) -> None:
        """Record the start of a level or a step. The first sample is taken inside, so the phase covers
        nothing else."""
        self._recorder.add_event(PHASE_BEGAN, phase)
        self.record_interval()

    def record_end(self, phase: str) -> None:
        self.record_interval()
        self._recorder.add_event(PHASE_ENDED, phase)

    def record_phase(self, phase: str, begin_ns: int, end_ns: int) -> None:
        self._recorder.add_event(PHASE_BEGAN, phase, mono_ns=begin_ns)
        self._recorder.add_event(PHASE_ENDED, phase, mono_ns=end_ns)

    def record_outcome(self, record: LevelRecord) -> None:
        """Record a finished level as in the journal, without its seconds, which the samples contain."""
        self._record_entry("outcome", encode(replace(record, seconds=())))

    def record_completion(self) -> None:
        """Record that all levels are finished."""
        self._record_entry("end", {})

    def _record_state(self) -> None:
        """Record the request, and the levels that were finished before. A test has no levels."""
        self._record_entry("request", {"schema": SCHEMA, **encode(self._state.request)})
        for record in self._state.records.values():
            self.record_outcome(record)

    def _record_entry(self, entry: str, fields: dict[str, Any]) -> None:
        if not self._state.request.test:
            self._recorder.add_event(SWEEP, format_json({"entry": entry, **fields}))

    def _record_entries(self, entries: list[RunEntry]) -> None:
        for entry in entries:
            self._recorder.add_entry(entry)


class SampledClock:
    """The clock of a recorded sweep: takes a sample whenever one is due during a wait."""

    def __init__(self, time: SweepClock, kept: SweepRecorder) -> None:
        self._time, self._kept = time, kept
        self._due = time.now() + EVERY_S

    def now(self) -> float:
        return self._time.now()

    def watch_process(self, process: subprocess.Popen[bytes]) -> None:
        self._time.watch_process(process)

    def reap(self) -> None:
        self._time.reap()

    def wait_until(self, until: float) -> End:
        while True:
            end = self._time.wait_until(min(until, self._due))
            if self._time.now() >= self._due:
                self._kept.record_interval()
                # Missed samples are merged into the current sample.
                self._due = max(self._due + EVERY_S, self._time.now())
            if end is not End.TICK or self._time.now() >= until:
                return end
