"""`opwatch trim audit` from a user's point of view: refusals, output, exit status, and two audits at once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from opwatch.host.scratch import ScratchDisk
from opwatch.trace.contexts import BLIND_CONTEXT
from opwatch.trim.audit.audit import Audit, Verdict
from tests.kernel.support import trims
from tests.kernel.support.trims import ATTEMPTS, MIB, audit_until_complete, mount_filesystem
from tests.kernel.support.watching import parse_lines, run_opwatch
from tests.kernel.trim.test_audit import create_on_overlay
from tests.requirements import require_nobody


def run_audit(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run_opwatch("trim", "audit", *arguments)


def audit_clean(point: Path) -> list[dict[str, Any]]:
    """Return the JSON documents of an audit."""
    done = run_audit("--json", str(point))
    assert done.returncode in (0, 6), done.stderr
    return parse_lines(done.stdout)


def test_json_has_the_documented_fields(disk: ScratchDisk) -> None:
    for _ in range(ATTEMPTS):
        with mount_filesystem(disk.node, "ext4") as point:
            [result] = audit_clean(point)
        if result["verdict"] == "ACCEPTED":
            break
    assert (result["schema"], result["type"]) == ("opwatch/1", "trim-audit")
    assert result["verdict"] == "ACCEPTED"
    assert result["claimed_bytes"] == result["reached_bytes"] > 200 * MIB
    assert result["unexplained_bytes"] == 0
    assert result["blind"] is None or BLIND_CONTEXT in result["blind"]
    assert [row["layer"] for row in result["ledger"]] == ["filesystem", "loop", "granules"]
    for row in result["ledger"]:
        assert {"bytes_in", "bytes_out", "bytes_ok", "requests", "errors", "reasons"} <= row.keys()


def test_lines_fit_80_columns_and_show_the_rejected_claim() -> None:
    with create_on_overlay() as point:
        done = run_audit(str(point))
    assert done.returncode == 32, done.stderr
    assert [line for line in done.stdout.splitlines() if len(line) > 80] == []
    assert "\x1b" not in done.stdout
    assert done.stdout.startswith(f"{point}: REJECTED")
    assert "claimed (what fstrim prints)" in done.stdout
    assert "loop-no-punch" in done.stdout
    assert "do: keep " in done.stdout


def test_dev_option_selects_the_devices_mount(disk: ScratchDisk) -> None:
    with mount_filesystem(disk.node, "ext4") as point:
        done = run_audit("-q", "--dev", disk.node)
        assert done.stdout.startswith(f"{point}: ")
        assert len(done.stdout.splitlines()) <= 2


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        ((), 2, "name mount points"),
        (("--all", "--dev", "loop0"), 2, "name mount points"),
        (("/nonexistent",), 2, "No such file"),
        (("/usr/bin",), 3, "belongs to the mount at"),
        (("-m", "many", "/proc"), 2, "not a valid size"),
        (("--dev", "nosuchdisk"), 2, "Block devices here"),
    ],
)
def test_invalid_arguments_are_refused(arguments: tuple[str, ...], status: int, words: str) -> None:
    done = run_audit(*arguments)
    assert (done.returncode, done.stdout) == (status, "")
    assert words in done.stderr


def test_device_that_is_not_mounted_is_refused(disk: ScratchDisk) -> None:
    done = run_audit("--dev", disk.node)
    assert done.returncode == 2
    assert "mounted" in done.stderr


def test_read_only_and_layered_mounts_are_refused(disk: ScratchDisk, tmp_path: Path) -> None:
    with mount_filesystem(disk.node, "ext4") as point:
        trims.run("mount", "-o", "remount,ro", str(point))
        done = run_audit(str(point))
        assert (done.returncode, done.stdout) == (3, "")
        assert "read-only" in done.stderr
        trims.run("mount", "-o", "remount,rw", str(point))
        for name in ("lower", "upper", "work"):
            (point / name).mkdir()
        options = f"lowerdir={point}/lower,upperdir={point}/upper,workdir={point}/work"
        trims.run("mount", "-t", "overlay", "overlay", "-o", options, str(tmp_path))
        try:
            done = run_audit(str(tmp_path))
        finally:
            trims.run("umount", str(tmp_path))
        assert done.returncode == 3
        assert "below" in done.stderr


def test_filesystem_without_fitrim_is_reported_as_not_sent(tmp_path: Path) -> None:
    trims.run("mount", "-t", "tmpfs", "tmpfs", str(tmp_path))
    try:
        done = run_audit("--json", str(tmp_path))
    finally:
        trims.run("umount", str(tmp_path))
    assert done.returncode == 32
    [document] = parse_lines(done.stdout)
    assert document["verdict"] == "NOT SENT"
    assert [reason["code"] for reason in document["ledger"][0]["reasons"]] == ["no-fitrim"]


def test_unprivileged_user_may_not_trim() -> None:
    require_nobody()
    done = subprocess.run(
        [
            *("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"),
            *(sys.executable, "-m", "opwatch", "trim", "audit", "/proc"),
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
        env=os.environ | {"PYTHONPATH": os.getcwd()},
    )
    assert (done.returncode, done.stdout) == (4, "")
    assert "needs root" in done.stderr


def test_closed_pipe_causes_no_traceback(disk: ScratchDisk) -> None:
    with mount_filesystem(disk.node, "ext4") as point:
        shell = f"{sys.executable} -m opwatch trim audit {point} | true"
        done = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, check=False)
    assert done.stderr == ""


def test_concurrent_audits_of_two_disks_are_counted_separately() -> None:
    """Each audit runs on a separate disk of a different size."""
    for _ in range(ATTEMPTS):
        with (
            ScratchDisk(256 * MIB) as first,
            ScratchDisk(384 * MIB) as second,
            mount_filesystem(first.node, "ext4") as one,
            mount_filesystem(second.node, "xfs") as two,
        ):
            results: dict[Path, Audit] = {}

            def run(point: Path, into: dict[Path, Audit] = results) -> None:
                done = run_audit("--json", str(point))
                into[point] = json.loads(done.stdout)

            threads = [threading.Thread(target=run, args=(point,)) for point in (one, two)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            documents: list[Any] = [results[one], results[two]]
        if all(document["verdict"] == "ACCEPTED" for document in documents):
            break
    for document, size in zip(documents, (256, 384), strict=True):
        assert document["verdict"] == Verdict.ACCEPTED
        assert document["ledger"][0]["bytes_out"] == document["reached_bytes"] < size * MIB
        assert document["notes"] == []


def test_concurrent_audits_of_the_same_disk_are_serialized(disk: ScratchDisk) -> None:
    """Two partitions share the disk below them."""
    table = "label: gpt\nstart=2048,size=100MiB\nsize=100MiB\n"
    subprocess.run(["sfdisk", "-q", disk.node], input=table, text=True, check=True)
    if not os.path.exists(f"/sys/class/block/{disk.name}p2"):
        trims.run("partx", "--add", disk.node)
    for _ in range(ATTEMPTS):
        with (
            mount_filesystem(f"{disk.node}p1", "ext4") as one,
            mount_filesystem(f"{disk.node}p2", "ext4") as two,
        ):
            running = [
                subprocess.Popen(
                    [sys.executable, "-m", "opwatch", "trim", "audit", "--json", str(point)],
                    stdout=subprocess.PIPE,
                    text=True,
                )
                for point in (one, two)
            ]
            documents = [json.loads(process.communicate(timeout=60)[0]) for process in running]
        if all(document["verdict"] == "ACCEPTED" for document in documents):
            break
    for document in documents:
        assert document["verdict"] == "ACCEPTED"
        assert document["ledger"][0]["bytes_out"] == document["reached_bytes"] == document["claimed_bytes"]


def test_concurrent_discards_of_another_process_are_not_counted(disk: ScratchDisk) -> None:
    """Another process discards the second partition while the first is trimmed."""
    table = "label: gpt\nstart=2048,size=100MiB\nsize=100MiB\n"
    subprocess.run(["sfdisk", "-q", disk.node], input=table, text=True, check=True)
    if not os.path.exists(f"/sys/class/block/{disk.name}p2"):
        trims.run("partx", "--add", disk.node)
    program = (
        "import fcntl, struct, os\n"
        f"d = os.open('/dev/{disk.name}p2', os.O_RDWR)\n"
        "print('on', flush=True)\n"
        "while True: fcntl.ioctl(d, 0x1277, struct.pack('=QQ', 0, 1 << 20))\n"
    )
    for _, result in audit_until_complete(lambda: mount_filesystem(f"{disk.node}p1", "ext4")):
        first = result
    other = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert other.stdout
    other.stdout.readline()
    with mount_filesystem(f"{disk.node}p1", "ext4") as point:
        result = trims.audit_point(point)
    other.kill()
    other.wait()
    assert result.claimed_bytes == first.claimed_bytes
    assert result.rows[0].bytes_out == first.rows[0].bytes_out
    # Some foreign discards are adjacent to ours, and the kernel merges them into one request.
    assert result.reached_bytes <= first.reached_bytes
    assert any("python" in note and f"{disk.name}" in note for note in result.notes)
