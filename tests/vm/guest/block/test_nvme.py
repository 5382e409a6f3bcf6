"""NVMe with OCP log pages and FDP, with 4 KiB blocks, and with two namespaces."""

from __future__ import annotations

import json
import subprocess

from tests.vm.guest.support import sysfs
from tests.vm.guest.support.shell import run_command
from tests.vm.guest.support.workload import Fio, discard_range, run_fio
from tests.vm.requirements import need_tool

DEVICES = ("nvme-ocp", "nvme-4k", "nvme-two-ns")
# Tests of a recipe; the tests that use it fail with it.
TIERS = ()

# OCP Datacenter NVMe SSD specification: the last bytes of SMART / Health Information Extended (C0h).
OCP_PAGE_BYTES = 512
OCP_GUID = bytes.fromhex("c5af1028eabff2a49c4f6f7cc914d5af")


def _find_controller(disk: str) -> str:
    """Return the character device of the controller behind a disk."""
    return f"/dev/{disk.split('n1')[0].split('n2')[0]}"


def _read_log_page(disk: str, page: int, size: int, *extra: str) -> bytes:
    argv = [need_tool("nvme"), "get-log", _find_controller(disk), f"--log-id={page:#x}"]
    argv += [f"--log-len={size}", "--raw-binary", *extra]
    return subprocess.run(argv, check=True, capture_output=True).stdout


def test_ocp_page_carries_its_guid() -> None:
    page = _read_log_page(sysfs.disk("opw-nvme-ocp"), 0xC0, OCP_PAGE_BYTES)
    assert len(page) == OCP_PAGE_BYTES
    assert page[-16:] == OCP_GUID


def test_ocp_page_counts_the_written_bytes() -> None:
    disk = sysfs.disk("opw-nvme-ocp")
    before = int.from_bytes(_read_log_page(disk, 0xC0, OCP_PAGE_BYTES)[:16], "little")
    counts = run_fio(disk, Fio("write", 10_007, block_bytes=4096))
    after = int.from_bytes(_read_log_page(disk, 0xC0, OCP_PAGE_BYTES)[:16], "little")
    assert after - before == counts.write_bytes


def test_fdp_statistics_are_readable() -> None:
    # Log page 22h, FDP statistics, for endurance group 1 (log specific identifier).
    page = _read_log_page(sysfs.disk("opw-nvme-ocp"), 0x22, 64, "--lsi=1")
    host_bytes = int.from_bytes(page[0:16], "little")
    media_bytes = int.from_bytes(page[16:32], "little")
    assert media_bytes >= host_bytes > 0


def test_logical_block_size_is_4096() -> None:
    disk = sysfs.disk("opw-nvme-4k")
    assert sysfs.read_number(disk, "queue/logical_block_size") == 4096


def test_controller_has_two_namespaces() -> None:
    # Newer kernels scan namespaces concurrently, so either may get the first name.
    disks = sysfs.find_disks("opw-nvme-two-ns")
    sizes = {sysfs.read_number(disk, "nsid"): sysfs.read_number(disk, "size") * 512 for disk in disks}
    assert (sizes, len(disks)) == ({1: 256 << 20, 2: 128 << 20}, 2)


def test_discard_of_many_ranges_is_counted() -> None:
    disk = sysfs.disk("opw-nvme-ocp")
    assert sysfs.read_number(disk, "queue/discard_max_bytes") > 1 << 30
    (path,) = sysfs.list_paths(disk)
    before = sysfs.read_stat(path)
    discard_range(disk, 0, 16 << 20)
    assert (sysfs.read_stat(path) - before).discard_bytes == 16 << 20


def test_nvme_cli_lists_every_drive() -> None:
    listing = json.loads(run_command(need_tool("nvme"), "list", "--output-format=json"))
    serials = {entry["SerialNumber"] for entry in listing["Devices"]}
    assert serials == {"opw-nvme-ocp", "opw-nvme-4k", "opw-nvme-two-ns"}


def test_path_device_has_two_hardware_queues() -> None:
    # A multipath node has no queues; the path device has them.
    (path,) = sysfs.list_paths(sysfs.disk("opw-nvme-4k"))
    assert sysfs.count_hardware_queues(path) == 2
