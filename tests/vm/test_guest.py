"""Run every test file of guest/ on every kernel, each in a separate guest; in CI some share one."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

import pytest

from tests.vm import suite
from tests.vm.config import Kernel
from tests.vm.emulator_retry import retry_emulator_failures
from tests.vm.errors import BenchError
from tests.vm.suite import GuestFile

FILES = suite.list_guest_files()
if os.environ.get("OPWATCH_VM_TIER"):
    FILES = suite.share_guests(FILES)


def _write_output(data: bytes) -> None:
    # pytest captures this output and shows it with a failure; with -s at once.
    sys.stdout.write(data.decode(errors="replace"))


@pytest.mark.parametrize(
    "file",
    [pytest.param(f, id=f.name, marks=[pytest.mark.notes_rows] * f.notes_rows) for f in FILES],
)
def test_tests_pass_in_the_guest(bootable: Kernel, file: GuestFile, report: Callable[[str], None]) -> None:
    """Check that no test fails in the guest, and that all skips are listed in the support matrix."""
    chosen = os.environ.get("OPWATCH_VM_TIER", "")
    reason = suite.find_skip_reason(bootable, file, chosen)
    if reason:
        pytest.skip(reason)
    name = f"{bootable.name} {file.name}"
    try:
        run = retry_emulator_failures(lambda: suite.run_file(bootable, file, _write_output, chosen))
    except BenchError as error:
        pytest.fail(f"{name}: {error}", pytrace=False)
    report(f"{name}: {run.format_line()}")
    assert run.results.total > 0
    bad = dict(run.results.failed)
    if "vm" in os.environ.get("OPWATCH_REQUIRE", "").split(","):
        bad |= run.results.unlisted_skips(bootable.lacks)
    if bad:
        reasons = "\n".join(f"{test}: {why}" for test, why in bad.items())
        pytest.fail(f"{name}: {len(bad)} not right in the guest\n{reasons}", pytrace=False)
