"""Recordings that a flight recorder writes automatically: the time before a rule fired, and a while after."""

from __future__ import annotations

import math
import subprocess
import sys
import time

from opwatch.recording.ring.caught import CaughtRecordings
from opwatch.rules.watch import Firing, RuleWatch
from opwatch.samples.entries import RunEntry
from opwatch.samples.story import Story
from opwatch.sinks.terminal import say
from opwatch.tools.kept_run import KeptRun

_LONGEST_S = 120.0
# Minimum distance between recordings if a rule fires all day, so the stored recordings cover hours. Each
# names all rules that fired since the previous recording.
_APART_S = 300.0


class Catcher:
    """Takes the entries of a run that is kept in a ring. Call finish() once the ring is complete."""

    def __init__(
        self, rules: RuleWatch, kept: KeptRun, folder: CaughtRecordings, after_s: float, keep_s: float
    ) -> None:
        self._rules, self._kept, self._folder, self._after_s = rules, kept, folder, after_s
        self._apart_s = min(_APART_S, keep_s / 2)
        self._story = Story()
        # The first firing in the next recording, and the time for writing the recording.
        self._first: Firing | None = None
        self._due = 0.0
        self._writing: subprocess.Popen[bytes] | None = None
        self._written = -math.inf

    def take(self, entry: RunEntry) -> None:
        for news in self._story.take(entry):
            for firing in self._rules.take(news):
                self._note(firing)
        # Write one recording at a time; the next recording waits for a later entry.
        is_writing = self._writing is not None and self._writing.poll() is None
        if self._first and not is_writing and time.monotonic() >= self._due:
            self._write(self._first)

    def finish(self) -> None:
        """Write the pending recording of a run that has ended."""
        self._wait()
        if self._first:
            self._write(self._first)
            self._wait()
        self._folder.close()

    def _wait(self) -> None:
        """Wait until the current recording is complete, up to a limit."""
        if not self._writing:
            return
        try:
            self._writing.wait(_LONGEST_S)
        except subprocess.TimeoutExpired:
            self._writing.kill()
            say("a recording of the ring took too long, and is not whole")

    def _note(self, firing: Firing) -> None:
        self._kept.note("rule fired", firing.words)
        say(firing.words)
        if not self._first:
            self._first = firing
            self._due = max(time.monotonic() + self._after_s, self._written + self._apart_s)

    def _write(self, firing: Firing) -> None:
        """Start a process that writes the recording, to keep sampling undelayed."""
        self._first = None
        self._written = time.monotonic()
        for removed in self._folder.make_room():
            say(f"removed {removed}, the oldest recording")
        path = self._folder.new_path(firing.device)
        # -P: import nothing from the current folder.
        argv = [sys.executable, "-P", "-m", "opwatch", "flight", "dump", "--quiet", "-o", str(path)]
        self._writing = subprocess.Popen(
            [*argv, "--ring", str(self._kept.path)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        say(f"writing {path}")
