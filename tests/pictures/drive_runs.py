"""Results of published experiments that cannot run in virtual time: on a drive with real timing, and on
sets."""

from __future__ import annotations

import contextlib
import io
import sys
from pathlib import Path

from opwatch.collectors.guard.looking import identity_of_disk
from opwatch.errors import OpwatchError
from opwatch.ftl import profiles
from opwatch.host.device import Devices
from opwatch.host.process import run_tool
from opwatch.sinks.terminal import say
from opwatch.tools import cli
from opwatch.tools.demo_drive import journals_of, own_drive

ROOT = Path(__file__).parents[2]
_PROFILE = ROOT / "docs" / "seeds" / "small-drive.toml"
ON_DRIVE = ("write-saturation", "free-space", "iometer-op10")
_KERNEL = "6.12"
_RUN_S = 5


def document_of_drive(scenario: str) -> str:
    """Return the JSON of a run on a small simulated drive with realistic response times."""
    profile = profiles.load(str(_PROFILE))
    config = dict(profile.drive) | {f"service.{key}": value for key, value in profile.timing.items()}
    with own_drive(config, ("timing",), say) as (record, device):
        serial = identity_of_disk(Devices(), Devices().resolve(device.node)).serial
        if serial is None:
            raise OpwatchError(f"{device.node} does not tell its serial number")
        device.require_same()
        words = ["--dev", device.node, "--destroy", "--confirm", serial, "--allow-virtual", "--json"]
        pace = ["--settle", "0", "--refresh", "0", "--journals", str(journals_of(record.name))]
        # Run in this process: the device is open here, and a separate command would find it in use.
        with contextlib.redirect_stdout(io.StringIO()) as document:
            if status := cli.main(["sweep", "run", "--scenario", scenario, *words, *pace]):
                reason = ": a level is not in steady state; run on an idle machine" if status == 6 else ""
                raise OpwatchError(f"{scenario} on a drive ended with status {status}{reason}")
        return document.getvalue()


def document_of_sets() -> str:
    """Return the JSON of mixed-io on md sets and dm in a guest, because this machine may lack both."""
    guest = [sys.executable, "-m", "tests.vm.run", "--kernel", _KERNEL, "--timeout", "1800", "--"]
    run = [sys.executable, "-m", "tests.vm.guest.sweep.mixed_sets", str(_RUN_S)]
    return run_tool([*guest, *run], timeout_s=2000, ends_with_us=True)
