"""`make demo`: a killed demo leaves nothing behind, and never removes another user's drive."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from opwatch.drive.place import DriveFolder, list_drives
from opwatch.host.mountspaces import survey_mounts
from opwatch.tools import demo_drive
from tests.kernel.support.drives import MIB, create_drive, find_loops
from tests.requirements import require_drive


@pytest.fixture(autouse=True)
def _drive() -> None:
    require_drive()


CONFIG = {"user_bytes": 16 * MIB, "physical_bytes": 20 * MIB}


def find_drives(pid: int) -> list[str]:
    """Return the drives of the demo with this process number."""
    return [place.name for place in list_drives() if place.name.startswith(f"demo-{pid}-")]


def test_demo_drive_is_removed_at_the_end() -> None:
    with demo_drive.create_temporary_drive(CONFIG, (), print) as (record, device):
        assert find_drives(os.getpid()) == [record.name]
        device.require_same()
        claim = demo_drive.CLAIMS / record.name
        assert (claim.stat().st_mode & 0o777, claim.stat().st_uid) == (0o600, 0)
        # The drive is claimed, so the cleanup leaves it alone.
        demo_drive.remove_leftovers(print)
        assert DriveFolder(record.name).is_alive()
    assert not DriveFolder(record.name).exists()
    assert not claim.exists()


def test_users_drive_with_a_demo_name_is_left_alone() -> None:
    """Users may give a drive such a name; no process has this number."""
    with create_drive(16 * MIB, name="demo-99999999") as one:
        demo_drive.remove_leftovers(print)
        assert one.place.is_alive()


def test_another_drive_of_a_claimed_name_is_left_alone() -> None:
    with create_drive(16 * MIB, name=f"demo-{os.getpid()}-other") as one:
        claim = demo_drive.CLAIMS / one.name
        claim.parent.mkdir(parents=True, exist_ok=True)
        claim.touch(mode=0o600)
        record = one.place.read_record()
        assert record
        server = demo_drive.identify_process(record.pid)
        assert server
        claim.write_text(f"[{server.pid}, {server.started_ticks + 1}]")
        demo_drive.remove_leftovers(print)
        assert one.place.is_alive()
        assert not claim.exists()
        # With this server's start time, the claim covers this drive.
        claim.write_text(f"[{server.pid}, {server.started_ticks}]")
        demo_drive.remove_leftovers(print)
        assert not one.place.exists()


def _read_backing(loop: str) -> str | None:
    try:
        return Path(f"/sys/block/{loop}/loop/backing_file").read_text()
    except OSError:
        return None


@pytest.mark.parametrize("seed", range(4))
def test_killed_demo_leaves_no_drive_or_mount(seed: int) -> None:
    moment_s = random.Random(seed).uniform(0.2, 1.5) * (seed + 1)
    command = [sys.executable, "-m", "opwatch.tools.demo"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as demo:
        time.sleep(moment_s)
        loops = {loop for name in find_drives(demo.pid) for loop in find_loops(name)}
        assert demo.poll() is None
        demo.kill()
        demo.wait()
    prefix = f"demo-{demo.pid}-"
    end = time.monotonic() + 40
    while time.monotonic() < end:
        left = [
            *find_drives(demo.pid),
            *(path.name for path in demo_drive.CLAIMS.glob(f"{prefix}*")),
            *(loop for loop in loops if prefix in (_read_backing(loop) or "")),
        ]
        if not left:
            break
        time.sleep(0.1)
    assert not left, (moment_s, left)
    numbers = [tuple(map(int, Path(f"/sys/block/{loop}/dev").read_text().split(":"))) for loop in loops]
    mounts = survey_mounts([(major, minor) for major, minor in numbers]).mounts
    assert not [mount for mount in mounts if str(demo_drive.CLAIMS) == mount.mount.point]
