"""`opwatch counters` on a driver: the same bytes as nvme-cli, and only commands that read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from opwatch import _native
from opwatch.collectors.firmware.transports import KernelTransport
from opwatch.errors import OpwatchError
from tests.requirements import require_nobody
from tests.vm.guest.support import sysfs
from tests.vm.guest.support.copies import run_opwatch
from tests.vm.guest.support.shell import run_command
from tests.vm.guest.support.workload import Fio, run_fio
from tests.vm.requirements import need_tool

DEVICES = ("nvme-ocp",)
PAGES = {0x02: 512, 0x09: 512, 0x22: 64, 0xC0: 512}


@pytest.fixture(scope="module")
def disk() -> str:
    name = sysfs.disk("opw-nvme-ocp")
    run_fio(name, Fio("write", 1009))
    return name


def run_nvme(*argv: str) -> Any:  # noqa: ANN401
    return json.loads(run_command(need_tool("nvme"), *argv, "-o", "json"))


def read_counters(disk: str) -> dict[str, Any]:
    done = run_opwatch("counters", "--dev", disk, "--json")
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def test_pages_equal_those_of_nvme_cli(disk: str) -> None:
    transport = KernelTransport(Path("/dev") / disk)
    for lid, length in PAGES.items():
        argv = [
            need_tool("nvme"),
            "get-log",
            f"/dev/{disk}",
            f"--log-id={lid:#x}",
            f"--log-len={length}",
            "-b",
        ]
        done = subprocess.run([*argv, "--lsi=1"], capture_output=True, check=True)
        assert transport.get_log(lid, length, lsi=1) == done.stdout
    for cns, command in ((0, "id-ns"), (1, "id-ctrl")):
        done = subprocess.run(
            [need_tool("nvme"), command, f"/dev/{disk}", "-b"], capture_output=True, check=True
        )
        assert transport.identify(cns, 1 if cns == 0 else 0) == done.stdout
    transport.close()


def test_counters_equal_those_of_nvme_cli(disk: str) -> None:
    document = read_counters(disk)
    smart = run_nvme("smart-log", f"/dev/{disk}")
    assert document["host_written"]["bytes"] == int(smart["data_units_written"]) * 512_000
    assert document["host_read"]["bytes"] == int(smart["data_units_read"]) * 512_000
    assert document["percentage_used"]["value"] == int(smart["percent_used"])
    ocp = run_nvme("ocp", "smart-add-log", f"/dev/{disk}")["Physical media units written"]
    assert document["nand_written"]["bytes"] == (int(ocp["hi"]) << 64) + int(ocp["lo"]) == 1009 * 4096
    fdp = run_nvme("fdp", "stats", f"/dev/{disk}", "-e", "1")
    others = {
        counter["source"].split()[2]: counter["bytes"]
        for name in document["others"]
        for counter in document["others"][name]
    }
    assert (others["HBMW"], others["MBMW"]) == (int(fdp["hbmw"]), int(fdp["mbmw"]))
    assert document["kernel_written"]["bytes"] >= 1009 * 4096
    assert document["failures"] == []


def test_refused_command_reports_the_nvme_status(disk: str) -> None:
    transport = KernelTransport(Path("/dev") / disk)
    with pytest.raises(OpwatchError, match="refused it with status"):
        transport.get_log(0xE5, 512)
    transport.close()


def test_page_outside_the_allow_list_never_reaches_the_drive(disk: str) -> None:
    fd = os.open(f"/dev/{disk}", os.O_RDONLY)
    for lid in (0x01, 0x03, 0x07, 0x0D, 0x70):
        with pytest.raises(PermissionError):
            _native.nvme_get_log(fd, lid, 512)
    os.close(fd)


@pytest.mark.manual
def test_unprivileged_user_gets_sysfs_counters_and_a_reason(disk: str) -> None:
    require_nobody("vm")
    argv = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", sys.executable, "-m", "opwatch"]
    done = subprocess.run(
        [*argv, "counters", "--dev", disk, "--json"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 4, done.stderr
    document = json.loads(done.stdout)
    assert document["host_written"]["bytes"] is None and document["host_written"]["reason"]
    assert document["kernel_written"]["bytes"] >= 1009 * 4096
    assert document["device"]["model"] == "QEMU NVMe Ctrl"
