"""libbpf, bcc and bpftrace on the same disks at the same time: three implementations, one answer."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import pytest

from opwatch.collectors.block import bcc
from opwatch.collectors.block.bpftrace import QUEUE
from opwatch.errors import Unsupported
from opwatch.host.device import Devices
from opwatch.tools.runs.backends import BACKENDS
from opwatch.tools.runs.live_watch import choose_leaves
from tests.kernel.support.load import flushes, reads, run_mixture, writes
from tests.kernel.support.watching import Watched, find_losses, parse_lines, run_opwatch
from tests.vm.guest.support import stacked, sysfs
from tests.vm.guest.support.backend_tracers import BackendTracers, attach_backends, compute_near_share
from tests.vm.guest.support.exact import assert_counted, assert_explained, observe_as_default, observe_disks
from tests.vm.guest.support.nullblk import Irq, NullBlk, create_null_blk
from tests.vm.guest.support.shell import run_command
from tests.vm.guest.support.workload import Fio, run_fio
from tests.vm.guest.support.zones import manage_zones
from tests.vm.requirements import need_tool

DEVICES = ("nvme", "virtio-blk")
# Manual runs only: three concurrent tracers take a quarter of CI's time on a slow machine.
TIERS = ()
TIMEOUT_S = 3000

REQUESTS = 10_007
# Long compared with the gap between two programs on the same event, which can reach a millisecond on an
# emulated CPU: we compare the programs, not their gaps.
DELAY_NS = 20_000_000
PAIRS = list(combinations(BACKENDS, 2))


@pytest.fixture(scope="module")
def slow() -> Iterator[str]:
    """Yield a disk whose requests each take DELAY_NS plus the delay of its timer."""
    with create_null_blk(NullBlk(irqmode=Irq.TIMER, completion_nsec=DELAY_NS)) as disk:
        yield disk


@pytest.fixture(scope="module")
def all_three(slow: str) -> Iterator[BackendTracers]:
    """Attach all backends once, because compiling is slow here."""
    need_tool("bpftrace")
    disks = [slow, *(sysfs.disk(f"opw-{driver}") for driver in DEVICES)]
    with attach_backends(disks, BACKENDS) as backends:
        yield backends


@pytest.fixture(scope="module")
def timed(all_three: BackendTracers, slow: str) -> dict[str, Watched]:
    """Run fio once on the slow disk and return each backend's counts."""
    watched = all_three.run_workload(lambda: run_fio(slow, Fio("randrw", REQUESTS, iodepth=32)))
    return {backend: disks[slow] for backend, disks in watched.items()}


def test_counts_and_bytes_are_equal(timed: dict[str, Watched]) -> None:
    [first, *others] = (disk.count_by_op() for disk in timed.values())
    assert sum(count for count, _ in first.values()) == REQUESTS
    assert sum(size for _, size in first.values()) == REQUESTS * 4096
    assert all(other == first for other in others)


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_request_is_explained(timed: dict[str, Watched], backend: str) -> None:
    assert find_losses(timed[backend].trust) == []
    assert timed[backend].trust.in_flight == 0


@pytest.mark.parametrize("op", ["read", "write"])
@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_histograms_match_between_backends(timed: dict[str, Watched], op: str, one: str, other: str) -> None:
    """The histograms differ by at most one slot for 99 % of the I/O."""
    first, second = timed[one].interval.ops[op], timed[other].interval.ops[op]
    share = compute_near_share(first.latency.histogram, second.latency.histogram)
    print(f"{op} {one}/{other}: {share:.4%} within one slot")
    assert share >= 0.99
    assert first.sizes.slot_counts == second.sizes.slot_counts


@pytest.mark.parametrize("op", ["read", "write"])
@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_quantiles_match_between_backends(timed: dict[str, Watched], op: str, one: str, other: str) -> None:
    first, second = (timed[backend].interval.ops[op].latency for backend in (one, other))
    for name in ("p50", "p99"):
        ours, theirs = first.quantiles[name], second.quantiles[name]
        print(f"{op} {name} {one} {ours} {other} {theirs}")
        assert ours is not None
        assert ours == pytest.approx(theirs, rel=0.05)
    assert first.mean == pytest.approx(second.mean, rel=0.05)


@pytest.mark.parametrize("driver", DEVICES)
def test_counts_of_every_class_are_equal(all_three: BackendTracers, driver: str) -> None:
    """Includes discards, flushes and flush sequences, on drivers that complete singly and in batches."""
    disk = sysfs.disk(f"opw-{driver}")
    watched = {
        backend: disks[disk]
        for backend, disks in all_three.run_workload(lambda: run_mixture(f"/dev/{disk}")).items()
    }
    counts = watched["libbpf"].count_by_op()
    assert (counts["read"], counts["write"][0]) == ((23, 23 * 4096), 36)
    assert counts["discard"] == (7, 7 << 19)
    assert counts["flush"][0] >= 11
    for backend in BACKENDS:
        assert watched[backend].count_by_op() == counts
        assert find_losses(watched[backend].trust) == []
        assert watched[backend].trust.never_issued == watched["libbpf"].trust.never_issued
        assert watched[backend].trust.flush_tails == watched["libbpf"].trust.flush_tails
        assert watched[backend].trust.taken_back == 0
    for op in counts:
        sequential = {watched[backend].interval.ops[op].sequential_ratio for backend in BACKENDS}
        assert len(sequential) == 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_requests_that_complete_twice_are_counted_once(backend: str) -> None:
    """Requests cloned by device mapper, and requests of a flush sequence."""
    with create_null_blk(NullBlk(size=64, memory_backed=1, cache_size=1)) as below:
        assert sysfs.read_attribute(below, "queue/write_cache") == "write back"
        with stacked.create_multipath(below) as top:

            def run_workload() -> None:
                reads(f"/dev/{top.name}", 101)
                writes(f"/dev/{top.name}", 53, flags=os.O_DSYNC)

            watched = observe_as_default([top.name, below], run_workload, backend)
    for one in watched.values():
        assert_counted(one, "read", 101)
        assert_counted(one, "write", 53)
        assert_explained(f"dm-multipath by {backend}", one, backend=backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_flushes_of_a_partition_are_explained(backend: str) -> None:
    """Flushes name no sector of the partition, and count as its writes if the disk has a cache to flush."""
    disk = sysfs.disk("opw-virtio-blk")
    assert sysfs.read_attribute(disk, "queue/write_cache") == "write back"
    assert sysfs.read_number(disk, "queue/fua") == 0
    part = f"{disk}2"

    def run_workload() -> None:
        writes(f"/dev/{part}", 53, flags=os.O_DSYNC)
        flushes(f"/dev/{part}", 31)

    run_command("sfdisk", "--quiet", f"/dev/{disk}", stdin="1M,16M\n,\n")
    try:
        sysfs.wait_for("a partition", (Path("/dev") / part).exists)
        flushed = sysfs.read_stat(disk).flushes
        [watched] = observe_disks([part], run_workload, backend)
        flushed = sysfs.read_stat(disk).flushes - flushed
    finally:
        run_command("sfdisk", "--quiet", "--delete", f"/dev/{disk}")
    assert flushed >= 53 + 31
    assert_counted(watched, "write", 53)
    assert_explained(f"partition by {backend}", watched, backend=backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_zone_operations_are_counted_as_other(backend: str) -> None:
    zoned = NullBlk(size=64, memory_backed=1, zoned=1)
    with create_null_blk(zoned) as disk:
        [watched] = observe_disks([disk], lambda: manage_zones(f"/dev/{disk}", 5), backend)
    assert_counted(watched, "other", 20, request_bytes=0)
    assert_explained(f"null_blk zones by {backend}", watched, backend=backend)


def test_command_reports_each_missing_feature_once(slow: str) -> None:
    done = run_opwatch("--backend", "bpftrace", "--dev", slow, "--json", "0.5", "2", timeout=600)
    assert done.returncode == 0, done.stderr
    documents = parse_lines(done.stdout)
    assert [one["type"] for one in documents] == ["interval", "interval", "summary"]
    for document in documents:
        assert document["backend"] == "bpftrace"
        assert document["trust"]["misses"] >= 0
        assert document["lacks"] == [QUEUE]
        assert all(done.stderr.count(sentence) == 1 for sentence in document["lacks"])


def test_bcc_asks_for_kernel_headers_when_missing(slow: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bcc, "RELEASE", "0.0")
    leaves, _ = choose_leaves(Devices(), [slow])
    with pytest.raises(Unsupported, match="this kernel's headers"):
        bcc.BccTracer(leaves)


def test_bcc_error_contains_the_compiler_output(slow: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bcc, "build_source", lambda known: "#error no such kernel")
    leaves, _ = choose_leaves(Devices(), [slow])
    with pytest.raises(Unsupported, match="cannot compile") as refused:
        bcc.BccTracer(leaves)
    assert "error: no such kernel" in refused.value.log


def test_bpftrace_reports_the_missing_queue_time(all_three: BackendTracers) -> None:
    misses = all_three.tracers["bpftrace"].read_misses()
    assert misses is not None and misses >= 0
    assert all_three.tracers["bpftrace"].lacks == [QUEUE]
    assert not all_three.tracers["libbpf"].lacks
