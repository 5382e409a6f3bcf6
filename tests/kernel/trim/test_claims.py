"""Claims of FITRIM calls from any process, and other processes that trim during our audit."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from opwatch.collectors.audit.discards import DiscardTracer
from opwatch.host.device import Devices
from opwatch.host.scratch import ScratchDisk
from opwatch.host.usage import Mount
from opwatch.tools.acting.trim import fitrim_process
from opwatch.trim.audit.audit import Asked, Audit
from opwatch.trim.audit.fitrim import FitrimAnswer
from opwatch.trim.audit.flow import Amount, Stage
from opwatch.trim.audit.programs import ProgramOptions
from tests.kernel.support import trims
from tests.kernel.support.trims import ATTEMPTS, MIB, mount_filesystem
from tests.kernel.support.watching import parse_lines, run_opwatch

SIZE = 384 * MIB
CALL = """
import fcntl, os, sys
point = os.open(sys.argv[1], os.O_RDONLY)
for _ in range(int(sys.argv[2])):
    fcntl.ioctl(point, 0xC0185879, bytearray(b"\\0" * 8 + b"\\xff" * 8 + b"\\0" * 8))
"""


def call_fitrim(opener: str, times: int) -> None:
    """Call FITRIM this many times from a separate process."""
    subprocess.run([sys.executable, "-c", CALL, opener, str(times)], check=True, timeout=60)


def list_claims(tracer: DiscardTracer) -> list[tuple[int, Amount]]:
    return [(flow.status, flow.amount) for flow in tracer.read_trace().select(Stage.FITRIM)]


@pytest.mark.parametrize("functions", [True, False])
def test_every_call_is_counted_once(functions: bool) -> None:
    """A prime number of calls: the first claims all free space, and ext4 claims nothing after that."""
    with ScratchDisk(SIZE) as disk, mount_filesystem(disk.node, "ext4") as point:
        device = Devices().resolve(disk.node)
        for _ in range(ATTEMPTS):
            with DiscardTracer(
                [device], following=ProgramOptions(functions=functions, claims=True)
            ) as tracer:
                assert tracer.read_trace().claims_seen
                call_fitrim(str(point), 7)
                claims = list_claims(tracer)
            if claims and sum(amount.count for _, amount in claims) == 7:
                break
    [(status, amount)] = claims
    assert (status, amount.count) == (0, 7)
    assert amount.bytes == 0 or amount.bytes > SIZE // 2


def test_fitrim_programs_are_attached_only_on_request() -> None:
    with DiscardTracer([]) as tracer, ScratchDisk(SIZE) as disk, mount_filesystem(disk.node, "ext4") as point:
        call_fitrim(str(point), 1)
        assert not tracer.read_trace().claims_seen
        assert list_claims(tracer) == []
        assert not [name for name, *_ in tracer.list_programs() if "fitrim" in name]


def test_driver_command_programs_can_be_left_out() -> None:
    """A live view leaves them out, because their events come with every read and write."""
    with DiscardTracer([], following=ProgramOptions(commands=False)) as tracer:
        assert not {"discard_nvme", "discard_scsi", "discard_ata"} & tracer.list_missing()
        names = {name for name, *_ in tracer.list_programs()}
    assert "discard_done" in names
    assert not [name for name in names if "nvme" in name or "scsi" in name or "ata" in name]


def run_watch(*arguments: str) -> dict[str, Any]:
    done = run_opwatch("trim", "audit", "--json", "--watch", *arguments)
    assert done.returncode in (0, 6, 32, 64), done.stderr
    [document] = parse_lines(done.stdout)
    return document


def test_watch_shows_the_claim_returned_to_fstrim() -> None:
    """xfs: fstrim reports the filesystem's size, although less than that reaches the device."""
    with ScratchDisk(SIZE) as disk:
        for _ in range(ATTEMPTS):
            with mount_filesystem(disk.node, "xfs") as point:
                document = run_watch(str(point), "--", "fstrim", str(point))
            if document["claims"] and document["verdict"] == "ACCEPTED":
                break
    [claim] = document["claims"]
    assert (claim["comm"], claim["calls"], claim["error"]) == ("fstrim", 1, None)
    assert claim["claimed_bytes"] == document["claimed_bytes"] == SIZE
    assert SIZE // 4 < document["reached_bytes"] < SIZE
    assert "6.11" in document["claim"]
    assert "fstrim" in document["claim"]


def test_watch_of_a_device_shows_claims_of_its_filesystem() -> None:
    with ScratchDisk(SIZE) as disk:
        for _ in range(ATTEMPTS):
            with mount_filesystem(disk.node, "ext4") as point:
                document = run_watch("--dev", disk.node, "--", "fstrim", str(point))
            if document["claims"] and document["verdict"] == "ACCEPTED":
                break
    assert document["claimed_bytes"] == document["reached_bytes"] > SIZE // 2


def test_failed_fitrim_call_is_reported_with_its_errno() -> None:
    """The device accepts no discards: the call fails, and so does fstrim."""
    with trims.create_loop_without_discards() as node, mount_filesystem(node, "ext4") as point:
        for _ in range(ATTEMPTS):
            document = run_watch(str(point), "--", "sh", "-c", f"fstrim {point} 2>/dev/null; true")
            if document["claims"]:
                break
    [claim] = document["claims"]
    assert (claim["claimed_bytes"], claim["error"]) == (None, "ENOTSUP")
    assert document["claimed_bytes"] is None
    assert document["reached_bytes"] == 0
    assert re.search(r"\bENOTSUP\b.*\bfstrim\b", document["claim"])


@contextlib.contextmanager
def start_watch(point: Path, seconds: float) -> Iterator[subprocess.Popen[str]]:
    argv = [sys.executable, "-m", "opwatch", "trim", "audit", "--json", "--watch", str(point)]
    argv += ["--for", str(seconds)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as command:
        assert command.stderr
        assert "following" in command.stderr.readline()
        yield command


def test_concurrent_watches_see_only_their_own_claims() -> None:
    """Each watch only sees the claim on its own filesystem."""
    with ScratchDisk(SIZE) as a, ScratchDisk(2 * SIZE) as b:
        for _ in range(ATTEMPTS):
            with (
                mount_filesystem(a.node, "xfs") as one,
                mount_filesystem(b.node, "xfs") as two,
                start_watch(one, 3) as first,
                start_watch(two, 3) as second,
            ):
                trims.run("fstrim", str(one))
                trims.run("fstrim", str(two))
                both = [parse_lines(process.communicate(timeout=60)[0])[0] for process in (first, second)]
            if all(document["claims"] for document in both):
                break
    assert [[claim["claimed_bytes"] for claim in document["claims"]] for document in both] == [
        [SIZE],
        [2 * SIZE],
    ]
    assert [document["claimed_bytes"] for document in both] == [SIZE, 2 * SIZE]


def test_discards_of_another_process_are_named_but_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """blkdiscard frees space outside the filesystem in the middle of our audit."""
    ours = fitrim_process.trim_in_child
    other = 3 * MIB

    def trim_together(mount: Mount, asked: Asked, started: Callable[[int], None]) -> FitrimAnswer:
        node = mount.source
        at = str(SIZE)  # after the end of the filesystem
        trims.run("blkdiscard", "-f", "-o", at, "-l", str(other), node)
        time.sleep(0.05)
        return ours(mount, asked, started)

    monkeypatch.setattr(fitrim_process, "trim_in_child", trim_together)

    def audit_disk() -> Audit:
        with ScratchDisk(2 * SIZE) as disk:
            trims.run(*trims.MKFS["ext4"], disk.node, f"{SIZE // 1024}k")
            with mount_filesystem(disk.node, "ext4", make=False) as point:
                return trims.audit_point(point)

    for _ in range(ATTEMPTS):
        result = audit_disk()
        notes = [note for note in result.notes if "blkdiscard" in note]
        if notes and not trims.has_host_losses(result):
            break
    [note] = notes
    assert f" {other} B " in note
    assert result.claimed_bytes == result.reached_bytes
    assert 0 < result.reached_bytes < SIZE
    assert result.claims == ()
