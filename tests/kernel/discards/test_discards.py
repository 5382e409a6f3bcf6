"""The discard programs: a prime number of every event, with its sender."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from opwatch.collectors.audit.discards import DiscardTracer
from opwatch.errors import OpwatchError
from opwatch.host.device import Devices
from opwatch.host.scratch import ScratchDisk
from opwatch.tools.acting.trim import fitrim_process
from opwatch.tools.commands.trim.audit import audit_mount
from opwatch.trim.audit.flow import SenderKind, Stage, Trace, sum_flows
from tests.kernel.support.load import BLKZEROOUT, discards, writes
from tests.kernel.support.trims import ATTEMPTS, find_mount_at, mount_filesystem

HALF = 1 << 19
_ALL_PASS = (Stage.BIO, Stage.ISSUED, Stage.DONE)


def trace_load(
    disk: ScratchDisk, load: Callable[[], None], granule: tuple[int, int] = (4096, 0), follow: int = 0
) -> Trace:
    """Return the trace of a load; retry while the host hides some of its events."""
    device = Devices().resolve(disk.node)
    for _ in range(ATTEMPTS):
        with DiscardTracer([device], {disk.name: granule}) as tracer:
            tracer.follow_process(follow)
            load()
            tracer.wait_quiet(0.1, 5)
            trace = tracer.read_trace()
        sums = {sum_flows(trace.select(stage, disk=disk.name)).bytes for stage in _ALL_PASS}
        if sums == {trace.stats[disk.name][1]}:
            break
    return trace


def test_every_stage_counts_each_discard(disk: ScratchDisk) -> None:
    trace = trace_load(disk, lambda: discards(disk.node, 7), follow=os.getpid())
    for stage in _ALL_PASS:
        amount = sum_flows(trace.select(stage, disk=disk.name))
        assert (amount.count, amount.bytes, amount.ranges) == (7, 7 * HALF, 7), stage
        assert amount.granule_bytes == 7 * HALF
    [done] = trace.select(Stage.DONE, disk=disk.name)
    assert (done.who, done.status) == (SenderKind.FOLLOWED, 0)
    assert 0 < done.amount.max_ns <= done.amount.sum_ns
    assert trace.loss == (0, 0, 0, 0, 0)


def list_own_programs() -> list[str]:
    """Return the BPF descriptors of this process: maps, programs and links."""
    targets = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            targets.append(str(descriptor.readlink()))
    return [target for target in targets if "bpf" in target]


def test_tracer_programs_are_unloaded_when_the_tracer_is_closed(disk: ScratchDisk) -> None:
    before = list_own_programs()
    with DiscardTracer([Devices().resolve(disk.node)]) as tracer:
        assert len(list_own_programs()) > len(before)
        tracer.start_closing()
        tracer.start_closing()
    assert list_own_programs() == before
    tracer.close()
    with pytest.raises(ValueError, match="closed"):
        tracer.read_trace()


def test_audit_unloads_its_programs_when_the_exit_stack_closes(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> NoReturn:
        raise OpwatchError("not trimmed")

    before = list_own_programs()
    with ScratchDisk(64 << 20) as disk, mount_filesystem(disk.node, "ext4") as point:
        with contextlib.ExitStack() as leaving:
            audit_mount(find_mount_at(point), leaving=leaving)
        assert list_own_programs() == before
        monkeypatch.setattr(fitrim_process, "trim_in_child", fail)
        with contextlib.ExitStack() as leaving:
            with pytest.raises(OpwatchError, match="not trimmed"):
                audit_mount(find_mount_at(point), leaving=leaving)
            with pytest.raises(OpwatchError, match="not trimmed"):
                audit_mount(find_mount_at(point))
        assert list_own_programs() == before


def test_splits_are_counted_and_add_up(disk: ScratchDisk) -> None:
    limit = Path(f"/sys/block/{disk.name}/queue/discard_max_bytes")
    before = int(limit.read_text())
    limit.write_text(str(1 << 17))
    try:
        trace = trace_load(disk, lambda: discards(disk.node, 5))
    finally:
        limit.write_text(str(before // 4096 * 4096))
    assert sum_flows(trace.select(Stage.BIO, disk=disk.name)).count == 5
    assert sum_flows(trace.select(Stage.SPLIT, disk=disk.name)).count == 5 * 3
    issued = sum_flows(trace.select(Stage.ISSUED, disk=disk.name))
    merged = sum_flows(trace.select(Stage.MERGED, disk=disk.name))
    assert issued.bytes == 5 * HALF
    assert issued.count + merged.count == 5 * 4


def test_granule_bytes_count_only_whole_granules(disk: ScratchDisk) -> None:
    """Granules of 64 KiB that start at 4 KiB: half a MiB contains seven whole granules."""
    trace = trace_load(disk, lambda: discards(disk.node, 3), granule=(65536, 4096))
    for stage in _ALL_PASS:
        assert sum_flows(trace.select(stage, disk=disk.name)).granule_bytes == 3 * 7 * 65536


def test_writes_are_not_counted_as_discards(disk: ScratchDisk) -> None:
    trace = trace_load(disk, lambda: writes(disk.node, 11))
    assert [flow for flow in trace.flows if flow.disk == disk.name] == []


def test_write_zeroes_is_distinguished_from_discard(disk: ScratchDisk) -> None:
    trace = trace_load(disk, lambda: discards(disk.node, 1, request=BLKZEROOUT))
    assert sum_flows(trace.select(Stage.BIO, disk=disk.name)).count == 0
    assert sum_flows(trace.select(Stage.BIO, disk=disk.name, op="write_zeroes")).bytes == HALF
    [ended] = trace.select(Stage.DONE, disk=disk.name, op="write_zeroes")
    assert ended.status == 1  # tmpfs cannot zero a range in place


def discard_in_child(disk: ScratchDisk, count: int) -> None:
    program = f"from tests.kernel.support.load import discards; discards({disk.node!r}, {count})"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_concurrent_discards_are_attributed_to_their_senders(disk: ScratchDisk) -> None:
    def run_load() -> None:
        other = threading.Thread(target=discard_in_child, args=(disk, 13))
        other.start()
        discards(disk.node, 11)
        other.join()

    trace = trace_load(disk, run_load, follow=os.getpid())
    for stage in (Stage.BIO, Stage.ISSUED, Stage.DONE):
        by_whom = {flow.who: flow.amount.bytes for flow in trace.select(stage, disk=disk.name)}
        assert by_whom == {SenderKind.FOLLOWED: 11 * HALF, SenderKind.OTHER: 13 * HALF}, stage
    origins = {origin.who: origin for origin in trace.origins if origin.disk == disk.name}
    assert origins[SenderKind.OTHER].count == 13
    assert origins[SenderKind.OTHER].comm.startswith("python")
    assert origins[SenderKind.FOLLOWED].min_bytes == origins[SenderKind.FOLLOWED].max_bytes == HALF
