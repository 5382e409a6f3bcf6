"""CPUs that come and go under load."""

from __future__ import annotations

import threading
from pathlib import Path

from tests.vm.guest.support.exact import assert_explained, observe
from tests.vm.guest.support.nullblk import Irq, NullBlk, null_blk
from tests.vm.guest.support.shell import put
from tests.vm.guest.support.workload import Fio, fio

CPUS = 4
TIERS = ()
TIMEOUT_S = 1500

LAST_CPU = Path("/sys/devices/system/cpu/cpu3/online")


def test_a_cpu_that_comes_and_goes() -> None:
    """Its rows stay, and what was in flight on it ends elsewhere."""
    with null_blk(NullBlk(irqmode=Irq.TIMER, submit_queues=4, completion_nsec=100_000)) as disk:
        ended = threading.Event()

        def toggle() -> None:
            while not ended.is_set():
                put(LAST_CPU, 0)
                put(LAST_CPU, 1)

        def workload() -> None:
            thread = threading.Thread(target=toggle)
            thread.start()
            try:
                fio(disk, Fio("randrw", 5003, jobs=4, iodepth=16))
            finally:
                ended.set()
                thread.join()

        [watched] = observe([disk], workload)
    assert sum(count for count, _ in watched.counts().values()) == 4 * 5003
    assert_explained("null_blk, a CPU that comes and goes", watched)
