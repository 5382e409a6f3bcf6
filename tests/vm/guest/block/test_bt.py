"""The bpftrace scripts on stock kernels, on drivers that the host does not have."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.kernel.support.scripts import CHECKS
from tests.vm.guest.support import sysfs
from tests.vm.guest.support.shell import write_attribute
from tests.vm.requirements import need_tool

DRIVERS = {"nvme": "opw-nvme-one-queue", "virtio-blk": "opw-virtio-one-q"}
DEVICES = ("nvme-one-queue", "virtio-blk-one-queue")
TIERS = ()
TIMEOUT_S = 2400
IN_CI = ("oplatency", "discards")


def find_interrupt_cpu(disk: str) -> int:
    """Return the CPU that handles the device's last interrupt vector, which is the queue's."""
    device = (sysfs.SYS_BLOCK / disk / "device").resolve()
    vectors = next(path / "msi_irqs" for path in (device, *device.parents) if (path / "msi_irqs").is_dir())
    last = max(int(path.name) for path in vectors.iterdir())
    return int(Path(f"/proc/irq/{last}/effective_affinity_list").read_text())


@contextmanager
def keep_off_completion_cpu(disk: str) -> Iterator[None]:
    """Keep the processes started inside off the CPU that handles completions, so that no completion
    interrupts the program of an issue. Only the flush after a write is issued on the CPU that completes
    writes."""
    write_attribute(sysfs.SYS_BLOCK / disk / "queue/rq_affinity", 0)
    ours = os.sched_getaffinity(0)
    os.sched_setaffinity(0, ours - {find_interrupt_cpu(disk)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, ours)


# bpftrace takes long to start, and tests/kernel/block/test_bt.py runs every script.
@pytest.mark.parametrize(
    "script", [pytest.param(one, marks=[pytest.mark.manual] * (one not in IN_CI)) for one in CHECKS]
)
@pytest.mark.parametrize("driver", ["nvme", pytest.param("virtio-blk", marks=pytest.mark.manual)])
def test_script_counts_a_known_load_correctly(driver: str, script: str) -> None:
    need_tool("bpftrace")
    disk = sysfs.disk(DRIVERS[driver])
    write_attribute(sysfs.SYS_BLOCK / disk / "queue/discard_max_bytes", 1 << 18)
    with keep_off_completion_cpu(disk):
        CHECKS[script](f"/dev/{disk}", missed=0)
