"""Times of requests that are requeued, time out, complete in parts or not at all, and the kernel's."""

from __future__ import annotations

import threading
import time
from contextlib import closing

import pytest

from opwatch.host.device import Devices
from opwatch.tools.runs.backends import attach_tracer
from opwatch.tools.runs.live_watch import choose_leaves
from opwatch.trace.abi import LATENCY
from opwatch.trace.derive import derive_interval
from opwatch.trace.kernel_times import derive_kernel_times
from opwatch.trace.trust import account_losses
from tests.kernel.support.load import BLOCK, reads
from tests.kernel.support.watching import Watched
from tests.vm.guest.support import sysfs
from tests.vm.guest.support.exact import assert_explained, observe_times, record_rows
from tests.vm.guest.support.nullblk import Irq, NullBlk, create_null_blk
from tests.vm.guest.support.scsidebug import Opts, load_scsi_debug
from tests.vm.guest.support.shell import write_attribute
from tests.vm.guest.support.workload import Fio, run_fio

TIERS = ()
CPUS = 2
TIMEOUT_S = 1800
READS = Fio("randread", 211, iodepth=1)
TIMEOUT_NS = 10**9
# Delay completions: since 6.9 a completion in the submitting task uses the time cached in its plug, which is
# earlier than the issue.
DELAYED = {"ndelay": 200_000}
SCHEDULERS = (pytest.param("none", marks=pytest.mark.manual), "mq-deadline")


def check_times(watched: Watched) -> None:
    """The kernel's time starts when a request is allocated, so it is slightly longer on an idle disk."""
    assert watched.kernel_times
    awaited, latency = watched.kernel_times.awaits["read"], watched.interval.ops["read"].latency
    assert latency.mean is not None and latency.max is not None
    assert latency.mean <= latency.max
    assert latency.mean <= awaited.mean_ns + awaited.error_ns
    assert latency.mean >= 0.9 * awaited.mean_ns - awaited.error_ns - 200_000


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_timed_out_requests_take_as_long_as_the_timeout(scheduler: str) -> None:
    with load_scsi_debug(**DELAYED) as scsi:
        write_attribute(sysfs.SYS_BLOCK / scsi.name / "queue/scheduler", scheduler)
        write_attribute(sysfs.SYS_BLOCK / scsi.name / "device/timeout", 1)
        with scsi.inject_faults(Opts.IGNORE_COMMAND, every_nth=50):
            watched = observe_times(scsi.name, lambda: run_fio(scsi.name, READS))
    assert_explained(f"scsi_debug timeout {scheduler}", watched)
    read = watched.interval.ops["read"]
    assert (read.count, read.bytes, watched.trust.issued) == (211, 211 * BLOCK, 211)
    assert read.latency.max is not None
    assert read.latency.max > TIMEOUT_NS
    slots = read.latency.histogram.slot_counts[LATENCY.find_slot(TIMEOUT_NS) :]
    assert sum(slots) >= 4
    check_times(watched)


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_latency_of_requeued_requests_starts_at_their_first_issue(scheduler: str) -> None:
    with load_scsi_debug(**DELAYED) as scsi:
        write_attribute(sysfs.SYS_BLOCK / scsi.name / "queue/scheduler", scheduler)
        with scsi.inject_faults(Opts.HOST_BUSY, every_nth=7):
            watched = observe_times(scsi.name, lambda: run_fio(scsi.name, READS))
    assert_explained(f"scsi_debug requeue {scheduler}", watched)
    assert watched.trust.requeued > 10
    assert watched.trust.issued == watched.trust.completed == 211
    check_times(watched)


def test_partly_completed_request_counts_once_with_its_whole_size() -> None:
    with load_scsi_debug(**DELAYED) as scsi, scsi.inject_faults(Opts.SHORT_TRANSFER, every_nth=5):
        watched = observe_times(scsi.name, lambda: run_fio(scsi.name, READS))
    assert_explained("scsi_debug in parts", watched)
    read = watched.interval.ops["read"]
    assert watched.trust.partial > 10
    assert (read.count, read.bytes, watched.trust.issued) == (211, 211 * BLOCK, 211)
    assert read.sizes.total == 211
    assert read.median_size() == BLOCK
    check_times(watched)


def test_uncompleted_request_stays_in_flight() -> None:
    stuck = NullBlk(irqmode=Irq.TIMER, completion_nsec=6 * TIMEOUT_NS)
    with (
        create_null_blk(stuck) as disk,
        closing(attach_tracer("libbpf", choose_leaves(Devices(), [disk])[0])) as tracer,
    ):
        [begin] = tracer.read()
        reader = threading.Thread(target=reads, args=(f"/dev/{disk}", 1))
        reader.start()
        sysfs.wait_for("the read", lambda: sysfs.read_attribute(disk, "inflight").split()[0] == "1")
        [then] = tracer.read()
        time.sleep(1)
        [now] = tracer.read()
        reader.join()
    watched = Watched(
        derive_interval(begin.sample, now.sample),
        account_losses(begin, now, 0),
        derive_kernel_times(begin.after, now.after),
    )
    before, after = then.sample.ops["read"], now.sample.ops["read"]
    assert (before.in_flight, after.in_flight, after.completed) == (1, 1, 0)
    assert watched.trust.in_flight == 1
    assert after.in_flight_ns - before.in_flight_ns == now.sample.end_ns - then.sample.end_ns
    record_rows("null_blk, not completed", watched)
