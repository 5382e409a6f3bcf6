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

from opwatch.collectors.audit import fitrim_process
from opwatch.collectors.audit.discards import DiscardTracer
from opwatch.errors import OpwatchError
from opwatch.host.device import Devices
from opwatch.host.scratch import ScratchDisk
from opwatch.tools.commands.trim.audit import audit_mount
from opwatch.trim.audit.flow import Stage, Trace, Who, total
from tests.kernel.support.load import BLKZEROOUT, discards, writes
from tests.kernel.support.trims import ATTEMPTS, mount_at, mounted

HALF = 1 << 19
_ALL_PASS = (Stage.BIO, Stage.ISSUED, Stage.DONE)


def traced(
    disk: ScratchDisk, load: Callable[[], None], granule: tuple[int, int] = (4096, 0), follow: int = 0
) -> Trace:
    """Return the trace of a load; retry while the host hides some of its events."""
    device = Devices().resolve(disk.node)
    for _ in range(ATTEMPTS):
        with DiscardTracer([device], {disk.name: granule}) as tracer:
            tracer.follow(follow)
            load()
            tracer.wait_quiet(0.1, 5)
            trace = tracer.read()
        sums = {total(trace.select(stage, disk=disk.name)).bytes for stage in _ALL_PASS}
        if sums == {trace.stats[disk.name][1]}:
            break
    return trace


def test_every_stage_counts_a_prime(disk: ScratchDisk) -> None:
    trace = traced(disk, lambda: discards(disk.node, 7), follow=os.getpid())
    for stage in _ALL_PASS:
        amount = total(trace.select(stage, disk=disk.name))
        assert (amount.count, amount.bytes, amount.ranges) == (7, 7 * HALF, 7), stage
        assert amount.granule_bytes == 7 * HALF
    [done] = trace.select(Stage.DONE, disk=disk.name)
    assert (done.who, done.status) == (Who.OURS, 0)
    assert 0 < done.amount.max_ns <= done.amount.sum_ns
    assert trace.loss == (0, 0, 0, 0, 0)


def programs_held() -> list[str]:
    """Return the BPF descriptors of this process: maps, programs and links."""
    targets = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            targets.append(str(descriptor.readlink()))
    return [target for target in targets if "bpf" in target]


def test_what_lets_go_has_let_go_when_it_is_closed(disk: ScratchDisk) -> None:
    before = programs_held()
    with DiscardTracer([Devices().resolve(disk.node)]) as tracer:
        assert len(programs_held()) > len(before)
        tracer.let_go()
        tracer.let_go()
    assert programs_held() == before
    tracer.close()
    with pytest.raises(ValueError, match="closed"):
        tracer.read()


def test_an_audit_is_told_before_its_programs_have_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> NoReturn:
        raise OpwatchError("not trimmed")

    before = programs_held()
    with ScratchDisk(64 << 20) as disk, mounted(disk.node, "ext4") as point:
        with contextlib.ExitStack() as leaving:
            audit_mount(mount_at(point), leaving=leaving)
        assert programs_held() == before
        monkeypatch.setattr(fitrim_process, "trim", fail)
        with contextlib.ExitStack() as leaving:
            with pytest.raises(OpwatchError, match="not trimmed"):
                audit_mount(mount_at(point), leaving=leaving)
            with pytest.raises(OpwatchError, match="not trimmed"):
                audit_mount(mount_at(point))
        assert programs_held() == before


def test_splits_are_counted_and_add_up(disk: ScratchDisk) -> None:
    limit = Path(f"/sys/block/{disk.name}/queue/discard_max_bytes")
    before = int(limit.read_text())
    limit.write_text(str(1 << 17))
    try:
        trace = traced(disk, lambda: discards(disk.node, 5))
    finally:
        limit.write_text(str(before // 4096 * 4096))
    assert total(trace.select(Stage.BIO, disk=disk.name)).count == 5
    assert total(trace.select(Stage.SPLIT, disk=disk.name)).count == 5 * 3
    issued = total(trace.select(Stage.ISSUED, disk=disk.name))
    merged = total(trace.select(Stage.MERGED, disk=disk.name))
    assert issued.bytes == 5 * HALF
    assert issued.count + merged.count == 5 * 4


def test_only_whole_granules_are_counted_as_such(disk: ScratchDisk) -> None:
    """Granules of 64 KiB that start at 4 KiB: half a MiB contains seven whole granules."""
    trace = traced(disk, lambda: discards(disk.node, 3), granule=(65536, 4096))
    for stage in _ALL_PASS:
        assert total(trace.select(stage, disk=disk.name)).granule_bytes == 3 * 7 * 65536


def test_reads_and_writes_are_no_discards(disk: ScratchDisk) -> None:
    trace = traced(disk, lambda: writes(disk.node, 11))
    assert [flow for flow in trace.flows if flow.disk == disk.name] == []


def test_write_zeroes_is_told_apart(disk: ScratchDisk) -> None:
    trace = traced(disk, lambda: discards(disk.node, 1, request=BLKZEROOUT))
    assert total(trace.select(Stage.BIO, disk=disk.name)).count == 0
    assert total(trace.select(Stage.BIO, disk=disk.name, op="write_zeroes")).bytes == HALF
    [ended] = trace.select(Stage.DONE, disk=disk.name, op="write_zeroes")
    assert ended.status == 1  # tmpfs cannot zero a range in place


def blkdiscard(disk: ScratchDisk, count: int) -> None:
    program = f"from tests.kernel.support.load import discards; discards({disk.node!r}, {count})"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_others_are_others_even_at_once(disk: ScratchDisk) -> None:
    def load() -> None:
        other = threading.Thread(target=blkdiscard, args=(disk, 13))
        other.start()
        discards(disk.node, 11)
        other.join()

    trace = traced(disk, load, follow=os.getpid())
    for stage in (Stage.BIO, Stage.ISSUED, Stage.DONE):
        by_whom = {flow.who: flow.amount.bytes for flow in trace.select(stage, disk=disk.name)}
        assert by_whom == {Who.OURS: 11 * HALF, Who.OTHER: 13 * HALF}, stage
    origins = {origin.who: origin for origin in trace.origins if origin.disk == disk.name}
    assert origins[Who.OTHER].count == 13
    assert origins[Who.OTHER].comm.startswith("python")
    assert origins[Who.OURS].min_bytes == origins[Who.OURS].max_bytes == HALF
