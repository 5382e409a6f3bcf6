"""Requests by process: each belongs to the issuing process, and write-back to no worker."""

from __future__ import annotations

import json
import subprocess

import pytest

from tests.vm.guest.owners.owner_sums import assert_all_sums_match
from tests.vm.guest.support import sysfs
from tests.vm.guest.support.copies import run_opwatch, start_opwatch
from tests.vm.guest.support.nullblk import Irq, NullBlk, create_null_blk
from tests.vm.guest.support.shell import run_command
from tests.vm.guest.support.stacked import create_zram
from tests.vm.guest.support.sysfs import wait_for
from tests.vm.guest.support.watcher import start_watch
from tests.vm.guest.support.workload import hasten_write_back

TIERS = ()
CPUS = 2
TIMEOUT_S = 1800

HOOKS = ("auto", pytest.param("raw_tp", marks=pytest.mark.manual))
COUNTS = (101, 103, 107, 109, 113)
PAGE = 4096
IN_MEMORY = NullBlk(size=256, memory_backed=1, irqmode=Irq.SOFTIRQ)


def build_write_command(disk: str, count: int, *how: str) -> list[str]:
    return ["dd", "if=/dev/zero", f"of=/dev/{disk}", "bs=4k", f"count={count}", *how]


@pytest.mark.parametrize("hooks", HOOKS)
def test_each_process_owns_exactly_its_requests(hooks: str) -> None:
    with (
        create_null_blk(IN_MEMORY) as disk,
        start_watch("--dev", disk, "--waf", "0", "--by", "process", "--hooks", hooks, "0.2") as watcher,
    ):
        running = {
            count: subprocess.Popen(
                build_write_command(disk, count, "oflag=direct"), stderr=subprocess.DEVNULL
            )
            for count in COUNTS
        }
        assert [one.wait(600) for one in running.values()] == [0] * len(COUNTS)
        summary = assert_all_sums_match(watcher)
    owners = {one["pid"]: one for one in summary["owners"]["owners"] if one["kind"] == "process"}
    for count, process in running.items():
        own = owners[process.pid]
        assert own["name"] == "dd"
        assert (own["ops"]["write"]["count"], own["ops"]["write"]["bytes"]) == (count, count * PAGE)
    assert "write" not in summary["owners"]["other"]["ops"]


@pytest.mark.parametrize("hooks", HOOKS)
def test_write_back_is_attributed_to_the_flush_work(hooks: str) -> None:
    with (
        create_null_blk(IN_MEMORY) as disk,
        hasten_write_back(),
        start_watch("--dev", disk, "--waf", "0", "--by", "process", "--hooks", hooks, "0.2") as watcher,
    ):
        trigger_write_back(disk, 211)
        summary = assert_all_sums_match(watcher)
    written = {one["kind"]: one for one in summary["owners"]["owners"] if "write" in one["ops"]}
    assert written["write-back"]["ops"]["write"]["bytes"] == 211 * PAGE
    assert written["write-back"]["name"].startswith("flush-")
    assert written.keys() == {"write-back"}
    assert not [one for one in summary["owners"]["owners"] if "kworker" in (one["name"] or "")]


def trigger_write_back(disk: str, pages: int) -> None:
    """Let the kernel write this many pages."""
    before = sysfs.read_stat(disk)
    # Keep the device open, because a close would write the dirty pages from this process.
    with open(f"/dev/{disk}", "r+b", buffering=0) as file:
        file.write(b"x" * (pages * PAGE))
        wait_for("write-back", lambda: (sysfs.read_stat(disk) - before).write_bytes == pages * PAGE)


def test_write_back_has_a_single_owner_across_workers() -> None:
    """A worker writes its current work's name over the previous, maybe longer, name ("events_unbound")."""
    with (
        create_null_blk(IN_MEMORY) as disk,
        hasten_write_back(),
        start_watch("--dev", disk, "--waf", "0", "--by", "process", "0.5") as watcher,
    ):
        for pages in range(1, 24):
            trigger_write_back(disk, pages)
        summary = assert_all_sums_match(watcher)
    written = [one for one in summary["owners"]["owners"] if "write" in one["ops"]]
    pages = 23 * 24 // 2
    assert [(one["kind"], one["ops"]["write"]["bytes"]) for one in written] == [("write-back", pages * PAGE)]


@pytest.mark.manual
def test_bio_based_device_has_no_process_owner() -> None:
    with (
        create_zram(64 << 20) as disk,
        start_watch("--dev", disk, "--waf", "0", "--by", "process", "0.2") as watcher,
    ):
        run_command(*build_write_command(disk, 211, "oflag=direct"))
        summary = assert_all_sums_match(watcher)
    [own] = [one for one in summary["owners"]["owners"] if "write" in one["ops"]]
    assert (own["kind"], own["ops"]["write"]["count"]) == ("nobody", 211)


def test_top_shows_the_largest_first() -> None:
    with (
        create_null_blk(IN_MEMORY) as disk,
        start_opwatch("top", "--sort", "requests", "--dev", disk, "3", "2") as tables,
    ):
        # top attaches some time after its start, so keep writing until the end.
        while tables.is_running:
            for count in (13, 211):
                run_command(*build_write_command(disk, count, "oflag=direct"))
        shown = tables.wait()
    assert shown.returncode == 0, shown.stderr
    *rows, whole = [line.split() for line in shown.stdout.split("== ")[-1].splitlines()[2:] if line]
    assert [row for row in rows if row[6] == "dd"]
    requests = [float(row[3]) for row in rows if row[6] != "other:"]
    assert requests == sorted(requests, reverse=True)
    assert sum(float(row[3]) for row in rows) == pytest.approx(float(whole[3]), rel=0.02)


@pytest.mark.manual
def test_top_json_has_the_format_of_a_watch() -> None:
    with create_null_blk(IN_MEMORY) as disk:
        shown = run_opwatch("top", "--json", "--dev", disk, "0.5", "2")
    assert shown.returncode == 0, shown.stderr
    lines = [json.loads(line) for line in shown.stdout.splitlines()]
    assert [line["type"] for line in lines] == ["interval", "interval", "summary"]
    assert all(line["owners"]["by"] == "process" for line in lines)
