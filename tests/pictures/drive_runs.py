"""Results of published experiments that cannot run in virtual time: on a drive with real timing, and on
sets."""

from __future__ import annotations

import contextlib
import io
import sys
from pathlib import Path

from opwatch.collectors.guard.disk_facts import read_disk_identity
from opwatch.errors import OpwatchError
from opwatch.ftl import profiles
from opwatch.host.device import Devices
from opwatch.host.process import run_tool
from opwatch.sinks.terminal import print_message
from opwatch.tools import cli
from opwatch.tools.demo_drive import create_temporary_drive, get_journal_folder

ROOT = Path(__file__).parents[2]
_PROFILE = ROOT / "docs" / "seeds" / "small-drive.toml"
ON_DRIVE = ("write-saturation", "free-space", "iometer-op10")
_KERNEL = "6.12"
_RUN_S = 5


def run_on_drive(scenario: str) -> str:
    """Return the JSON of a run on a small simulated drive with realistic response times."""
    profile = profiles.load_profile(str(_PROFILE))
    config = dict(profile.drive) | {f"service.{key}": value for key, value in profile.timing.items()}
    with create_temporary_drive(config, ("timing",), print_message) as (record, device):
        serial = read_disk_identity(Devices(), Devices().resolve(device.node)).serial
        if serial is None:
            raise OpwatchError(f"{device.node} does not report its serial number")
        device.require_same()
        words = ["--dev", device.node, "--destroy", "--confirm", serial, "--allow-virtual", "--json"]
        pace = ["--settle", "0", "--refresh", "0", "--journals", str(get_journal_folder(record.name))]
        # Run in this process: the device is open here, and a separate command would find it in use.
        with contextlib.redirect_stdout(io.StringIO()) as document:
            if status := cli.main(["sweep", "run", "--scenario", scenario, *words, *pace]):
                reason = ": a level is not in steady state; run on an idle machine" if status == 6 else ""
                raise OpwatchError(f"{scenario} on a drive exited with status {status}{reason}")
        return document.getvalue()


def run_on_sets() -> str:
    """Return the JSON of mixed-io on md sets and dm in a guest, because this machine may lack both."""
    guest = [sys.executable, "-m", "tests.vm.run", "--kernel", _KERNEL, "--timeout", "1800", "--"]
    run = [sys.executable, "-m", "tests.vm.guest.sweep.mixed_sets", str(_RUN_S)]
    return run_tool([*guest, *run], timeout_s=2000, ends_with_us=True)
