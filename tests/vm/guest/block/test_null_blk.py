"""null_blk in every completion mode: prime counts are exact in each."""

from __future__ import annotations

import time

import pytest

from tests.vm.guest.support import sysfs
from tests.vm.guest.support.nullblk import Irq, NullBlk, create_null_blk
from tests.vm.guest.support.workload import Fio, discard_range, run_fio

CPUS = 4
# Tests of a recipe; the tests that use it fail with it.
TIERS = ()


@pytest.mark.parametrize("irqmode", Irq, ids=[mode.name.lower() for mode in Irq])
@pytest.mark.parametrize("queues", [1, 4])
def test_fio_and_kernel_counts_agree(irqmode: Irq, queues: int) -> None:
    with create_null_blk(NullBlk(irqmode=irqmode, submit_queues=queues)) as disk:
        assert sysfs.count_hardware_queues(disk) == queues
        before = sysfs.read_stat(disk)
        counts = run_fio(disk, Fio("randrw", 4001, jobs=3))
        delta = sysfs.read_stat(disk) - before
    assert counts.reads + counts.writes == 3 * 4001
    assert delta.reads + delta.read_merges == counts.reads
    assert delta.writes + delta.write_merges == counts.writes
    assert (delta.read_bytes, delta.write_bytes) == (counts.read_bytes, counts.write_bytes)


def test_timer_delays_each_request_by_the_given_time() -> None:
    slow = NullBlk(irqmode=Irq.TIMER, completion_nsec=5_000_000)
    with create_null_blk(slow) as disk:
        job = Fio("randread", 101, iodepth=1, engine="psync")
        began = time.monotonic()
        run_fio(disk, job)
        assert time.monotonic() - began > 101 * 0.005


def test_discard_reaches_a_disk_with_memory() -> None:
    with create_null_blk(NullBlk(size=64, memory_backed=1, discard=1)) as disk:
        before = sysfs.read_stat(disk)
        discard_range(disk, 0, 4 << 20)
        assert (sysfs.read_stat(disk) - before).discard_bytes == 4 << 20


def test_discard_without_memory_is_refused() -> None:
    with pytest.raises(ValueError, match="memory_backed"):
        NullBlk(discard=1)
