"""Requests by control group: equal to the kernel's io.stat for each, and to the disk's counts in total."""

from __future__ import annotations

import contextlib
import itertools
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.vm.guest.owners.closing import assert_all_closed, assert_closed, totals
from tests.vm.guest.owners.groups import Group, groups
from tests.vm.guest.support import sysfs
from tests.vm.guest.support.nullblk import Irq, NullBlk, null_blk
from tests.vm.guest.support.shell import call
from tests.vm.guest.support.stacked import crypt, loop, zram
from tests.vm.guest.support.sysfs import SYS_BLOCK
from tests.vm.guest.support.watcher import watching
from tests.vm.guest.support.workload import Fio
from tests.vm.requirements import need_tool

DEVICES = ("nvme", "virtio-blk")
CPUS = 2
TIMEOUT_S = 1800

HOOKS = ("auto", "raw_tp")
DIRECT, BUFFERED, READS = 509, 613, 307
PAGE = 4096


# Below dm-crypt the kernel accounts requests from its own threads to /, and so do we.
ENCRYPTED = "dm-crypt"


@contextlib.contextmanager
def disk_of(kind: str) -> Iterator[tuple[str, str]]:
    """Yield the watched disk and the node that the workload writes to."""
    with contextlib.ExitStack() as stack:
        if kind in ("nvme", "virtio-blk"):
            disk = sysfs.disk(f"opw-{kind}")
        elif kind == "loop":
            disk = stack.enter_context(loop(256 << 20))
        else:
            memory = NullBlk(size=256, memory_backed=1, discard=1, irqmode=Irq.SOFTIRQ)
            disk = stack.enter_context(null_blk(memory))
        node = f"/dev/{disk}"
        if kind == ENCRYPTED:
            node = f"/dev/{stack.enter_context(crypt(disk)).name}"
        yield disk, node


def device_number(disk: str) -> str:
    return (SYS_BLOCK / disk / "dev").read_text().strip()


@pytest.mark.parametrize("hooks", HOOKS)
@pytest.mark.parametrize("kind", ["null_blk", "nvme", "virtio-blk", "loop", ENCRYPTED])
def test_groups_have_what_the_kernel_accounts_to_them(kind: str, hooks: str) -> None:
    need_tool("blkdiscard")
    with disk_of(kind) as (disk, node), groups(("direct", "buffered", "mixed")) as made:
        direct, buffered, mixed = made
        dev = device_number(disk)
        with watching("--dev", disk, "--waf", "0", "--by", "cgroup", "--hooks", hooks, "0.2") as watcher:
            do_all(made, node)
            summary = assert_all_closed(watcher)
        accounted = {group.name: group.accounted(dev) for group in made}
        numbers = {group.name: group.number for group in made}
    ours = {
        name: {op: own[1] for op, own in ops.items() if own[1]}
        for name, ops in totals(summary).items()
        if name in accounted
    }
    assert ours == {name: bytes_ for name, bytes_ in accounted.items() if bytes_}
    assert "other" not in totals(summary)
    known = {one["name"]: one["cgroup_number"] for one in summary["owners"]["owners"]}
    assert {name: known[name] for name in ours} == {name: numbers[name] for name in ours}
    if kind == ENCRYPTED:
        written = sum(ops.get("write", (0, 0))[1] for ops in totals(summary).values())
        assert written >= (DIRECT + BUFFERED + 211) * PAGE
        return
    assert ours[direct.name] == {"write": DIRECT * PAGE}
    if kind == "null_blk":
        # A dirty page of a device belongs to the group that dirtied it first, in this or another test.
        assert ours[buffered.name]["write"] == (BUFFERED + 211) * PAGE
    assert ours[mixed.name] == {"read": READS * PAGE, "discard": 16 << 20}


def do_all(made: list[Group], node: str) -> None:
    """Run direct and buffered writes, reads, discards and write-back, in three groups at once."""
    direct, buffered, mixed = made
    write = Fio("randwrite", DIRECT, iodepth=8, extra=("--size=64M",))
    read = Fio("randread", READS, iodepth=4, extra=("--size=64M",))
    running = [
        subprocess.Popen(group.argv(*argv), stdout=subprocess.DEVNULL)
        for group, argv in (
            (direct, write.argv(node)),
            (buffered, buffered_writes(node)),
            (mixed, read.argv(node)),
        )
    ]
    assert [one.wait(600) for one in running] == [0, 0, 0]
    mixed.run("blkdiscard", "--force", "--offset", "192M", "--length", "16M", node)
    # Kernel workers write the remaining dirty pages on behalf of their owner.
    buffered.run("dd", "if=/dev/zero", f"of={node}", "bs=4k", "count=211", "seek=40000", "conv=notrunc")
    call("sync")


def buffered_writes(node: str) -> list[str]:
    """Return a command that writes BUFFERED pages through the page cache and calls fsync."""
    return [
        "dd",
        "if=/dev/zero",
        f"of={node}",
        "bs=4k",
        f"count={BUFFERED}",
        "seek=30000",
        "conv=notrunc,fsync",
    ]


def test_files_of_three_groups_on_a_filesystem_with_a_journal(tmp_path: Path) -> None:
    sizes = dict(zip(("first", "second", "third"), (307, 401, 509), strict=True))
    disk_of_memory = NullBlk(size=256, memory_backed=1, irqmode=Irq.SOFTIRQ)
    with null_blk(disk_of_memory) as disk, groups(tuple(sizes)) as made:
        call("mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", f"/dev/{disk}")
        call("mount", f"/dev/{disk}", str(tmp_path))
        try:
            with watching("--dev", disk, "--waf", "0", "--by", "cgroup", "0.2") as watcher:
                written = [write_file(group, tmp_path / group.folder.name, sizes) for group in made]
                assert [one.wait(600) for one in written] == [0, 0, 0]
                call("sync")
                summary = assert_all_closed(watcher)
            accounted = {group.name: group.accounted(device_number(disk)) for group in made}
        finally:
            call("umount", str(tmp_path))
    ours = {name: {op: own[1] for op, own in ops.items() if own[1]} for name, ops in totals(summary).items()}
    assert {name: ours[name] for name in accounted} == accounted
    for group in made:
        assert accounted[group.name]["write"] >= sizes[group.folder.name.removeprefix("opw-")] * PAGE
    # A kernel thread writes the journal for all groups.
    assert ours["/"]["write"] > 0


def write_file(group: Group, path: Path, sizes: dict[str, int]) -> subprocess.Popen[bytes]:
    """Start writing pages to a file in the group, followed by an fsync."""
    count = sizes[group.folder.name.removeprefix("opw-")]
    return subprocess.Popen(
        group.argv("dd", "if=/dev/zero", f"of={path}", "bs=4k", f"count={count}", "conv=fsync"),
        stderr=subprocess.DEVNULL,
    )


def test_a_device_without_requests() -> None:
    """zram takes bios: each completes once and is counted for its group."""
    with (
        zram(64 << 20) as disk,
        groups(("one", "two")) as made,
        watching("--dev", disk, "--waf", "0", "--by", "cgroup", "0.2") as watcher,
    ):
        for group, count in zip(made, (211, 307), strict=True):
            group.run("dd", "if=/dev/zero", f"of=/dev/{disk}", "bs=4k", f"count={count}", "oflag=direct")
        summary = assert_all_closed(watcher)
    assert {name: totals(summary)[name] for name in ("/opw-one", "/opw-two")} == {
        "/opw-one": {"write": (211, 211 * PAGE)},
        "/opw-two": {"write": (307, 307 * PAGE)},
    }


def test_groups_that_come_and_go() -> None:
    """A removed group keeps its requests, under its name or at least its number."""
    numbers = []
    with (
        null_blk(NullBlk(irqmode=Irq.SOFTIRQ)) as disk,
        watching("--dev", disk, "--waf", "0", "--by", "cgroup", "0.5") as watcher,
    ):
        for serial in range(5):
            with groups((f"short-{serial}",)) as [group]:
                group.run("dd", f"if=/dev/{disk}", "of=/dev/null", "bs=4k", "count=13", "iflag=direct")
                numbers.append(group.number)
        summary = assert_all_closed(watcher)
    owners = {one["cgroup_number"]: one for one in summary["owners"]["owners"]}
    assert [owners[number]["ops"]["read"]["count"] for number in numbers] == [13] * 5
    names = [owners[number]["name"] for number in numbers]
    assert all(name in (None, f"/opw-short-{serial}") for serial, name in enumerate(names)), names


def test_a_recording_has_the_same_owners(tmp_path: Path) -> None:
    kept = tmp_path / "run.opw"
    with null_blk(NullBlk(irqmode=Irq.SOFTIRQ)) as disk, groups(("kept",)) as [group]:
        argv = ("--json", "--dev", disk, "--waf", "0", "--by", "cgroup", "-o", str(kept), "0.2", "--")
        job = group.argv(*Fio("randread", 1009).argv(f"/dev/{disk}"))
        live = call(sys.executable, "-m", "opwatch", *argv, *job)
    again = call(sys.executable, "-m", "opwatch", "replay", "--json", str(kept))
    lines = [json.loads(line) for line in live.splitlines() if line.startswith('{"schema"')]
    assert [json.loads(line) for line in again.splitlines()] == lines
    summary = lines[-1]
    assert totals(summary)[group.name] == {"read": (1009, 1009 * PAGE)}
    long = call(sys.executable, "-m", "opwatch", "replay", "--json", str(kept), "10")
    for line in itertools.chain(lines, map(json.loads, long.splitlines())):
        if line["type"] != "event":
            assert_closed(line)
