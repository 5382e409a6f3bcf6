"""CPUs that go offline and online under load, and queues for the maximum number of CPUs."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.vm.guest.support import sysfs
from tests.vm.guest.support.exact import assert_explained, observe_disks, run_and_check
from tests.vm.guest.support.nullblk import Irq, NullBlk, create_null_blk
from tests.vm.guest.support.shell import write_attribute
from tests.vm.guest.support.workload import Fio, run_fio
from tests.vm.requirements import need_feature

CPUS = 4
# Maximum of QEMU's PC machine. Each queue needs a possible CPU.
MOST_CPUS = 255
TIERS = ()
TIMEOUT_S = 1500

LAST_CPU = Path("/sys/devices/system/cpu/cpu3/online")
POSSIBLE = Path("/sys/devices/system/cpu/possible")


def test_cpu_going_offline_and_online_loses_no_request() -> None:
    """Rows of an offline CPU stay, and its requests in flight complete on other CPUs."""
    with create_null_blk(NullBlk(irqmode=Irq.TIMER, submit_queues=4, completion_nsec=100_000)) as disk:
        ended = threading.Event()

        def toggle_cpu() -> None:
            while not ended.is_set():
                write_attribute(LAST_CPU, 0)
                write_attribute(LAST_CPU, 1)

        def run_workload() -> None:
            thread = threading.Thread(target=toggle_cpu)
            thread.start()
            try:
                run_fio(disk, Fio("randrw", 5003, jobs=4, iodepth=16))
            finally:
                ended.set()
                thread.join()

        [watched] = observe_disks([disk], run_workload)
    assert sum(count for count, _ in watched.count_by_op().values()) == 4 * 5003
    assert_explained("null_blk, a CPU that comes and goes", watched)


@pytest.mark.parametrize("depth", [64, 1023])
def test_hundreds_of_queues_are_traced(depth: int) -> None:
    queues = int(POSSIBLE.read_text().rstrip().rpartition("-")[2]) + 1
    need_feature("possible-cpus", queues == MOST_CPUS, f"it has room for {queues}")
    shape = NullBlk(irqmode=Irq.TIMER, submit_queues=queues, hw_queue_depth=depth, completion_nsec=100_000)
    with create_null_blk(shape) as disk:
        assert sysfs.count_hardware_queues(disk) == queues
        job = Fio("randrw", 5003, jobs=4, iodepth=16)
        _, watched = run_and_check(f"null_blk {queues}q of {depth} tags", disk, job)
    assert sum(count for count, _ in watched.count_by_op().values()) == 4 * 5003
