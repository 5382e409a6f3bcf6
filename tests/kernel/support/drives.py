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
from opwatch.drive.place import Place
from opwatch.drive.spec import parse_fault, parse_op, physical_bytes
from opwatch.errors import OpwatchError
from opwatch.host.device import Devices
from tests.kernel.support.guard import guarded

MIB = 1 << 20
_numbers = itertools.count()


def a_name() -> str:
    """Return a name that no other test run uses."""
    return f"test-{os.getpid()}-{next(_numbers)}"


@dataclass(frozen=True)
class Drive:
    name: str
    device: str
    pages: FolderTransport

    @property
    def place(self) -> Place:
        return Place(self.name)

    def truth(self) -> dict[str, Any]:
        return life.truth(self.place)

    def fault(self, *faults: str) -> None:
        for text in faults:
            life.fault(self.place, parse_fault(text))

    def kill(self) -> None:
        record = self.place.record()
        assert record
        os.kill(record.pid, 9)
        assert server.wait_dead(self.place, 10)


@contextlib.contextmanager
def drive(
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
    name = name or a_name()
    parsed = tuple(parse_fault(text, creating=True) for text in faults)
    with guarded("drive", name):
        record = life.create(life.Wanted(name, sizes | (config or {}), parsed, no_data, state, words))
        pages = find_simulated(Devices().resolve(record.device))
        assert pages
        try:
            yield Drive(name, record.device, pages)
        finally:
            with contextlib.suppress(OpwatchError):
                life.destroy(name)


def fio(device: str, *options: str) -> subprocess.CompletedProcess[str]:
    common = ("--direct=1", "--ioengine=libaio", "--verify_state_save=0")
    argv = ["fio", "--name=x", f"--filename={device}", *common, *options]
    return subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)


def run(*argv: str) -> str:
    """Run a tool that must succeed, and return the output."""
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, f"{argv}: {done.stdout}{done.stderr}"
    return done.stdout


def loops_of(name: str) -> list[str]:
    """Return the loop devices whose backing file is in this drive's folder."""
    loops = []
    for backing in Path("/sys/block").glob("loop*/loop/backing_file"):
        with contextlib.suppress(OSError):
            if f"/{name}/" in backing.read_text():
                loops.append(backing.parents[1].name)
    return loops
