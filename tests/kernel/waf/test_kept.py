"""`opwatch waf -o FILE` on a simulated drive: a replay equals the live output, to the byte."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.kernel.support.drives import MIB, create_drive
from tests.kernel.support.watching import run_opwatch, wait_for_file
from tests.kernel.waf.test_waf import FAST, make_write_command
from tests.requirements import require_drive


@pytest.fixture(autouse=True)
def _drive() -> None:
    require_drive()


@pytest.mark.parametrize("form", [["--json"], []])
def test_replay_of_waf_equals_its_output(tmp_path: Path, form: list[str]) -> None:
    path = tmp_path / "a.opw"
    with create_drive() as one:
        options = ("--dev", one.device, "-o", str(path), *form, *FAST)
        live = run_opwatch("waf", *options, "--", "sh", "-c", make_write_command(one.device, 60))
        assert live.returncode == 0, live.stderr
        # An existing file is never overwritten, and the refusal comes before any access to the drive.
        again = run_opwatch("waf", *options, "--for", "1")
        assert again.returncode == 3 and "exists" in again.stderr
    shown = run_opwatch("replay", *form, str(path))
    assert (shown.returncode, shown.stdout) == (0, live.stdout), shown.stderr
    assert run_opwatch("replay", "--from", "1", str(path)).returncode == 2


def test_killed_recorder_keeps_its_samples(tmp_path: Path) -> None:
    path = tmp_path / "a.opw"
    with create_drive(64 * MIB) as one:
        argv = [sys.executable, "-m", "opwatch", "waf", "--dev", one.device, "-o", str(path), *FAST, "--for"]
        run = subprocess.Popen([*argv, "60"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        wait_for_file(path, run)
        # Wait for the first samples, so that the writes fall between two samples.
        time.sleep(2)
        subprocess.run(["sh", "-c", make_write_command(one.device, 40)], check=True)
        time.sleep(2)
        os.kill(run.pid, signal.SIGKILL)
        run.communicate()
    shown = run_opwatch("replay", "--json", str(path))
    assert "was killed" in shown.stderr
    document = json.loads(shown.stdout)
    # The recording has the host's writes up to the last sample.
    assert sum(document["host_bytes_by_device"].values()) >= 40 * MIB
