"""Requests in flight that share an entry, on disks with fewer entries than tags: opwatch knows their owners
and their queue time."""

from __future__ import annotations

import os

import pytest

from opwatch.collectors.block import blk
from opwatch.collectors.block.blk import BlockTracer
from opwatch.host.device import Devices
from opwatch.host.scratch import ScratchDisk
from opwatch.owners.cells import OwnerGrouping, OwnerKind
from opwatch.tools.runs.live_watch import choose_leaves
from opwatch.trace.slow import Submitter
from tests.kernel.block.test_scale import run_mixed
from tests.kernel.support.load import reads
from tests.kernel.support.watching import ATTEMPTS

COUNT = 1009
HOOKS = pytest.mark.parametrize("raw_tp", [False, True], ids=["tp_btf", "raw_tp"])


@pytest.fixture(autouse=True)
def _few_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blk, "MAX_STAMPS", 4)


@HOOKS
def test_owners_are_known_by_process(disk: ScratchDisk, raw_tp: bool) -> None:
    leaves, _ = choose_leaves(Devices(), [disk.name])
    for _ in range(ATTEMPTS):
        tracer = BlockTracer(leaves, by=OwnerGrouping.PROCESS, raw_tp=raw_tp)
        try:
            assert tracer.plan.targets[0].stamp_mask
            run_mixed(disk.node, COUNT)
            tracer.read_settled()
            [owned] = tracer.owned
        finally:
            tracer.close()
        kinds = {key and key.kind: 0 for key, _ in owned.cells}
        for (key, _), counts in owned.cells.items():
            kinds[key and key.kind] += counts.requests
        # A host may skip a program while PID 1 is current; one request then has no known owner.
        if kinds.get(OwnerKind.PROCESS) == 2 * COUNT:
            break
    assert kinds.get(OwnerKind.PROCESS) == 2 * COUNT, kinds


@HOOKS
def test_slow_requests_have_a_submitter(disk: ScratchDisk, raw_tp: bool) -> None:
    leaves, _ = choose_leaves(Devices(), [disk.name])
    for _ in range(ATTEMPTS):
        tracer = BlockTracer(leaves, slow_ns=1, raw_tp=raw_tp)
        try:
            reads(disk.node, 101)
            records, _ = tracer.take_slow()
        finally:
            tracer.close()
        submitters = [(one.submitter, one.pid) for one in records if one.op == "read"]
        if submitters == [(Submitter.PROCESS, os.getpid())] * 101:
            break
    assert submitters == [(Submitter.PROCESS, os.getpid())] * 101


@HOOKS
def test_every_queue_time_is_counted(disk: ScratchDisk, raw_tp: bool) -> None:
    leaves, _ = choose_leaves(Devices(), [disk.name])
    for _ in range(ATTEMPTS):
        tracer = BlockTracer(leaves, queue_time=True, raw_tp=raw_tp)
        try:
            # A whole batch enters the queue before its first request is issued.
            run_mixed(disk.node, COUNT, "--iodepth_batch_submit=32")
            [reading] = tracer.read_settled()
        finally:
            tracer.close()
        ops = [reading.sample.ops[name] for name in ("read", "write")]
        if sum(op.queued for op in ops) == 2 * COUNT:
            break
    assert [op.queued for op in ops] == [op.issued for op in ops]
    assert sum(op.issued for op in ops) == 2 * COUNT
