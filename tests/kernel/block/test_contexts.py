"""The probe for whether this kernel runs BPF programs while PID 1 is current."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from opwatch.collectors.block.contexts import ContextProbe, is_global, watch_switches
from opwatch.host.scratch import ScratchDisk
from opwatch.trace.contexts import BLIND_CONTEXT, SwitchCounts
from tests.kernel.support.watching import run_opwatch


@pytest.fixture
def switches() -> SwitchCounts:
    if not is_global():
        pytest.skip("this is a container: PID 1 here is not the machine's")
    watched = watch_switches(10)
    assert isinstance(watched, SwitchCounts), watched
    return watched


def test_probe_decides_whether_programs_skip_pid_1(switches: SwitchCounts) -> None:
    """Orphans wake PID 1, so it does run; programs see either all of its switches or none."""
    assert switches.kernel >= 3
    assert switches.is_skipping is (switches.program == 0)
    again = watch_switches(10)
    assert isinstance(again, SwitchCounts)
    assert again.is_skipping is switches.is_skipping


def test_probe_thread_agrees_with_the_direct_probe(switches: SwitchCounts) -> None:
    probe = ContextProbe()
    probe.start()
    assert probe.has_skips(10) is switches.is_skipping
    assert (probe.describe_effect() or "").startswith(BLIND_CONTEXT) is switches.is_skipping


def test_doctor_reports_skipped_contexts(switches: SwitchCounts) -> None:
    checks = json.loads(run_opwatch("doctor", "--json").stdout)["checks"]
    [contexts] = [check for check in checks if check["name"] == "contexts"]
    assert (BLIND_CONTEXT in contexts["finding"]) is switches.is_skipping


def test_probe_is_undecided_in_a_container() -> None:
    asked = "from opwatch.collectors.block.contexts import watch_switches; print(watch_switches(0.2))"
    done = subprocess.run(
        ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", asked],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode and "unshare" in done.stderr:
        pytest.skip(f"no PID namespaces here: {done.stderr.strip()}")
    assert "in a container" in done.stdout, done.stderr


def test_trim_record_reports_skipped_contexts(
    switches: SwitchCounts, disk: ScratchDisk, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.mktemp("history") / "x.history"
    done = run_opwatch("trim", "record", "--dev", disk.name, "-o", str(file), "--for", "3", "--json")
    assert done.returncode == 0, done.stderr
    blind = json.loads(done.stdout)["blind"]
    assert (blind is not None and BLIND_CONTEXT in blind) is switches.is_skipping
