"""A killed test run leaves nothing behind: no loop device, no mount, no drive and no folder."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from opwatch.drive.place import DriveFolder
from tests.requirements import require_drive

# Repeats the usual steps of a test until it is killed.
_RUN = """
import sys
from pathlib import Path
from opwatch.host.scratch import ScratchDisk
from tests.kernel.support import guard, trims
from tests.kernel.support.drives import create_drive
guard.enter_own_namespace()
while True:
    with (
        trims.create_folder() as home,
        ScratchDisk(64 << 20) as disk,
        trims.mount_filesystem(disk.node, "ext4"),
    ):
        print("folder", home, flush=True)
        print("loop", disk.name, flush=True)
        (home / "image").write_bytes(bytes(1 << 20))
        with trims.create_loop(home / "image") as node:
            print("loop", Path(node).name, flush=True)
            with create_drive(16 << 20) as one, trims.mount_filesystem(one.device, "ext4"):
                print("drive", one.name, flush=True)
                print("loop", Path(one.device).name, flush=True)
                print("round", "done", flush=True)
"""


def _read_backing(loop: str) -> str | None:
    try:
        return Path(f"/sys/block/{loop}/loop/backing_file").read_text()
    except OSError:
        return None


def _list_mounts(pid: int) -> list[str]:
    """Return the run's mounts that are visible to processes outside the run."""
    text = Path("/proc/self/mountinfo").read_text()
    return [line for line in text.split("\n") if f"/test-{pid}-" in line]


@pytest.mark.parametrize("seed", range(4))
def test_killed_test_run_leaves_no_resources(seed: int) -> None:
    require_drive()
    moment_s = random.Random(seed).uniform(0.1, 1.5)
    with subprocess.Popen([sys.executable, "-c", _RUN], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        lines = [process.stdout.readline()]  # the run has started
        backing = {}
        end = time.monotonic() + moment_s
        while time.monotonic() < end:
            lines.append(process.stdout.readline())
            what, _, name = lines[-1].strip().partition(" ")
            if what == "loop":
                backing[name] = _read_backing(name)
        process.kill()
        lines += process.stdout.readlines()
    names: dict[str, set[str]] = {"folder": set(), "loop": set(), "drive": set(), "round": set()}
    for line in lines:
        what, _, name = line.strip().partition(" ")
        if name:
            names[what].add(name)
    end = time.monotonic() + 30
    left: list[str] = ["not looked yet"]
    while left and time.monotonic() < end:
        time.sleep(0.1)
        left = [name for name in names["folder"] if Path(name).exists()]
        left += [name for name in names["drive"] if DriveFolder(name).exists()]
        left += [name for name, was in backing.items() if was and _read_backing(name) == was]
        left += _list_mounts(process.pid)
    assert not left, (moment_s, left)
    assert names["folder"]
