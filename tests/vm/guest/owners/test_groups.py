"""Requests by control group: equal to the kernel's io.stat for each, and to the disk's counts in total."""

from __future__ import annotations

import contextlib
import itertools
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.vm.guest.owners.groups import Group, create_groups
from tests.vm.guest.owners.owner_sums import assert_all_sums_match, assert_sums_match, sum_by_owner
from tests.vm.guest.support import sysfs
from tests.vm.guest.support.copies import run_opwatch
from tests.vm.guest.support.nullblk import Irq, NullBlk, create_null_blk
from tests.vm.guest.support.shell import run_command
from tests.vm.guest.support.stacked import create_crypt, create_loop, create_zram
from tests.vm.guest.support.sysfs import SYS_BLOCK
from tests.vm.guest.support.watcher import start_watch
from tests.vm.guest.support.workload import Fio
from tests.vm.requirements import need_tool

DEVICES = ("nvme", "virtio-blk")
CPUS = 2
TIMEOUT_S = 1800

DIRECT, BUFFERED, READS = 509, 613, 307
PAGE = 4096


# Below dm-crypt the kernel accounts requests from its own threads to /, and so do we.
ENCRYPTED = "dm-crypt"
KINDS = ("null_blk", "nvme", "virtio-blk", "loop", ENCRYPTED)
IN_CI = (("null_blk", "auto"), (ENCRYPTED, "raw_tp"))


@contextlib.contextmanager
def provide_disk(kind: str) -> Iterator[tuple[str, str]]:
    """Yield the watched disk and the node that the workload writes to."""
    with contextlib.ExitStack() as stack:
        if kind in ("nvme", "virtio-blk"):
            disk = sysfs.disk(f"opw-{kind}")
        elif kind == "loop":
            disk = stack.enter_context(create_loop(256 << 20))
        else:
            memory = NullBlk(size=256, memory_backed=1, discard=1, irqmode=Irq.SOFTIRQ)
            disk = stack.enter_context(create_null_blk(memory))
        node = f"/dev/{disk}"
        if kind == ENCRYPTED:
            node = f"/dev/{stack.enter_context(create_crypt(disk)).name}"
        yield disk, node


def read_device_number(disk: str) -> str:
    return (SYS_BLOCK / disk / "dev").read_text().strip()


@pytest.mark.parametrize(
    ("kind", "hooks"),
    [
        pytest.param(kind, hooks, marks=[pytest.mark.manual] * ((kind, hooks) not in IN_CI))
        for hooks in ("auto", "raw_tp")
        for kind in KINDS
    ],
)
def test_group_bytes_equal_the_kernels_io_stat(kind: str, hooks: str) -> None:
    need_tool("blkdiscard")
    with provide_disk(kind) as (disk, node), create_groups(("direct", "buffered", "mixed")) as made:
        direct, buffered, mixed = made
        dev = read_device_number(disk)
        with start_watch("--dev", disk, "--waf", "0", "--by", "cgroup", "--hooks", hooks, "0.2") as watcher:
            run_all_loads(made, node)
            summary = assert_all_sums_match(watcher)
        accounted = {group.name: group.read_accounted_bytes(dev) for group in made}
        numbers = {group.name: group.cgroup_id for group in made}
    ours = {
        name: {op: own[1] for op, own in ops.items() if own[1]}
        for name, ops in sum_by_owner(summary).items()
        if name in accounted
    }
    assert ours == {name: bytes_ for name, bytes_ in accounted.items() if bytes_}
    assert "other" not in sum_by_owner(summary)
    known = {one["name"]: one["cgroup_number"] for one in summary["owners"]["owners"]}
    assert {name: known[name] for name in ours} == {name: numbers[name] for name in ours}
    if kind == ENCRYPTED:
        written = sum(ops.get("write", (0, 0))[1] for ops in sum_by_owner(summary).values())
        assert written >= (DIRECT + BUFFERED + 211) * PAGE
        return
    assert ours[direct.name] == {"write": DIRECT * PAGE}
    if kind == "null_blk":
        # A dirty page of a device belongs to the group that dirtied it first, in this or another test.
        assert ours[buffered.name]["write"] == (BUFFERED + 211) * PAGE
    assert ours[mixed.name] == {"read": READS * PAGE, "discard": 16 << 20}


def run_all_loads(made: list[Group], node: str) -> None:
    """Run direct and buffered writes, reads, discards and write-back, in three groups at once."""
    direct, buffered, mixed = made
    write = Fio("randwrite", DIRECT, iodepth=8, extra=("--size=64M",))
    read = Fio("randread", READS, iodepth=4, extra=("--size=64M",))
    running = [
        subprocess.Popen(group.build_argv(*argv), stdout=subprocess.DEVNULL)
        for group, argv in (
            (direct, write.build_argv(node)),
            (buffered, build_buffered_write(node)),
            (mixed, read.build_argv(node)),
        )
    ]
    assert [one.wait(600) for one in running] == [0, 0, 0]
    mixed.run_command("blkdiscard", "--force", "--offset", "192M", "--length", "16M", node)
    # Kernel workers write the remaining dirty pages on behalf of their owner.
    buffered.run_command(
        "dd", "if=/dev/zero", f"of={node}", "bs=4k", "count=211", "seek=40000", "conv=notrunc"
    )
    run_command("sync")


def build_buffered_write(node: str) -> list[str]:
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


def test_file_writes_on_a_journaling_filesystem_equal_io_stat(tmp_path: Path) -> None:
    sizes = dict(zip(("first", "second", "third"), (307, 401, 509), strict=True))
    disk_of_memory = NullBlk(size=256, memory_backed=1, irqmode=Irq.SOFTIRQ)
    with create_null_blk(disk_of_memory) as disk, create_groups(tuple(sizes)) as made:
        run_command("mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", f"/dev/{disk}")
        run_command("mount", f"/dev/{disk}", str(tmp_path))
        try:
            with start_watch("--dev", disk, "--waf", "0", "--by", "cgroup", "0.2") as watcher:
                written = [start_file_write(group, tmp_path / group.folder.name, sizes) for group in made]
                assert [one.wait(600) for one in written] == [0, 0, 0]
                run_command("sync")
                summary = assert_all_sums_match(watcher)
            accounted = {group.name: group.read_accounted_bytes(read_device_number(disk)) for group in made}
        finally:
            run_command("umount", str(tmp_path))
    ours = {
        name: {op: own[1] for op, own in ops.items() if own[1]} for name, ops in sum_by_owner(summary).items()
    }
    assert {name: ours[name] for name in accounted} == accounted
    for group in made:
        assert accounted[group.name]["write"] >= sizes[group.folder.name.removeprefix("opw-")] * PAGE
    # A kernel thread writes the journal for all groups.
    assert ours["/"]["write"] > 0


def start_file_write(group: Group, path: Path, sizes: dict[str, int]) -> subprocess.Popen[bytes]:
    """Start writing pages to a file in the group, followed by an fsync."""
    count = sizes[group.folder.name.removeprefix("opw-")]
    return subprocess.Popen(
        group.build_argv("dd", "if=/dev/zero", f"of={path}", "bs=4k", f"count={count}", "conv=fsync"),
        stderr=subprocess.DEVNULL,
    )


@pytest.mark.manual
def test_bio_based_device_counts_bios_per_group() -> None:
    """zram takes bios: each completes once and is counted for its group."""
    with (
        create_zram(64 << 20) as disk,
        create_groups(("one", "two")) as made,
        start_watch("--dev", disk, "--waf", "0", "--by", "cgroup", "0.2") as watcher,
    ):
        for group, count in zip(made, (211, 307), strict=True):
            group.run_command(
                "dd", "if=/dev/zero", f"of=/dev/{disk}", "bs=4k", f"count={count}", "oflag=direct"
            )
        summary = assert_all_sums_match(watcher)
    assert {name: sum_by_owner(summary)[name] for name in ("/opw-one", "/opw-two")} == {
        "/opw-one": {"write": (211, 211 * PAGE)},
        "/opw-two": {"write": (307, 307 * PAGE)},
    }


def test_removed_groups_keep_their_requests() -> None:
    """A removed group keeps its requests, under its name or at least its number."""
    numbers = []
    with (
        create_null_blk(NullBlk(irqmode=Irq.SOFTIRQ)) as disk,
        start_watch("--dev", disk, "--waf", "0", "--by", "cgroup", "0.5") as watcher,
    ):
        for serial in range(5):
            with create_groups((f"short-{serial}",)) as [group]:
                group.run_command(
                    "dd", f"if=/dev/{disk}", "of=/dev/null", "bs=4k", "count=13", "iflag=direct"
                )
                numbers.append(group.cgroup_id)
        summary = assert_all_sums_match(watcher)
    owners = {one["cgroup_number"]: one for one in summary["owners"]["owners"]}
    assert [owners[number]["ops"]["read"]["count"] for number in numbers] == [13] * 5
    names = [owners[number]["name"] for number in numbers]
    assert all(name in (None, f"/opw-short-{serial}") for serial, name in enumerate(names)), names


@pytest.mark.manual
def test_replay_has_the_same_owners(tmp_path: Path) -> None:
    kept = tmp_path / "run.opw"
    with create_null_blk(NullBlk(irqmode=Irq.SOFTIRQ)) as disk, create_groups(("kept",)) as [group]:
        argv = ("--json", "--dev", disk, "--waf", "0", "--by", "cgroup", "-o", str(kept), "0.2", "--")
        job = group.build_argv(*Fio("randread", 1009).build_argv(f"/dev/{disk}"))
        live = run_opwatch(*argv, *job)
    assert live.returncode == 0, live.stderr
    again = run_opwatch("replay", "--json", str(kept))
    lines = [json.loads(line) for line in live.stdout.splitlines() if line.startswith('{"schema"')]
    assert [json.loads(line) for line in again.stdout.splitlines()] == lines
    summary = lines[-1]
    assert sum_by_owner(summary)[group.name] == {"read": (1009, 1009 * PAGE)}
    long = run_opwatch("replay", "--json", str(kept), "10")
    assert long.returncode == 0, long.stderr
    for line in itertools.chain(lines, map(json.loads, long.stdout.splitlines())):
        if line["type"] != "event":
            assert_sums_match(line)
