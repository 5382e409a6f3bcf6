"""Which kernels to test, and why not if not."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.requirements import unmet
from tests.vm import assets, config
from tests.vm.config import Kernel
from tests.vm.errors import FetchError
from tests.vm.requirements import IN_GUEST

_SAID = "in guests"

# The files in guest/ run in a guest only: they make and break block devices.
collect_ignore = [] if os.environ.get(IN_GUEST) else ["guest"]


def chosen_kernels() -> list[Kernel]:
    """Those that OPWATCH_VM_KERNEL names, separated by commas; all if it is not set."""
    known = config.load()
    names = os.environ.get("OPWATCH_VM_KERNEL", "")
    return [known.kernel(n) for n in names.split(",")] if names else list(known.kernels)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Runs a test that takes `kernel` once per kernel."""
    if "kernel" in metafunc.fixturenames:
        kernels = chosen_kernels()
        metafunc.parametrize("kernel", kernels, ids=[k.name for k in kernels], scope="module")


def _missing() -> str | None:
    if os.environ.get(IN_GUEST):
        return "a guest does not boot guests"
    if shutil.which(os.environ.get("CC", "cc")) is None:
        return "no C compiler for the guest agent"
    return None


@pytest.fixture(scope="session")
def bench() -> None:
    """The emulator is at hand; what is missing is the reason to skip."""
    reason = _missing()
    if reason:
        unmet("vm", reason)
    try:
        assets.emulator(config.load().qemu)
    except FetchError as error:
        unmet("vm", str(error))


@pytest.fixture(scope="module")
def bootable(bench: None, kernel: Kernel) -> Kernel:
    """A kernel that is in the cache."""
    try:
        assets.kernel_image(kernel)
    except FetchError as error:
        unmet("vm", str(error))
    return kernel


@pytest.fixture
def report(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """Takes lines to show at the end of the run; it may be in another process that they are said."""
    return lambda line: record_property(_SAID, line)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Shows what ran in guests, with the reasons of what did not."""
    reports = (each for kind in ("passed", "failed") for each in terminalreporter.stats.get(kind, []))
    said = [text for each in reports for name, text in each.user_properties if name == _SAID]
    if said:
        terminalreporter.section("in guests")
        for line in said:
            terminalreporter.write_line(line)


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Keeps a host's run out of guest/ even when a file there is named."""
    inside = "guest" in collection_path.parts and "vm" in collection_path.parts
    return True if inside and not os.environ.get(IN_GUEST) else None
