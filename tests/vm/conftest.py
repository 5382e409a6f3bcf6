"""Choose the kernels to test, and report the reason for each skipped kernel."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from tests.requirements import skip_or_fail
from tests.vm import config, suite
from tests.vm.archive import assets
from tests.vm.config import Kernel
from tests.vm.errors import FetchError
from tests.vm.requirements import IN_GUEST

_REPORT_PROPERTY = "in guests"

# The files in guest/ run only in a guest because they create and destroy block devices.
collect_ignore = [] if os.environ.get(IN_GUEST) else ["guest"]


def choose_kernels(bench_itself: bool = False) -> list[Kernel]:
    """Return the kernels named in OPWATCH_VM_KERNEL (comma-separated), or all if the variable is not set. CI
    runs the kernels with a tier, and the bench's own tests only on those that run all files of CI."""
    known = config.read_config()
    names = os.environ.get("OPWATCH_VM_KERNEL", "")
    if names:
        return [known.find_kernel(name) for name in names.split(",")]
    if os.environ.get("OPWATCH_VM_TIER", "") != "ci":
        return list(known.kernels)
    return [k for k in known.kernels if k.tier and (k.tier in suite.DEFAULT_TIERS or not bench_itself)]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that takes `kernel` once per kernel."""
    if "kernel" in metafunc.fixturenames:
        kernels = choose_kernels(bench_itself="file" not in metafunc.fixturenames)
        metafunc.parametrize("kernel", kernels, ids=[k.name for k in kernels], scope="module")


def _explain_unavailable() -> str | None:
    if os.environ.get(IN_GUEST):
        return "a guest does not boot guests"
    if shutil.which(os.environ.get("CC", "cc")) is None:
        return "no C compiler for the guest agent"
    return None


@pytest.fixture(scope="session")
def bench() -> None:
    """Make sure that the emulator is available; otherwise skip with the reason."""
    reason = _explain_unavailable()
    if reason:
        skip_or_fail("vm", reason)
    try:
        assets.get_emulator(config.read_config().qemu)
    except FetchError as error:
        skip_or_fail("vm", str(error))


@pytest.fixture(scope="module")
def bootable(bench: None, kernel: Kernel) -> Kernel:
    """Return a kernel that is in the cache."""
    try:
        assets.get_kernel_image(kernel)
    except FetchError as error:
        skip_missing_kernel(kernel, error)
    return kernel


def skip_missing_kernel(kernel: Kernel, error: FetchError) -> NoReturn:
    """Skip with the reason. If guests are required, fail instead, unless the kernel is optional."""
    if kernel.optional:
        pytest.skip(f"{error}; it may be missing: {kernel.optional}")
    skip_or_fail("vm", str(error))


@pytest.fixture
def report(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """Return a function that takes lines to show at the end of the run. The lines travel in the test report
    because the test may run in another process."""
    return lambda line: record_property(_REPORT_PROPERTY, line)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show the tests that ran in guests, and the reasons for skipped tests."""
    reports = (
        run_report for kind in ("passed", "failed") for run_report in terminalreporter.stats.get(kind, [])
    )
    said = [
        text
        for run_report in reports
        for name, text in run_report.user_properties
        if name == _REPORT_PROPERTY
    ]
    if said:
        terminalreporter.section("in guests")
        for line in said:
            terminalreporter.write_line(line)


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Keep a run on the host out of guest/ even if the command line names a file there."""
    inside = "guest" in collection_path.parts and "vm" in collection_path.parts
    return True if inside and not os.environ.get(IN_GUEST) else None
