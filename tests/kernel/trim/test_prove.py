"""`opwatch trim audit --prove` and `--watch` on simulated drives, with the drive's own map as the oracle."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from opwatch.host.scratch import ScratchDisk
from opwatch.tools.commands.trim.audit import audit_mount
from opwatch.trim.audit.audit import Asked, Audit, Verdict
from tests.kernel.support.drives import MIB, create_drive
from tests.kernel.support.loops import create_private_loop
from tests.kernel.support.trims import (
    ATTEMPTS,
    create_folder,
    find_mount_at,
    has_host_losses,
    mount_filesystem,
    run,
    sum_reasons,
)
from tests.kernel.support.watching import parse_lines, run_opwatch
from tests.requirements import require_drive

SIZE = 512 * MIB


@pytest.fixture(autouse=True)
def _drive() -> None:
    require_drive()


def prove_filesystem(filesystem: str, *faults: str) -> tuple[Audit, int, int]:
    """Return the audit, and the bytes that the drive holds by its own map before and after the audit."""
    for _ in range(ATTEMPTS):
        with create_drive(SIZE, faults=faults) as one, mount_filesystem(one.device, filesystem) as point:
            (point / "file").write_bytes(os.urandom(64 * MIB))
            os.sync()
            (point / "file").unlink()
            os.sync()
            before = one.read_truth()["valid_bytes"]
            result = audit_mount(find_mount_at(point), Asked(), prove=True)
            after = one.read_truth()["valid_bytes"]
        if not has_host_losses(result):
            break
    return result, before, after


@pytest.mark.parametrize("filesystem", ["ext4", "xfs", "btrfs"])
def test_trim_is_proven_when_the_drive_honours_trims(filesystem: str) -> None:
    result, before, after = prove_filesystem(filesystem)
    assert result.verdict is Verdict.PROVEN
    assert before - after > 60 * MIB
    assert result.unexplained_bytes == 0
    read_back = result.evidence.read_back
    assert read_back
    assert set(read_back.bytes) <= {"zeros", "reallocated"}
    assert read_back.count
    assert read_back.count.has_followed_trim


def test_trim_is_proven_when_the_drive_frees_later() -> None:
    """The drive frees after a second without requests; the audit samples its count until then."""
    result, before, after = prove_filesystem("ext4", "trim=lazy")
    assert result.verdict is Verdict.PROVEN
    assert before - after > 60 * MIB


def test_trim_is_unproven_when_the_drive_ignores_trims() -> None:
    """Every request completes and all blocks read as zeros; only the drive's own count shows held data."""
    result, before, after = prove_filesystem("ext4", "trim=ignore")
    assert result.verdict is Verdict.UNKNOWN
    assert after >= before
    assert sum_reasons(result) == {"unproven": None}
    assert len(re.findall(r"\d B\b", result.reasons[0].observed)) >= 2
    assert result.claimed_bytes == result.reached_bytes


def test_trim_is_unproven_when_the_drive_keeps_the_data() -> None:
    result, before, after = prove_filesystem("ext4", "trim=keep")
    assert result.verdict is Verdict.UNKNOWN
    assert after >= before
    assert sum_reasons(result) == {"unproven": None}
    read_back = result.evidence.read_back
    assert read_back
    assert list(read_back.bytes) == ["unchanged"]


def test_full_filesystem_is_trimmed_but_not_proven() -> None:
    with (
        create_drive(64 * MIB, faults=("log-fail=ca",)) as one,
        mount_filesystem(one.device, "ext4") as point,
    ):
        with (point / "all").open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, os.statvfs(point).f_bavail * 4096 - 2 * MIB)
        result = audit_mount(find_mount_at(point), Asked(), prove=True)
    assert result.verdict in (Verdict.ACCEPTED, Verdict.UNKNOWN)
    read_back = result.evidence.read_back
    assert read_back
    assert "space" in (read_back.reason or "")


def run_audit(*arguments: str) -> dict[str, Any]:
    done = run_opwatch("trim", "audit", "--json", *arguments)
    assert done.returncode in (0, 6, 32), done.stderr
    [document] = parse_lines(done.stdout)
    return document


def test_watch_follows_the_discards_of_fstrim() -> None:
    with ScratchDisk(SIZE) as disk:
        for _ in range(ATTEMPTS):
            with mount_filesystem(disk.node, "xfs") as point:
                document = run_audit("--watch", str(point), "--", "fstrim", str(point))
            if document["verdict"] == "ACCEPTED":
                break
    assert document["verdict"] == "ACCEPTED"
    filesystem, device, granules = document["ledger"]
    assert filesystem["bytes_out"] == device["bytes_in"] == device["bytes_ok"] == granules["bytes_out"]
    assert document["reached_bytes"] == filesystem["bytes_out"] > SIZE // 2
    [origin] = document["origins"]
    assert (origin["comm"], origin["kernel_thread"]) == ("fstrim", False)
    assert origin["bytes"] == document["reached_bytes"]


def test_watch_follows_blkdiscard_on_a_device() -> None:
    """blkdiscard on a device without a filesystem."""
    with ScratchDisk(SIZE) as disk:
        for _ in range(ATTEMPTS):
            document = run_audit("--watch", "--dev", disk.node, "--", "blkdiscard", "-f", disk.node)
            if document["verdict"] == "ACCEPTED":
                break
    assert document["verdict"] == "ACCEPTED"
    assert document["filesystem"] is None
    assert document["reached_bytes"] == SIZE
    assert [(origin["comm"], origin["bytes"]) for origin in document["origins"]] == [("blkdiscard", SIZE)]


def test_watch_attributes_online_discards_to_a_kernel_thread() -> None:
    """ext4 -o discard: a kernel thread sends the discards after the journal's commit."""
    with ScratchDisk(SIZE) as disk:
        for _ in range(ATTEMPTS):
            with mount_filesystem(disk.node, "ext4", "discard") as point:
                (point / "file").write_bytes(os.urandom(32 * MIB))
                os.sync()
                shell = f"rm {point}/file; sync; sleep 1; sync -f {point}"
                document = run_audit("--watch", str(point), "--", "sh", "-c", shell)
            if document["verdict"] == "ACCEPTED":
                break
    assert document["verdict"] == "ACCEPTED"
    assert document["reached_bytes"] >= 32 * MIB
    assert any(origin["kernel_thread"] for origin in document["origins"])


def test_watch_without_discards_reports_not_sent(tmp_path: Path) -> None:
    with ScratchDisk(SIZE) as disk:
        document = run_audit("--watch", "--dev", disk.node, "--for", "0.2")
        assert (document["verdict"], document["origins"]) == ("NOT SENT", [])
        program = [sys.executable, "-m", "opwatch", "trim", "audit", "--watch", "--json", "--dev", disk.node]
        command = subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert command.stderr
        assert "following discards" in command.stderr.readline()
        command.send_signal(2)
        output, _ = command.communicate(timeout=60)
        assert command.returncode == 32
        assert json.loads(output)["verdict"] == "NOT SENT"


def test_watch_ends_when_its_device_disappears() -> None:
    with create_folder() as home:
        image = home / "image"
        with image.open("wb") as file:
            file.truncate(64 * MIB)
        node = run("losetup", "--find", "--show", str(image)).strip()
        program = [sys.executable, "-m", "opwatch", "trim", "audit", "--watch", "--json", "--dev", node]
        command = subprocess.Popen(
            [*program, "--", "sleep", "60"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert command.stderr
        try:
            assert "following discards" in command.stderr.readline()
        finally:
            run("losetup", "--detach", node)
        output, said = command.communicate(timeout=60)
    assert command.returncode == 1, said
    assert re.search(rf"\b{Path(node).name} .*\bgone\b", said)
    assert json.loads(output)["verdict"] == "NOT SENT"


@pytest.mark.parametrize("is_removed", [False, True], ids=["bound to another file", "removed and added"])
def test_watch_does_not_count_a_new_disk_with_the_old_number(is_removed: bool) -> None:
    """The new disk gets its discards before the watch can notice that the old disk is gone."""
    with create_private_loop(64 * MIB) as loop:
        program = [sys.executable, "-m", "opwatch", "trim", "audit", "--watch", "--json", "--dev", loop.node]
        command = subprocess.Popen(
            [*program, "--", "sleep", "60"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert command.stderr
        assert "following discards" in command.stderr.readline()
        run("blkdiscard", "-f", "--length", str(MIB), loop.node)
        loop.detach()
        if is_removed:
            loop.remove()
            loop.add()
        loop.attach(loop.second)
        run("blkdiscard", "-f", loop.node)
        output, said = command.communicate(timeout=60)
    assert command.returncode == 1, said
    assert re.search(rf"\b{loop.name} .*\bgone\b", said)
    document = json.loads(output)
    assert (document["verdict"], document["reached_bytes"]) == ("ACCEPTED", MIB)
    assert [origin["bytes"] for origin in document["origins"]] == [MIB]
    assert document["trace"]["kernel_counted"] == {}


@pytest.mark.parametrize(
    ("script", "status"), [("exit 7", 7), ("true", 32), ("blkdiscard {0}; exit 7", 7), ("blkdiscard {0}", 0)]
)
def test_watch_passes_on_the_exit_status_of_its_command(script: str, status: int) -> None:
    """Except if the command succeeds but its trim does not."""
    with ScratchDisk(64 * MIB) as disk:
        for _ in range(ATTEMPTS):
            done = run_opwatch(
                "trim", "audit", "--watch", "--dev", disk.node, "--", "sh", "-c", script.format(disk.node)
            )
            if "UNKNOWN" not in done.stdout:
                break
    assert done.returncode == status, done.stdout + done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("--watch", "--prove", "--dev", "loop0"),
        ("--watch", "--all"),
        ("--for", "1", "--dev", "loop0"),
        ("--dev", "loop0", "--", "true"),
    ],
)
def test_contradictory_watch_options_are_refused(arguments: tuple[str, ...]) -> None:
    done = run_opwatch("trim", "audit", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert "--watch" in done.stderr
