"""Discards in `opwatch --dev D`: senders, splits, and requests that wait behind discards."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

from opwatch.collectors.audit.live_discards import LiveDiscards
from opwatch.collectors.block.blk import BlockTracer
from opwatch.host.device import Devices
from opwatch.host.scratch import ScratchDisk
from opwatch.tools.commands.overhead import enable_program_statistics
from opwatch.tools.runs.live_watch import choose_leaves
from tests.kernel.support.load import reads
from tests.kernel.support.trims import ATTEMPTS, MIB, mount_filesystem
from tests.kernel.support.watching import parse_lines, run_opwatch

HALF = 1 << 19


def watch_command(disk: ScratchDisk, *command: str) -> dict[str, Any]:
    """Return the discard summary of a watched command; retry while the host hides some events."""
    for _ in range(ATTEMPTS):
        done = run_opwatch("--dev", disk.name, "--json", "-q", "--", *command)
        assert done.returncode == 0, done.stderr
        [summary] = parse_lines(done.stdout)
        discarded: dict[str, Any] = summary["discards"]
        if not summary["trust"]["drift"].get("discard") and not discarded["unseen"] and not discarded["lost"]:
            break
    assert (discarded["unseen"], discarded["lost"]) == (0, 0)
    return discarded


def test_summary_reports_senders_and_split_ratio(disk: ScratchDisk) -> None:
    limit = Path(f"/sys/block/{disk.name}/queue/discard_max_bytes")
    before = int(limit.read_text())
    limit.write_text(str(1 << 17))
    program = f"from tests.kernel.support.load import discards; discards({disk.node!r}, 7)"
    try:
        discarded = watch_command(disk, sys.executable, "-c", program)
    finally:
        limit.write_text(str(before // 4096 * 4096))
    assert (discarded["bios"], discarded["bytes"], discarded["whole_ratio"]) == (7, 7 * HALF, 1.0)
    assert discarded["split_ratio"] == discarded["requests"] / 7
    assert 1 < discarded["split_ratio"] <= 4
    assert discarded["mean_ns"] > 0
    [sender] = discarded["senders"]
    assert sender["comm"].startswith("python")
    assert (sender["count"], sender["bytes"], sender["where"]) == (7, 7 * HALF, None)
    assert (sender["min_bytes"], sender["max_bytes"], sender["below_granule"]) == (HALF, HALF, 0)
    assert not sender["kernel_thread"]


def test_sender_names_the_mounted_filesystem(disk: ScratchDisk) -> None:
    with mount_filesystem(disk.node, "ext4") as point:
        discarded = watch_command(disk, "fstrim", str(point))
        [sender] = discarded["senders"]
        assert (sender["comm"], sender["where"]) == ("fstrim", f"ext4 {point}")


def test_reads_issued_behind_a_discard_are_counted_as_stalled(disk: ScratchDisk) -> None:
    """One process reads while another discards without a pause."""
    program = (
        "import os, subprocess, sys, fcntl, struct, time\n"
        "from tests.kernel.support.load import reads\n"
        f"node = {disk.node!r}\n"
        "pid = os.fork()\n"
        "if not pid:\n"
        "    d = os.open(node, os.O_RDWR)\n"
        "    for i in range(2000): fcntl.ioctl(d, 0x1277, struct.pack('=QQ', 128 << 20, 64 << 20))\n"
        "    os._exit(0)\n"
        "for i in range(20): reads(node, 101)\n"
        "os.waitpid(pid, 0)\n"
    )
    discarded = watch_command(disk, sys.executable, "-c", program)
    assert discarded["bios"] == 2000
    stalled = {waiting["op"]: waiting for waiting in discarded["stalled"]}
    assert 0 < stalled["read"]["count"] <= 2020
    assert 0 < stalled["read"]["mean_ns"] <= stalled["read"]["max_ns"]


def test_no_request_is_stalled_when_no_discards_are_issued(disk: ScratchDisk) -> None:
    program = (
        "from tests.kernel.support.load import reads, writes; "
        f"reads({disk.node!r}, 53); writes({disk.node!r}, 59)"
    )
    discarded = watch_command(disk, sys.executable, "-c", program)
    assert (discarded["bios"], discarded["senders"], discarded["stalled"]) == (0, [], [])
    assert (discarded["split_ratio"], discarded["whole_ratio"], discarded["mean_ns"]) == (None, None, None)


def test_lines_fit_80_columns(disk: ScratchDisk) -> None:
    with mount_filesystem(disk.node, "ext4") as point:
        (point / "file").write_bytes(os.urandom(MIB))
        done = run_opwatch("--dev", disk.name, "0.2", "--", "fstrim", str(point))
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stdout.splitlines() if len(line) > 80] == []
    assert "discards: " in done.stdout
    assert "fstrim (" in done.stdout


def test_reads_run_no_discard_program_but_discard_bio(disk: ScratchDisk) -> None:
    """Only the block tracer's two programs run for each request; they call the discard programs as needed."""
    leaves, _ = choose_leaves(Devices(), [disk.name])
    with enable_program_statistics(), closing(BlockTracer(leaves)) as tracer:
        live = LiveDiscards(lambda _: True)
        live.add_leaves(dict(enumerate(leaves)), tracer)
        try:
            reads(disk.node, 499)
            runs = {program[0]: program[2] for program in live.list_programs()}
            tracer_runs = {program[0]: program[2] for program in tracer.list_programs()}
        finally:
            live.close()
    assert tracer_runs["rq_issue"] >= 490
    assert "discard_issued" in runs
    assert {name for name, count in runs.items() if count >= 490} <= {"discard_bio"}


def watch_briefly(*options: str) -> dict[str, Any] | None:
    """Return the discard part of a short watch's summary."""
    done = run_opwatch(*options, "--json", "0.05", "1")
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] | None = parse_lines(done.stdout)[-1]["discards"]
    return document


def test_discards_are_traced_only_for_named_disks_or_on_request(disk: ScratchDisk) -> None:
    assert watch_briefly("--dev", disk.name) is not None
    assert watch_briefly("--dev", disk.name, "--no-discards") is None
    assert watch_briefly() is None
    assert watch_briefly("--discards") is not None


def test_each_partition_counts_its_own_discards(disk: ScratchDisk) -> None:
    table = "label: dos\nstart=2048, size=65536\nstart=67584, size=65536\n"
    subprocess.run(["sfdisk", "-q", disk.node], input=table, text=True, check=True)
    subprocess.run(["partx", "-u", disk.node], check=True)
    program = "\n".join(
        [
            "from tests.kernel.support.load import discards",
            *(f"discards('{disk.node}p{n}', {n * 3})" for n in (1, 2)),
        ]
    )
    names = [option for number in (1, 2) for option in ("--dev", f"{disk.name}p{number}")]
    for _ in range(ATTEMPTS):
        done = run_opwatch(*names, "--json", "-q", "--", sys.executable, "-c", program)
        assert done.returncode == 0, done.stderr
        summaries = [summary["discards"] for summary in parse_lines(done.stdout)]
        if [summary["ended"] for summary in summaries] == [3, 6]:
            break
    assert [(summary["bios"], summary["ended"], summary["unseen"]) for summary in summaries] == [
        (3, 3, None),
        (6, 6, None),
    ]
    assert [[sender["count"] for sender in summary["senders"]] for summary in summaries] == [[3], [6]]
