"""The mixed-io scenario on md arrays and dm, over drives that serve one request at a time in 5 ms."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from tests.vm.guest.support.audits import mount_filesystem
from tests.vm.guest.support.nullblk import Irq, NullBlk, create_null_blk
from tests.vm.guest.support.stacked import create_linear, create_md
from tests.vm.requirements import need_tool

DRIVE = NullBlk(
    size=48, memory_backed=1, submit_queues=1, hw_queue_depth=1, irqmode=Irq.TIMER, completion_nsec=5_000_000
)


@contextlib.contextmanager
def mount_sets() -> Iterator[dict[str, str]]:
    """Yield a mount point for each configuration."""
    with contextlib.ExitStack() as stack:
        drives = [stack.enter_context(create_null_blk(DRIVE)) for _ in range(11)]
        devices = {
            "single": drives[0],
            "raid1": stack.enter_context(create_md(1, drives[1:3])),
            "raid10": stack.enter_context(create_md(10, drives[3:7])),
            "raid5": stack.enter_context(create_md(5, drives[7:10])),
            "dm": stack.enter_context(create_linear(drives[10])).name,
        }
        yield {
            name: str(stack.enter_context(mount_filesystem(device, "ext4")))
            for name, device in devices.items()
        }


def run_mixed_io(points: Mapping[str, str], run_s: int) -> dict[str, Any]:
    """Run the scenario on these mount points and return its JSON document."""
    need_tool("fio")
    words = [word for name, point in points.items() for word in ("--on", f"{name}={point}")]
    argv = [sys.executable, "-m", "opwatch", "sweep", "run", "--scenario", "mixed-io", "-q", "--json"]
    done = subprocess.run(
        [*argv, *words, "--set", f"run_s={run_s}s", "--set", "space_percent=60"],
        capture_output=True,
        text=True,
        timeout=1500,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


if __name__ == "__main__":
    with mount_sets() as mount_points:
        print(json.dumps(run_mixed_io(mount_points, int(sys.argv[1]))))
