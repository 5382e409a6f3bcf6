"""Recordings of a test's load, in this process or in a separate process."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from opwatch.collectors.history.recorder import HistoryRecorder
from opwatch.host.device import Devices
from tests.kernel.support.watching import ATTEMPTS, run_opwatch


def record_load(disk: str, path: Path, load: Callable[[], None]) -> HistoryRecorder:
    """Record a load and return the recorder; retry while the host loses events."""
    for _ in range(ATTEMPTS):
        path.unlink(missing_ok=True)
        recording = HistoryRecorder(Devices(), Devices().resolve(disk), path)
        try:
            load()
            assert recording.process_changes()
        finally:
            recording.close()
        if not recording.history.forgotten:
            break
    return recording


def run_command(*words: str, status: int = 0) -> dict[str, Any]:
    done = run_opwatch("trim", *words, "--json")
    assert done.returncode == status, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


@contextlib.contextmanager
def start_recorder(device: str, path: Path) -> Iterator[subprocess.Popen[str]]:
    """Yield a running `opwatch trim record` process."""
    argv = [sys.executable, "-m", "opwatch", "trim", "record", "--dev", device, "-o", str(path)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        while "recording into" not in (line := process.stderr.readline()):
            assert line, "it ended before it began"
        try:
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            if not process.stderr.closed:
                process.communicate(timeout=30)
