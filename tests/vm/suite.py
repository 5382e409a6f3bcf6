"""The test files that run in a guest, and running one of them."""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.vm import devices, exactness, results
from tests.vm.config import HERE, Kernel
from tests.vm.errors import BenchError
from tests.vm.machine import Machine
from tests.vm.qemu import Shape
from tests.vm.requirements import IN_GUEST, LACKS
from tests.vm.results import Results

GUEST = HERE / "guest"
_JUNIT = "/run/results.xml"


@dataclass(frozen=True)
class GuestFile:
    """A test file with what its guest must have.

    The file says so in constants: DEVICES (names of devices.toml), CPUS, TIERS, TIMEOUT_S.
    """

    path: Path
    devices: tuple[str, ...]
    cpus: int
    tiers: tuple[str, ...]
    timeout_s: float


def read_constants(source: str) -> dict[str, object]:
    """The module's constants in capitals, without importing it."""
    constants: dict[str, object] = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            if name in ("DEVICES", "CPUS", "TIERS", "TIMEOUT_S"):
                try:
                    constants[name] = ast.literal_eval(node.value)
                except ValueError as error:
                    raise BenchError(f"{name} must be a literal, the host reads it") from error
    return constants


def guest_file(path: Path) -> GuestFile:
    """The file with its requirements."""
    found = read_constants(path.read_text())
    names, tiers = found.get("DEVICES", ()), found.get("TIERS", ("full", "exactness"))
    cpus, timeout_s = found.get("CPUS", 2), found.get("TIMEOUT_S", 300)
    if not (isinstance(names, tuple) and isinstance(tiers, tuple)):
        raise BenchError(f"{path}: DEVICES and TIERS must be tuples")
    if not (isinstance(cpus, int) and isinstance(timeout_s, int)):
        raise BenchError(f"{path}: CPUS and TIMEOUT_S must be whole numbers")
    return GuestFile(path, names, cpus, tiers, float(timeout_s))


def guest_files() -> list[GuestFile]:
    """Every test file for the guest."""
    return [guest_file(path) for path in sorted(GUEST.glob("test_*.py"))]


def run(kernel: Kernel, file: GuestFile, sink: Callable[[bytes], object]) -> Results:
    """Boots a guest and runs the file's tests in it; their output goes to the sink."""
    chosen = devices.choose(file.devices, devices.load())
    argv = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-ra", "--color=no"]
    argv += [f"--junitxml={_JUNIT}", str(file.path)]
    env = {IN_GUEST: kernel.name, LACKS: json.dumps(kernel.lacks)}
    with Machine(kernel, chosen, Shape(cpus=file.cpus)) as machine:
        done = machine.run(argv, timeout_s=file.timeout_s, env=env, stdout=sink, stderr=sink)
        if done.status not in (0, 1):
            raise BenchError(f"pytest in the guest ended with {done.status}")
        exactness.keep(kernel.name, file.path.stem, machine.run(["cat", exactness.IN_GUEST]).stdout)
        return results.parse(machine.read_file(_JUNIT))
