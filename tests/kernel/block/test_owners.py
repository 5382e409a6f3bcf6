"""Owners that were forgotten: their places are others', and who comes again begins anew."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from opwatch.collectors.block.blk import BlockTracer
from opwatch.collectors.owners.cgroups import find_io_hierarchy
from opwatch.host.device import Devices
from opwatch.host.scratch import ScratchDisk
from opwatch.owners.cells import By, OwnerKind, decode_cells
from opwatch.tools.commands.watch import choose_leaves
from tests.kernel.support.load import reads
from tests.kernel.support.watching import ATTEMPTS, opwatch

LOOKS = 3


def read_by_another(node: str, count: int) -> int:
    """A process that reads so many blocks, and its number."""
    argv = ["dd", f"if={node}", "of=/dev/null", "bs=4k", f"count={count}", "iflag=direct", "status=none"]
    with subprocess.Popen(argv) as process:
        assert process.wait() == 0
    return process.pid


def counted(tracer: BlockTracer) -> dict[int, int]:
    """Reads of each process since it was first, or again, seen."""
    tracer.read_settled()
    [owned] = tracer.owned
    return {
        key.number: counts.requests
        for (key, op), counts in owned.cells.items()
        if key and key.kind is OwnerKind.PROCESS and op == "read"
    }


def forget_all(tracer: BlockTracer) -> None:
    """The first look forgets, the second gives their places away."""
    native = tracer._native
    assert native.forget_owners(0, 0) > 0
    assert native.forget_owners(0, 0) == 0
    assert not decode_cells(native.owners(0)).cells


def looks_at(tracer: BlockTracer, node: str) -> list[tuple[dict[int, int], dict[int, int]]]:
    """What was counted, and what was to be, each time that all begin anew."""
    pairs = []
    for look in range(LOOKS):
        reads(node, 101 + look)
        other = read_by_another(node, 11 + look)
        pairs.append((counted(tracer), {os.getpid(): 101 + look, other: 11 + look}))
        forget_all(tracer)
    return pairs


def test_who_comes_again_after_it_was_forgotten_begins_anew(disk: ScratchDisk) -> None:
    leaves, _ = choose_leaves(Devices(), [disk.name])
    for _ in range(ATTEMPTS):
        tracer = BlockTracer(leaves, by=By.PROCESS)
        try:
            pairs = looks_at(tracer, disk.node)
        finally:
            tracer.close()
        if all(ours == theirs for ours, theirs in pairs):
            break
    assert [ours for ours, _ in pairs] == [theirs for _, theirs in pairs]


def make_group(root: Path, name: str) -> Path:
    group = root / name
    group.mkdir()
    return group


def test_groups_have_the_names_of_the_hierarchy_that_accounts_io(disk: ScratchDisk) -> None:
    """On a hybrid host the same number is that of another group, in another hierarchy."""
    root = find_io_hierarchy().root
    if root is None:
        pytest.skip("the I/O controller is not one of version 1 here")
    group = make_group(root, f"opwatch-test-{os.getpid()}")
    try:
        read = f"dd if={disk.node} of=/dev/null bs=4k count=101 iflag=direct"
        command = f"echo $$ >{group}/cgroup.procs && exec {read}"
        done = opwatch(
            "--json", "--dev", disk.name, "--waf", "0", "--by", "cgroup", "1", "--", "sh", "-c", command
        )
    finally:
        group.rmdir()
    summary = json.loads(done.stdout.splitlines()[-1])
    owners = {one["name"]: one["ops"].get("read", {}).get("count") for one in summary["owners"]["owners"]}
    assert owners.get(f"/{group.name}"), owners
    assert str(root) in done.stderr
