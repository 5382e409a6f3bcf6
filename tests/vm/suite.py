"""The test files for the guest, and running one of them."""

from __future__ import annotations

import ast
import compileall
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tests.vm import devices, exactness
from tests.vm.boot.machine import Machine
from tests.vm.boot.qemu import Shape
from tests.vm.config import CHECKOUT, HERE, Kernel
from tests.vm.errors import BenchError, CommandTimeout
from tests.vm.report import results
from tests.vm.report.results import Results
from tests.vm.requirements import IN_GUEST, MISSING_FEATURES

GUEST = HERE / "guest"
_JUNIT = "/run/results.xml"
# The tiers of a file that has no TIERS.
DEFAULT_TIERS = ("full",)
# A test beyond this share of the file's timeout prints its stack.
_STACK_DUMP_SHARE = 0.8
_DIAGNOSTICS = "uptime; free -m; ps -eo pid,stat,time,args --sort=-time | head -n 15; dmesg | tail -n 40"


# CI runs up to this many files that need the same guest in one: a boot and the first imports take 20 s.
MAX_FILES_PER_GUEST = 4


@dataclass(frozen=True)
class GuestFile:
    """A test file with the requirements on the guest, and further files that share the guest.

    Constants in the file state the requirements: DEVICES (names from devices.toml), CPUS, MOST_CPUS, TIERS,
    TIMEOUT_S. The timeout only ends hanging tests: it is many times the usual duration on a busy machine.
    """

    path: Path
    devices: tuple[str, ...]
    cpus: int
    tiers: tuple[str, ...]
    timeout_s: float
    notes_rows: bool = False
    most_cpus: int = 0
    more: tuple[Path, ...] = ()

    @property
    def paths(self) -> tuple[Path, ...]:
        return (self.path, *self.more)

    @property
    def name(self) -> str:
        return "+".join(path.stem for path in self.paths)


# Files that import this module note rows for docs/exactness.md.
_ROWS_MODULE = "tests.vm.guest.support.exact"


def has_import(source: str, module: str) -> bool:
    """Return whether `source` imports the module or a name from the module, without executing the source."""
    parent, _, name = module.rpartition(".")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module == module:
            return True
        if (
            isinstance(node, ast.ImportFrom)
            and node.module == parent
            and name in {n.name for n in node.names}
        ):
            return True
        if isinstance(node, ast.Import) and module in {n.name for n in node.names}:
            return True
    return False


def read_constants(source: str) -> dict[str, object]:
    """Return the constants that state the file's requirements, without importing the file."""
    constants: dict[str, object] = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            if name in ("DEVICES", "CPUS", "MOST_CPUS", "TIERS", "TIMEOUT_S"):
                try:
                    constants[name] = ast.literal_eval(node.value)
                except ValueError as error:
                    raise BenchError(f"{name} must be a literal, the host reads it") from error
    return constants


def read_guest_file(path: Path) -> GuestFile:
    """Return the file with its requirements."""
    source = path.read_text()
    constants = read_constants(source)
    names, tiers = constants.get("DEVICES", ()), constants.get("TIERS", DEFAULT_TIERS)
    cpus, most_cpus = constants.get("CPUS", 2), constants.get("MOST_CPUS", 0)
    timeout_s = constants.get("TIMEOUT_S", 900)
    if not (isinstance(names, tuple) and isinstance(tiers, tuple)):
        raise BenchError(f"{path}: DEVICES and TIERS must be tuples")
    if not (isinstance(cpus, int) and isinstance(most_cpus, int) and isinstance(timeout_s, int)):
        raise BenchError(f"{path}: CPUS, MOST_CPUS and TIMEOUT_S must be whole numbers")
    return GuestFile(path, names, cpus, tiers, float(timeout_s), has_import(source, _ROWS_MODULE), most_cpus)


def find_skip_reason(kernel: Kernel, file: GuestFile, chosen: str) -> str | None:
    """Return why this kernel skips the file, or None if it runs. `chosen` is "ci", or "" for everything."""
    if chosen not in ("", "ci"):
        raise BenchError(f"OPWATCH_VM_TIER is {chosen!r}: it can be ci, or nothing, which means everything")
    if kernel.files and not {path.stem for path in file.paths} <= set(kernel.files):
        return f"{file.name} is not among what kernels.toml says is tested on {kernel.name}"
    if not chosen or kernel.tier in file.tiers:
        return None
    return f"of {kernel.name} CI runs the tier {kernel.tier!r}; make test-vm runs {file.name} too"


def list_guest_files() -> list[GuestFile]:
    """Return every test file for the guest, longest timeout first, so that none runs alone at the end."""
    paths = (path for path in sorted(GUEST.glob("*/test_*.py")) if path.parent.name != "arm64")
    return sorted(map(read_guest_file, paths), key=lambda file: -file.timeout_s)


def share_guests(files: Sequence[GuestFile]) -> list[GuestFile]:
    """Return the files with those that need the same guest merged."""
    shared: list[GuestFile] = []
    for file in files:
        place = next((place for place, other in enumerate(shared) if _can_share_guest(other, file)), None)
        if place is None:
            shared.append(file)
            continue
        other = shared[place]
        shared[place] = replace(
            other,
            timeout_s=other.timeout_s + file.timeout_s,
            notes_rows=other.notes_rows or file.notes_rows,
            more=(*other.more, file.path),
        )
    return shared


def _can_share_guest(one: GuestFile, other: GuestFile) -> bool:
    needs = [(file.devices, file.cpus, file.most_cpus, file.tiers) for file in (one, other)]
    return needs[0] == needs[1] and len(one.paths) < MAX_FILES_PER_GUEST


@dataclass(frozen=True)
class Run:
    """The results of a file in a guest, the boot time, and the duration of the tests."""

    results: Results
    boot_s: float
    tests_s: float

    def format_line(self) -> str:
        """Return the results as one line of text."""
        return f"{self.results.format_line()}; up after {self.boot_s:.1f} s, {self.tests_s:.0f} s of tests"


def make_pytest_arguments(file: GuestFile, chosen: str) -> list[str]:
    """Return the command that runs the file's tests in a guest; `chosen` as in run_file()."""
    argv = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-vv", "-ra", "--color=no"]
    # The conftest is for the host; its imports take seconds in a guest.
    argv += ["--noconftest", "--tb=short", "--durations=5", "--durations-min=1"]
    argv += ["-o", f"faulthandler_timeout={file.timeout_s * _STACK_DUMP_SHARE:.0f}"]
    if chosen:
        argv += ["-m", "not manual"]
    return [*argv, f"--junitxml={_JUNIT}", *map(str, file.paths)]


def compile_modules() -> None:
    """Compile the modules that tests import, because a guest would compile them at each run."""
    for folder in (HERE, CHECKOUT / "tests" / "kernel" / "support"):
        compileall.compile_dir(folder, quiet=2)


def run_file(kernel: Kernel, file: GuestFile, sink: Callable[[bytes], object], chosen: str = "") -> Run:
    """Boot a guest and run the file's tests in it. Their output goes to the sink; after a failure, so does
    the state of the guest. `chosen` is "ci" to leave out cases marked as manual, or "" for everything."""
    compile_modules()
    attached = devices.choose_devices(file.devices, devices.read_devices())
    env = {IN_GUEST: kernel.name, MISSING_FEATURES: json.dumps(kernel.lacks), "PYTHONUNBUFFERED": "1"}
    # The tests need no plugin, and importing the installed ones takes several seconds under emulation.
    env["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    with Machine(kernel, attached, Shape(cpus=file.cpus, most_cpus=file.most_cpus)) as machine:
        try:
            done = machine.run(
                make_pytest_arguments(file, chosen),
                timeout_s=file.timeout_s,
                env=env,
                stdout=sink,
                stderr=sink,
            )
        except CommandTimeout:
            _print_diagnostics(machine, sink)
            raise
        if done.status:
            _print_diagnostics(machine, sink)
        if done.status not in (0, 1):
            raise BenchError(f"pytest in the guest ended with {done.status}")
        rows = machine.run(["cat", exactness.GUEST_ROWS_PATH]).stdout
        if rows and not file.notes_rows:
            raise BenchError(
                f"{file.name} noted rows: it must import {_ROWS_MODULE}, or make exactness misses it"
            )
        exactness.store_rows(kernel.name, file.name, rows)
        return Run(results.parse_results(machine.read_file(_JUNIT)), machine.boot_s, done.seconds)


def _print_diagnostics(machine: Machine, sink: Callable[[bytes], object]) -> None:
    sink(b"--- the guest after that: load, memory, processes, the end of the kernel's log ---\n")
    machine.run(["sh", "-c", _DIAGNOSTICS], timeout_s=60, stdout=sink, stderr=sink)
