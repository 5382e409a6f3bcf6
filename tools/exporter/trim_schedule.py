"""Hourly checks of every filesystem's trim, in a process of their own. Imported with --trim only."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from opwatch.errors import BadInput, OpwatchError
from opwatch.foreign import parse_json
from opwatch.metrics.family import MetricSamples
from opwatch.metrics.trims import LossKey, LostBytesCounter, TrimState, add_trim_metrics
from opwatch.tools.exporter.threads import start_thread

TRIM_EVERY_S = 3600.0
_DEADLINE_S = 300.0
# -P: import nothing from the current folder.
_PROBE = ("-P", "-m", "opwatch.tools.exporter.trim_probe")
_MAX_MOUNTS = 1000


@dataclass(frozen=True, slots=True)
class TrimCheck:
    """One filesystem's answer of the process."""

    mountpoint: str
    verdict: str
    lost: dict[LossKey, int]


def parse_checks(text: bytes) -> list[TrimCheck]:
    """Return the answers of a process. Raise BadInput if a line is not one of its own."""
    checks = []
    for line in text.splitlines()[:_MAX_MOUNTS]:
        row = parse_json(line, "the answer of a trim check")
        try:
            lost = {(str(layer), str(code)): int(count) for layer, code, count in row["lost"]}
            checks.append(TrimCheck(str(row["mountpoint"]), str(row["verdict"]), lost))
        except (KeyError, TypeError, ValueError) as error:
            raise BadInput(f"a trim check answered {line[:80]!r}") from error
    return checks


class TrimSchedule:
    """Checks from construction on. Methods are called in the loop's thread, and never wait."""

    def __init__(
        self,
        call_soon: Callable[[Callable[[], None]], None],
        say: Callable[[str], None],
        command: Sequence[str] = (sys.executable, *_PROBE),
    ) -> None:
        self._call_soon, self._say, self._command = call_soon, say, command
        self._states: list[TrimState] = []
        self._counters: dict[str, LostBytesCounter] = {}
        self._is_running = False
        self._trouble = ""

    def run_check(self) -> float:
        """Start a check, unless the last one still runs. Return the seconds until the next."""
        if not self._is_running:
            self._is_running = True
            try:
                start_thread("trim", self._run)
            except OpwatchError as error:
                self._end_check(None, str(error))
        return TRIM_EVERY_S

    def _run(self) -> None:
        checks: list[TrimCheck] | None = None
        trouble = ""
        try:
            done = subprocess.run(
                self._command, capture_output=True, timeout=_DEADLINE_S, check=False, stdin=subprocess.DEVNULL
            )
            checks = parse_checks(done.stdout)
            if done.returncode:
                trouble = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
        except (OSError, subprocess.SubprocessError, BadInput) as error:
            trouble = str(error)
        self._call_soon(lambda: self._end_check(checks, trouble))

    def _end_check(self, checks: list[TrimCheck] | None, trouble: str) -> None:
        self._is_running = False
        if trouble != self._trouble:
            self._trouble = trouble
            if trouble:
                self._say(f"the trim check is not complete: {trouble}")
        if checks is None:
            return
        now = time.time()
        self._counters = {
            one.mountpoint: self._counters.get(one.mountpoint) or LostBytesCounter() for one in checks
        }
        self._states = [
            TrimState(
                one.mountpoint,
                one.verdict,
                now,
                lost_bytes=self._counters[one.mountpoint].add_check(one.lost),
            )
            for one in checks
        ]

    def add_metrics(self, samples: MetricSamples) -> None:
        """Add the last verdict of each filesystem."""
        for state in self._states:
            add_trim_metrics(samples, state)
