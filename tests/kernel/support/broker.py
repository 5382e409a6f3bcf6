"""A broker on a socket of its own, for one test."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from opwatch.collectors.broker.connection import BrokerConnection
from opwatch.errors import OpwatchError

PROGRAM = Path(__file__).parents[3] / "tools/broker/opwatch-broker"
NOBODY = 65534


@dataclass(frozen=True)
class RunningBroker:
    """The processes and the socket of a broker."""

    process: subprocess.Popen[str]
    socket: str

    @property
    def pid(self) -> int:
        return self.process.pid

    def list_pids(self) -> list[int]:
        """Return the server, the process of tracers, the starter, and the processes of drives."""
        return [self.pid, *_list_descendants(self.pid)]

    @property
    def tracing_pid(self) -> int:
        return _list_descendants(self.pid)[0]


def _list_descendants(pid: int) -> list[int]:
    children = [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return [*children, *(pid for child in children for pid in _list_descendants(child))]


def wait_for_broker(path: str) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            with contextlib.closing(BrokerConnection(path, 5)) as connection:
                connection.greet()
                return
        except OpwatchError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


@contextlib.contextmanager
def make_open_folder() -> Iterator[Path]:
    """Yield a folder that other users can enter, unlike those of pytest."""
    folder = Path(tempfile.mkdtemp(prefix="opwatch-broker-"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@contextlib.contextmanager
def run_broker(*options: str, wrapper: Sequence[str] = ()) -> Iterator[RunningBroker]:
    """Run a broker until the end of the block; it has to end with status 0."""
    if not PROGRAM.exists():
        pytest.skip("opwatch was built without its broker")
    with make_open_folder() as folder:
        path = str(folder / "broker.sock")
        argv = [*wrapper, str(PROGRAM), "--socket", path, *options]
        with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as process:
            try:
                wait_for_broker(path)
                yield RunningBroker(process, path)
                if not wrapper:
                    process.send_signal(signal.SIGTERM)
                    assert process.wait(30) == 0, process.stderr and process.stderr.read()
                    assert not os.path.exists(path)
            finally:
                process.kill()
