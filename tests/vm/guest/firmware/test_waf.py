"""`opwatch waf` on a driver: QEMU's counters, with other writers and with a busy admin queue."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import pytest

from tests.requirements import require_nobody
from tests.vm.guest.support import sysfs
from tests.vm.guest.support.copies import run_opwatch
from tests.vm.guest.support.shell import run_command
from tests.vm.guest.support.workload import Fio
from tests.vm.requirements import need_tool

DEVICES = ("nvme-ocp", "nvme-ocp-two-ns")
TIMEOUT_S = 900
BLOCK = 4096
SMART_UNIT = 512_000
PASSTHROUGH_BYTES = 3 * 8192


@dataclass(frozen=True)
class Result:
    """The printed document, and the growth of the drive's placement statistics during the run."""

    printed: dict[str, Any]
    host: int
    media: int


def run_waf(disk: str, script: str, *options: str) -> dict[str, Any]:
    words = ("waf", "--dev", disk, "--json", "--poll", "0.2", *options)
    done = run_opwatch(*words, "--", "sh", "-c", script)
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def read_statistics(disk: str) -> tuple[int, int]:
    placement = json.loads(
        run_command(need_tool("nvme"), "fdp", "stats", f"/dev/{disk}", "-e", "1", "-o", "json")
    )
    return int(placement["hbmw"]), int(placement["mbmw"])


def measure_placement(disk: str, script: str, *options: str) -> Result:
    before = read_statistics(disk)
    outcome = run_waf(disk, script, *options)
    after = read_statistics(disk)
    return Result(outcome, after[0] - before[0], after[1] - before[1])


def build_write_script(disk: str, count: int) -> str:
    need_tool("fio")
    return " ".join(Fio("randwrite", count).build_argv(f"/dev/{disk}")) + " > /dev/null"


def build_discard_script(disk: str) -> str:
    return f"blkdiscard -f -o 1048576 -l 8388608 /dev/{disk}"


def test_waf_equals_the_fdp_statistics_around_writes_and_a_discard() -> None:
    disk = sysfs.disk("opw-nvme-ocp")
    result = measure_placement(
        disk,
        f"{build_write_script(disk, 4_001)}; {build_discard_script(disk)}; {build_write_script(disk, 503)}",
    )
    outcome = result.printed
    assert result.host == 4_504 * BLOCK
    assert (outcome["host_bytes"], outcome["nand_bytes"]) == (result.host, result.media)
    assert (outcome["waf"], outcome["waf_error"], outcome["whole"]) == (result.media / result.host, 0, True)
    assert outcome["source"].startswith("log 22h")
    assert outcome["host"]["agrees"] is True
    assert outcome["failures"] == []


@pytest.mark.manual
def test_busy_admin_queue_does_not_change_the_result() -> None:
    disk = sysfs.disk("opw-nvme-ocp")
    busy = f"while :; do {need_tool('nvme')} id-ctrl /dev/{disk} > /dev/null; done"
    others = [subprocess.Popen(["sh", "-c", busy]) for _ in range(4)]
    try:
        result = measure_placement(disk, build_write_script(disk, 2_003))
    finally:
        for other in others:
            other.terminate()
            other.wait()
    assert result.host == 2_003 * BLOCK
    assert (result.printed["host_bytes"], result.printed["nand_bytes"]) == (result.host, result.media)
    assert result.printed["failures"] == []


def test_waf_counts_all_namespaces_of_the_drive() -> None:
    first, second = sysfs.find_disks("opw-nvme-ocp-two-ns")
    script = (
        f"{build_write_script(first, 4_001)}; {build_write_script(second, 1_009)}; "
        f"{build_write_script(first, 503)}"
    )
    # QEMU computes the pages at each reading. With --refresh, opwatch reads long enough before and after the
    # work to rely on that, however long a poll takes, so the NAND bytes are exact. The error of the host
    # bytes is below one unit of the SMART page, whose count must agree with the kernel's.
    outcome = run_waf(first, script, "--settle", "60", "--refresh", "2")
    total = (4_001 + 1_009 + 503) * BLOCK
    assert outcome["host_bytes_by_device"] == {first: 4_504 * BLOCK, second: 1_009 * BLOCK}
    assert abs(outcome["host_bytes"] - total) <= outcome["host_error_bytes"] < SMART_UNIT
    assert (outcome["nand_bytes"], outcome["nand_error_bytes"]) == (total, 0)
    assert outcome["source"].startswith("log C0h")
    assert abs(outcome["waf"] - 1) <= outcome["waf_error"] <= 2 * SMART_UNIT / total
    assert outcome["host"]["agrees"] is not False


@pytest.mark.manual
def test_unprivileged_user_gets_the_kernels_host_bytes() -> None:
    require_nobody("vm")
    disk = sysfs.disk("opw-nvme-ocp")
    argv = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", sys.executable, "-m", "opwatch"]
    argv += ["waf", "--dev", disk, "--json", "--poll", "0.2", "--for", "1"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 4, done.stderr
    assert "CAP_SYS_ADMIN" in done.stderr
    outcome = json.loads(done.stdout)
    assert (outcome["waf"], outcome["nand_bytes"], outcome["host_bytes"]) == (None, None, 0)


def build_passthrough_script(disk: str) -> str:
    """Return three passthrough writes, which the kernel does not count."""
    one = f"{need_tool('nvme')} write /dev/{disk} -s 0 -c 15 -z 8192 -d /dev/zero > /dev/null"
    return f"{one}; {one}; {one}"


@pytest.mark.parametrize(
    "pause",
    [
        pytest.param("", marks=pytest.mark.manual, id="in one go"),
        pytest.param("sleep 1; ", id="looked at meanwhile"),
    ],
)
def test_passthrough_bytes_are_counted_by_the_drive_and_explained(pause: str) -> None:
    """On a busy machine, opwatch polls the drive among the writes and before the passthrough commands; the
    pause forces this on any machine. Earlier page contents are then certain only because their age is known.
    tests/unit/waf/test_measure.py covers the case without an age."""
    disk = sysfs.disk("opw-nvme-ocp")
    script = (
        f"{build_write_script(disk, 141)}; {pause}{build_write_script(disk, 868)}; "
        f"{pause}{build_passthrough_script(disk)}"
    )
    result = measure_placement(disk, script, "--refresh", "0.5", "--settle", "30")
    outcome = result.printed
    assert result.host == 1_009 * BLOCK + PASSTHROUGH_BYTES
    assert (outcome["host_bytes"], outcome["nand_bytes"]) == (result.host, result.media)
    assert outcome["host"]["agrees"] is False
    assert outcome["host"]["firmware_bytes"] - outcome["host"]["kernel_bytes"] == PASSTHROUGH_BYTES
    assert "passthrough" in outcome["host"]["reason"]
