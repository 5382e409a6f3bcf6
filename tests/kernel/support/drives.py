"""Simulated drives for tests: created, used and always removed."""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opwatch.collectors.firmware.simulated import find_simulated
from opwatch.collectors.firmware.transports import FolderTransport
from opwatch.drive import life, server
from opwatch.drive.place import DriveFolder
from opwatch.drive.spec import parse_fault, parse_op, physical_bytes
from opwatch.errors import OpwatchError
from opwatch.host.device import Devices
from tests.kernel.support.guard import guard_resource

MIB = 1 << 20
_numbers = itertools.count()


def make_name() -> str:
    """Return a name that no other test run uses."""
    return f"test-{os.getpid()}-{next(_numbers)}"


@dataclass(frozen=True)
class Drive:
    name: str
    device: str
    pages: FolderTransport

    @property
    def place(self) -> DriveFolder:
        return DriveFolder(self.name)

    def read_truth(self) -> dict[str, Any]:
        return life.read_true_counters(self.place)

    def inject_faults(self, *faults: str) -> None:
        for text in faults:
            life.inject_fault(self.place, parse_fault(text))

    def kill_server(self) -> None:
        record = self.place.read_record()
        assert record
        os.kill(record.pid, 9)
        assert server.wait_for_end(self.place, 10)


@contextlib.contextmanager
def create_drive(
    size: int = 64 * MIB,
    op: str | None = "10%",
    faults: tuple[str, ...] = (),
    config: dict[str, int] | None = None,
    *,
    name: str | None = None,
    no_data: bool = False,
    state: Path | None = None,
    words: tuple[str, ...] = (),
) -> Iterator[Drive]:
    """Yield a small drive; with `op` None the state file decides the sizes."""
    sizes = {"user_bytes": size, "physical_bytes": physical_bytes(size, parse_op(op))} if op else {}
    name = name or make_name()
    parsed = tuple(parse_fault(text, creating=True) for text in faults)
    with guard_resource("drive", name):
        record = life.create_drive(
            life.DriveSpec(name, sizes | (config or {}), parsed, no_data, state, words)
        )
        pages = find_simulated(Devices().resolve(record.device))
        assert pages
        try:
            yield Drive(name, record.device, pages)
        finally:
            with contextlib.suppress(OpwatchError):
                life.destroy_drive(name)


def run_plain_fio(device: str, *options: str) -> subprocess.CompletedProcess[str]:
    common = ("--direct=1", "--ioengine=libaio", "--verify_state_save=0")
    argv = ["fio", "--name=x", f"--filename={device}", *common, *options]
    return subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)


def run(*argv: str) -> str:
    """Run a tool that must succeed, and return the output."""
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, f"{argv}: {done.stdout}{done.stderr}"
    return done.stdout


def find_loops(name: str) -> list[str]:
    """Return the loop devices whose backing file is in this drive's folder."""
    loops = []
    for backing in Path("/sys/block").glob("loop*/loop/backing_file"):
        with contextlib.suppress(OSError):
            if f"/{name}/" in backing.read_text():
                loops.append(backing.parents[1].name)
    return loops
