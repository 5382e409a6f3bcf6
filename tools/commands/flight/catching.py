"""Recordings that a flight recorder writes automatically: the time before a rule fired, and a while after."""

from __future__ import annotations

import math
import subprocess
import sys
import time

from opwatch.recording.ring.incidents import IncidentFolder
from opwatch.rules.watch import Firing, RuleWatch
from opwatch.samples.entries import RunEntry
from opwatch.samples.presenter import RunPresenter
from opwatch.sinks.terminal import print_message
from opwatch.tools.runs.run_recorder import RunRecorder

_MAX_AFTER_S = 120.0
# Minimum distance between recordings if a rule fires all day, so the stored recordings cover hours. Each
# names all rules that fired since the previous recording.
_MIN_DISTANCE_S = 300.0


class Catcher:
    """Takes the entries of a run that is kept in a ring. Call finish_recording() when the ring is
    complete."""

    def __init__(
        self,
        rules: RuleWatch,
        kept: RunRecorder,
        folder: IncidentFolder,
        after_s: float,
        keep_s: float,
        *,
        explains: bool = False,
    ) -> None:
        """With `explains`, the answer of opwatch why is written beside each recording."""
        self._rules, self._kept, self._folder, self._after_s = rules, kept, folder, after_s
        self._apart_s = min(_MIN_DISTANCE_S, keep_s / 2)
        self._options = ("--why",) if explains else ()
        self._story = RunPresenter()
        # The first firing in the next recording, and the time for writing the recording.
        self._first: Firing | None = None
        self._due = 0.0
        self._writing: subprocess.Popen[bytes] | None = None
        self._written = -math.inf

    def process_entry(self, entry: RunEntry) -> None:
        for news in self._story.process_entry(entry):
            for firing in self._rules.process_news(news):
                self._record_firing(firing)
        # Write one recording at a time; the next recording waits for a later entry.
        is_writing = self._writing is not None and self._writing.poll() is None
        if self._first and not is_writing and time.monotonic() >= self._due:
            self._start_writing(self._first)

    def write_pending(self) -> None:
        """Write the pending recording of a run that has ended."""
        self._wait_for_recording()
        if self._first:
            self._start_writing(self._first)
            self._wait_for_recording()
        self._folder.close()

    def _wait_for_recording(self) -> None:
        """Wait until the current recording is complete, up to a limit."""
        if not self._writing:
            return
        try:
            self._writing.wait(_MAX_AFTER_S)
        except subprocess.TimeoutExpired:
            self._writing.kill()
            print_message("writing a recording of the ring took too long; the recording is incomplete")

    def _record_firing(self, firing: Firing) -> None:
        self._kept.add_event("rule fired", firing.words)
        print_message(firing.words)
        if not self._first:
            self._first = firing
            self._due = max(time.monotonic() + self._after_s, self._written + self._apart_s)

    def _start_writing(self, firing: Firing) -> None:
        """Start a process that writes the recording, to keep sampling undelayed."""
        self._first = None
        self._written = time.monotonic()
        for removed in self._folder.make_room():
            print_message(f"removed {removed}, the oldest recording")
        path = self._folder.new_path(firing.device)
        # -P: import nothing from the current folder.
        argv = [sys.executable, "-P", "-m", "opwatch", "flight", "dump", "--quiet", "-o", str(path)]
        self._writing = subprocess.Popen(
            [*argv, *self._options, "--ring", str(self._kept.path)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        print_message(f"writing {path}")
