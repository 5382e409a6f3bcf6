"""Machines with many CPUs, disks and tags: memory stays below the limit, and shared counters stay exact."""

from __future__ import annotations

import subprocess
from dataclasses import replace

import pytest

from opwatch import _native
from opwatch.collectors.block import blk
from opwatch.collectors.block.blk import BlockTracer
from opwatch.host.device import Devices
from opwatch.host.scratch import ScratchDisk
from opwatch.tools.runs.live_watch import choose_leaves
from opwatch.trace import abi
from tests.kernel.block.test_counts import assert_nothing_lost
from tests.kernel.support.load import BLOCK, reads
from tests.kernel.support.watching import watch_disks

MAX_BYTES = 256 << 20


def compute_shape(disks: int, cpus: int, *, queue_time: bool = False) -> tuple[int, int]:
    """Return (bytes, lanes) for a watch of NVMe drives with a queue of 1,023 tags per CPU."""
    places = min(blk.MAX_STAMPS, blk.MAX_STAMPS_TOTAL // disks)
    targets = [abi.Target(*abi.WHOLE_DISK, i * places, cpus, 1023) for i in range(disks)]
    arguments = (abi.pack_targets(targets), b"", disks * places, blk.BIOS, cpus)
    return (
        _native.compute_map_bytes(*arguments, queue_time=queue_time),
        _native.count_lanes(*arguments, queue_time=queue_time),
    )


@pytest.mark.parametrize("queue_time", [False, True])
def test_512_cpus_and_64_disks_fit_into_256_mib(queue_time: bool) -> None:
    used, lanes = compute_shape(64, 512, queue_time=queue_time)
    assert used <= MAX_BYTES
    assert 1 < lanes < 512
    assert lanes & (lanes - 1) == 0


def test_no_cpus_share_counters_when_memory_suffices() -> None:
    used, lanes = compute_shape(24, 64)
    assert (lanes, used <= MAX_BYTES) == (64, True)
    assert compute_shape(1, 512)[1] == 512
    assert compute_shape(3, 96)[1] == 96


@pytest.mark.parametrize("cpus", [0, 1 << 20])
def test_impossible_cpu_counts_are_rejected(cpus: int) -> None:
    with pytest.raises(ValueError, match="CPUs"):
        _native.compute_map_bytes(abi.pack_targets([abi.Target(0, 1, 0, 1, 1)]), b"", 1, 0, cpus)


def run_mixed(node: str, count: int, *extra: str) -> None:
    subprocess.run(
        [
            *("fio", "--name=x", f"--filename={node}", "--rw=randrw", "--bs=4k", "--direct=1"),
            *("--ioengine=libaio", "--iodepth=64", "--numjobs=2", f"--number_ios={count}", "--size=200M"),
            *extra,
        ],
        check=True,
        stdout=subprocess.DEVNULL,
    )


@pytest.fixture
def short_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make requests in flight use so much memory that none is left for per-CPU histograms."""
    real = blk.make_plan
    monkeypatch.setattr(blk, "make_plan", lambda leaves: replace(real(leaves), stamps=MAX_BYTES // 16))


@pytest.mark.usefixtures("short_of_memory")
def test_shared_histograms_count_every_request(disk: ScratchDisk) -> None:
    [watched] = watch_disks([disk.name], lambda: run_mixed(disk.node, 5003))
    ops = watched.interval.ops
    assert sum(ops[name].count for name in ("read", "write")) == 2 * 5003
    assert sum(ops[name].sizes.total for name in ("read", "write")) == 2 * 5003
    assert_nothing_lost(watched)


@pytest.mark.usefixtures("short_of_memory")
def test_note_is_added_when_cpus_share_counters(disk: ScratchDisk) -> None:
    leaves, _ = choose_leaves(Devices(), [disk.name])
    tracer = BlockTracer(leaves)
    try:
        assert tracer._native.lanes[0] == 1
        [note] = tracer.notes
    finally:
        tracer.close()
    assert "256 MiB" in note


@pytest.mark.parametrize("raw_tp", [False, True], ids=["tp_btf", "raw_tp"])
def test_tags_that_share_a_stamp_slot_are_distinguished(
    disk: ScratchDisk, monkeypatch: pytest.MonkeyPatch, raw_tp: bool
) -> None:
    """Four entries for 128 requests in flight: most go to the hash, some of each at the same time."""
    monkeypatch.setattr(blk, "MAX_STAMPS", 4)
    [watched] = watch_disks([disk.name], lambda: run_mixed(disk.node, 10_007), raw_tp=raw_tp)
    assert sum(watched.interval.ops[name].count for name in ("read", "write")) == 2 * 10_007
    assert_nothing_lost(watched)


def test_several_tracers_run_in_the_same_process(disk: ScratchDisk) -> None:
    with ScratchDisk(64 << 20) as other:
        tracers = [
            BlockTracer(choose_leaves(Devices(), [node_of.name])[0]) for node_of in (disk, other, disk)
        ]
        try:
            before = [tracer.read_settled()[0].sample.ops["read"].completed for tracer in tracers]
            reads(disk.node, 29)
            after = [tracer.read_settled()[0].sample.ops["read"] for tracer in tracers]
        finally:
            for tracer in tracers:
                tracer.close()
    grown = [now.completed - then for now, then in zip(after, before, strict=True)]
    # The host may hide a program run; two tracers of the same disk miss the same run or none.
    assert grown[1] == 0
    assert grown[0] in (28, 29)
    assert grown[2] in (28, 29)
    assert after[0].bytes % BLOCK == 0
