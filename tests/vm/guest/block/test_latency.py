"""Known delays of null_blk's timer and dm-delay: our latencies match.

An emulated CPU is late: timers fire late, and the clock advances while the CPU is not scheduled. dm-delay
counts in ticks, and late ticks can also make it early. The error is not assumed but measured: bpftrace
times the same requests in the same run, and bpftrace's deviation from the known delay is the machine's.
The delays are long compared with the gap between our program and bpftrace's on the same event, so that a gap
stays within a slot (1/32 of the value) unless the machine takes the CPU away in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import pytest

from opwatch.trace.derive import Latency, OpInterval
from tests.kernel.support.watching import Watched
from tests.vm.guest.support import stacked
from tests.vm.guest.support.backend_tracers import attach_backends, count_distant_values
from tests.vm.guest.support.nullblk import Irq, NullBlk, create_null_blk
from tests.vm.guest.support.shell import run_command
from tests.vm.guest.support.workload import Fio, run_fio
from tests.vm.requirements import need_module, need_tool

TIERS = ()
TIMEOUT_S = 1800

# Maximum share of requests for which the machine takes the CPU away between the two programs of an event.
INTERRUPTED_SHARE = 0.02
JOB = Fio("randread", 499, iodepth=1, engine="psync")
TIMERS_NS = (10_000_000, 20_000_000)
DM_DELAY_MS = 20
BACKENDS = ("libbpf", "bpftrace")


@contextmanager
def attach_loop(below: str) -> Iterator[str]:
    """Yield a loop device directly on a device. It turns bios into requests, which show dm's delay."""
    need_module("loop")
    device = run_command("losetup", "--find", "--show", "--direct-io=on", f"/dev/{below}").strip()
    try:
        yield device.removeprefix("/dev/")
    finally:
        run_command("losetup", "--detach", device)


def find_lowest_slot(latency: Latency) -> tuple[int, int]:
    """Return the bounds of the lowest slot with a count."""
    histogram = latency.histogram
    slot = next(slot for slot, count in enumerate(histogram.slot_counts) if count)
    return histogram.scale.low_edge(slot), histogram.scale.high_edge(slot)


def assert_latency_matches(delay_ns: int, ours: Latency, witness: Latency) -> None:
    """Check that no value is below the delay or bpftrace's lowest, and that nearly all match bpftrace's."""
    print(f"lowest: {find_lowest_slot(ours)} ns for {delay_ns}; bpftrace {find_lowest_slot(witness)}")
    print(f"percentiles: {ours.quantiles}; bpftrace {witness.quantiles}")
    assert find_lowest_slot(ours)[1] >= min(delay_ns, find_lowest_slot(witness)[0])
    distant = count_distant_values(ours.histogram, witness.histogram)
    assert distant <= INTERRUPTED_SHARE * JOB.count


@dataclass(frozen=True)
class Observed:
    """The counts of every disk by backend, and the disks' names."""

    watched: dict[str, dict[str, Watched]]
    timers: dict[int, str]
    above: str
    below: str

    def list_reads(self, disk: str) -> tuple[OpInterval, OpInterval]:
        """Return our reads of a disk and bpftrace's, after checking that none is missing."""
        ours, witness = (self.watched[backend][disk].interval.ops["read"] for backend in BACKENDS)
        assert ours.count == witness.count == JOB.count
        return ours, witness


@pytest.fixture(scope="module")
def observed() -> Iterator[Observed]:
    """Run the job on all disks under the same two tracers, because bpftrace takes long to start."""
    need_tool("bpftrace")
    fast = NullBlk(size=96, memory_backed=1)
    with ExitStack() as stack:
        timers = {
            delay_ns: stack.enter_context(
                create_null_blk(NullBlk(irqmode=Irq.TIMER, completion_nsec=delay_ns))
            )
            for delay_ns in TIMERS_NS
        }
        below = stack.enter_context(create_null_blk(fast))
        middle = stack.enter_context(stacked.create_delay(below, DM_DELAY_MS))
        above = stack.enter_context(attach_loop(middle.name))
        loaded = (*timers.values(), above)
        tracers = stack.enter_context(attach_backends([*loaded, below], BACKENDS))
        watched = tracers.run_workload(lambda: [run_fio(disk, JOB) for disk in loaded])
        yield Observed(watched, timers, above, below)


@pytest.mark.parametrize("delay_ns", TIMERS_NS)
def test_latencies_match_the_null_blk_timer(observed: Observed, delay_ns: int) -> None:
    ours, witness = observed.list_reads(observed.timers[delay_ns])
    assert_latency_matches(delay_ns, ours.latency, witness.latency)


def test_dm_delay_shows_above_the_target(observed: Observed) -> None:
    ours, witness = observed.list_reads(observed.above)
    assert_latency_matches(DM_DELAY_MS * 1_000_000, ours.latency, witness.latency)


def test_dm_delay_does_not_show_below_the_target(observed: Observed) -> None:
    """The median, because on a busy machine single requests take longer."""
    ours, _ = observed.list_reads(observed.below)
    assert ours.latency.quantiles["p50"] is not None
    assert ours.latency.quantiles["p50"] < DM_DELAY_MS * 1_000_000 / 2
