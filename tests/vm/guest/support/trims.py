"""Create and trim file systems in a guest, and compare with `opwatch trim check`."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opwatch.tools import cli
from tests.vm.guest.support import sysfs
from tests.vm.guest.support.shell import run_command
from tests.vm.requirements import need_module, need_tool

MIB = 1 << 20
_MKFS_COMMANDS = {
    "ext4": ("mkfs.ext4", "-q", "-F", "-b", "4096", "-E", "lazy_itable_init=0,nodiscard"),
    "xfs": ("mkfs.xfs", "-q", "-f", "-K"),
    "btrfs": ("mkfs.btrfs", "-q", "-f", "-K"),
    "f2fs": ("mkfs.f2fs", "-q", "-f", "-t", "0"),
}


@dataclass(frozen=True)
class CheckAnswer:
    """The document of a check, and its exit status."""

    status: int
    document: dict[str, Any]

    @property
    def outlook(self) -> str:
        return str(self.document["outlook"])

    @property
    def reason_codes(self) -> set[str]:
        return {reason["code"] for reason in self.document["reasons"]}

    @property
    def sent_bytes(self) -> int:
        return sum(run["sent_bytes"] for run in self.document["dry_run"])

    @property
    def expected_bytes(self) -> int:
        return int(self.document["expected_bytes"])

    @property
    def rounded_bytes(self) -> int:
        """Bytes at the ends of ranges that reach the device and stay allocated there."""
        return sum(run["rounded_bytes"] for run in self.document["dry_run"] or ())

    def find_facts(self, device: str) -> dict[str, Any]:
        """Return the facts of a layer."""
        [layer] = [part for part in self.document["layers"] if part["device"] == device]
        facts: dict[str, Any] = layer["facts"]
        return facts


def run_check(*arguments: str | Path) -> CheckAnswer:
    """Run `opwatch trim check` for one mount or device and return its answer."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        status = cli.main(["trim", "check", *map(str, arguments), "--json"])
    document = json.loads(out.getvalue())
    [result] = document["checks"]
    assert document["exit_status"] == status
    return CheckAnswer(status, result)


@dataclass(frozen=True)
class FstrimResult:
    """The result of fstrim, and the discarded bytes that arrived at each disk."""

    refused: bool
    claimed_bytes: int
    arrived: tuple[int, ...]


@contextlib.contextmanager
def mount_with_files(kind: str, device: str, *more: str, options: str = "") -> Iterator[Path]:
    """Yield a new file system on a device (for btrfs, several), with a few files, freshly mounted."""
    need_module(kind)
    need_tool(_MKFS_COMMANDS[kind][0])
    nodes = [f"/dev/{name}" for name in (device, *more)]
    run_command(*_MKFS_COMMANDS[kind], *nodes)
    point = Path("/tmp") / f"trim-{device}"
    point.mkdir(exist_ok=True)
    choice = ("-o", options) if options else ()
    # Mount twice: the first mount may write, and may hold ranges back from a trim.
    for index in range(2):
        run_command("mount", "-t", kind, *choice, nodes[0], str(point))
        if index == 0:
            for number in range(23):
                (point / f"f{number}").write_bytes(bytes(4096 * (1 + number * 7 % 31)))
            run_command("umount", str(point))
    try:
        assert point.is_mount()
        yield point
    finally:
        run_command("umount", str(point))


def run_fstrim(point: Path, *disks: str) -> FstrimResult:
    """Run fstrim on a mount point that the test created."""
    assert point.is_mount()
    before = [sysfs.read_stat(name).discard_bytes for name in disks]
    done = subprocess.run(["fstrim", "-v", str(point)], capture_output=True, text=True, check=False)
    claimed = int(done.stdout.split("(")[1].split()[0]) if done.returncode == 0 else 0
    run_command("sync")
    return FstrimResult(done.returncode != 0, claimed, tuple(_measure_settled_growth(before, disks)))


def _measure_settled_growth(before: list[int], disks: tuple[str, ...]) -> list[int]:
    """Return the growth of the discard counters once it has been constant for a second."""
    last_growth: list[int] = []
    same = 0
    while same < 10:
        now = [sysfs.read_stat(name).discard_bytes - was for name, was in zip(disks, before, strict=True)]
        same = same + 1 if now == last_growth else 0
        last_growth = now
        time.sleep(0.1)
    return last_growth
