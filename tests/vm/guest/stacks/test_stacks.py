"""Devices that a user names, and those where I/O is counted: dm, md, multipath, bio-based disks."""

from __future__ import annotations

import contextlib
import json

import pytest

from tests.vm.guest.support import stacked, sysfs
from tests.vm.guest.support.copies import run_opwatch
from tests.vm.guest.support.exact import assert_explained, observe_disks
from tests.vm.guest.support.nullblk import NullBlk, create_null_blk
from tests.vm.guest.support.workload import Fio, run_fio

DEVICES = ("nvme-multipath",)
TIERS = ("full",)
CPUS = 2
MEMORY = NullBlk(size=96, memory_backed=1)
WRITES = Fio("write", 503, iodepth=1)


def test_dm_is_counted_on_the_disk_below() -> None:
    with create_null_blk(MEMORY) as below, stacked.create_linear(below) as top:
        [watched] = observe_disks([top.name], lambda: _write_disk(top.name))
        talk = run_opwatch("--dev", top.name, "--json", "0.1", "1")
    assert watched.count_by_op()["write"] == (503, 503 * 4096)
    assert f"traced on {below}" in talk.stderr
    line = json.loads(talk.stdout.splitlines()[0])
    assert (line["device"], line["origin"]) == (below, top.name)
    assert_explained("dm-linear", watched)


def test_crypt_is_counted_below_the_encryption() -> None:
    with create_null_blk(MEMORY) as below, stacked.create_crypt(below) as top:
        [watched] = observe_disks([top.name], lambda: _write_disk(top.name))
    assert watched.count_by_op()["write"][1] == 503 * 4096
    assert_explained("dm-crypt", watched)


@pytest.mark.parametrize(
    ("level", "members", "copies"),
    [*(pytest.param(level, 2, level + 1, marks=pytest.mark.manual) for level in (0, 1)), (10, 4, 2)],
)
def test_md_has_a_row_for_each_member(level: int, members: int, copies: int) -> None:
    with contextlib.ExitStack() as stack:
        below = [stack.enter_context(create_null_blk(MEMORY)) for _ in range(members)]
        array = stack.enter_context(stacked.create_md(level, below))
        watched = observe_disks([array], lambda: _write_disk(array))
    assert len(watched) == members
    written = sum(one.count_by_op().get("write", (0, 0))[1] for one in watched)
    # md also writes the members' superblocks when the array becomes dirty.
    assert written >= copies * 503 * 4096
    for one in watched:
        assert_explained(f"md raid{level}", one)


def test_multipath_is_counted_on_the_hidden_paths() -> None:
    head = sysfs.disk("opw-nvme-multipath")
    counts = []
    watched = observe_disks([head], lambda: counts.append(run_fio(head, Fio("randread", 3001))))
    assert len(watched) == 2
    assert sum(one.count_by_op().get("read", (0, 0))[1] for one in watched) == counts[0].read_bytes
    for one in watched:
        assert_explained("nvme multipath path", one)


def test_zram_is_counted_by_bio() -> None:
    with stacked.create_zram(64 << 20) as disk:
        [watched] = observe_disks([disk], lambda: _write_disk(disk))
        talk = run_opwatch("--dev", disk, "--json", "0.1", "1")
    assert watched.count_by_op()["write"] == (503, 503 * 4096)
    assert "each bio is traced" in talk.stderr
    assert json.loads(talk.stdout.splitlines()[0])["level"].startswith("bios")


def _write_disk(name: str) -> None:
    assert run_fio(name, WRITES).errors == 0
