"""The arm64 guest boots, loads the BPF programs and counts to the exact request."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Callable

import pytest

from tests.requirements import skip_or_fail
from tests.vm import exactness
from tests.vm.archive import arm64
from tests.vm.config import CHECKOUT
from tests.vm.errors import FetchError
from tests.vm.report import results
from tests.vm.requirements import IN_GUEST

TEST = CHECKOUT / "tests/vm/guest/arm64/test_smoke.py"
_JUNIT = "/run/results.xml"
# Half a minute on an idle machine, a minute the first time.
TIMEOUT_S = 900.0


@pytest.mark.manual
@pytest.mark.notes_rows
def test_arm64_guest_passes_the_smoke_test(report: Callable[[str], None]) -> None:
    foreign = arm64.read_config()
    reason = arm64.explain_missing_tools(foreign)
    if reason:
        skip_or_fail("arm64", reason)
    assert foreign.kernel.name.startswith(foreign.kernel.series.rstrip("."))
    try:
        arm64.get_root(foreign)
    except FetchError as error:
        skip_or_fail("vm", str(error))
    path = f"{CHECKOUT}:{sysconfig.get_path('purelib')}"
    # Plugins may have parts compiled for this machine.
    plain = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    env = {IN_GUEST: foreign.kernel.name, "PYTHONPATH": path} | plain
    argv = [f"/usr/bin/{foreign.python}", "-m", "pytest", "-p", "no:cacheprovider", "-vv", "--color=no"]
    with arm64.make_machine(foreign) as guest:
        arm64.enter_checkout(guest)
        done = guest.run([*argv, f"--junitxml={_JUNIT}", str(TEST)], timeout_s=TIMEOUT_S, env=env)
        sys.stdout.write(done.stdout.decode(errors="replace"))
        sys.stdout.write(done.stderr.decode(errors="replace"))
        rows = guest.run(["cat", exactness.GUEST_ROWS_PATH]).stdout
        outcome = results.parse_results(guest.read_file(_JUNIT))
        times = f"up after {guest.boot_s:.1f} s, {done.seconds:.0f} s of tests"
        report(f"{foreign.kernel.name}: {outcome.format_line()}; {times}")
    exactness.store_rows(foreign.kernel.name, "test_smoke", rows)
    assert outcome.failed == {} and outcome.skipped == {}
    assert outcome.passed > 0
