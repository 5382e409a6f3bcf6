"""The log pages of a loaded drive against the core's own counts: exact up to each page's unit."""

from __future__ import annotations

import pytest

from opwatch.collectors.firmware.simulated import find_simulated
from opwatch.counters.decode import endurance, fdp, identify, ocp, smart_log
from opwatch.host.device import Devices
from opwatch.host.scratch import ScratchDisk
from tests.kernel.support.drives import MIB, Drive, create_drive, run, run_plain_fio
from tests.kernel.support.load import BLOCK, discards, reads, writes
from tests.requirements import require_drive


@pytest.fixture(autouse=True)
def _drive() -> None:
    require_drive()


def count_units(n_bytes: int, unit: int) -> int:
    return -(-n_bytes // unit)


def read_namespace(one: Drive) -> identify.Namespace:
    return identify.decode_namespace(one.pages.identify(identify.NAMESPACE, 1))


def test_log_pages_match_the_drives_counts() -> None:
    with create_drive() as one:
        load = ("--rw=randrw", "--rwmixread=10", "--bs=4k", "--iodepth=32", "--norandommap")
        assert run_plain_fio(one.device, *load, "--io_size=200m", "--size=64m").returncode == 0
        truth = one.read_truth()
        smart = smart_log.decode_smart_log(one.pages.get_log(smart_log.LID, smart_log.LENGTH))
        group = endurance.decode_endurance_group(one.pages.get_log(endurance.LID, endurance.LENGTH))
        placement = fdp.decode_fdp_statistics(one.pages.get_log(fdp.LID, fdp.LENGTH))
        cloud = ocp.decode_c0(one.pages.get_log(ocp.LID, ocp.LENGTH))
        assert isinstance(cloud, ocp.CloudLog)
        host, nand = truth["host_write_bytes"], truth["nand_write_bytes"]
        assert nand > 1.5 * host > 150 * MIB
        assert smart.data_units_written == count_units(host, 512_000)
        assert smart.data_units_read == count_units(truth["host_read_bytes"], 512_000)
        assert (smart.write_commands, smart.read_commands) == (truth["host_writes"], truth["host_reads"])
        assert group.data_units_written == count_units(host, 10**9)
        assert group.media_units_written == count_units(nand, 10**9)
        assert (placement.host_bytes_written, placement.media_bytes_written) == (host, nand)
        assert placement.media_bytes_erased == truth["erases"] * truth["superblock_bytes"]
        assert (cloud.media_written, cloud.media_read) == (nand, truth["nand_read_bytes"])
        assert (cloud.erase_min, cloud.erase_max) == (truth["erase_min"], truth["erase_max"])
        # The pages' write amplification, within their units.
        assert cloud.media_written
        waf = cloud.media_written / (count_units(host, 512_000) * 512_000)
        assert waf == pytest.approx(nand / host, rel=512_000 / host)


def test_drive_counts_the_requests_that_the_kernel_sends() -> None:
    with create_drive() as one:
        writes(one.device, 23)
        reads(one.device, 11)
        discards(one.device, 7)
        truth = one.read_truth()
        assert (truth["host_writes"], truth["host_write_bytes"]) == (23, 23 * BLOCK)
        assert truth["host_reads"] >= 11
        assert (truth["trims"], truth["trim_bytes"]) == (7, 7 << 19)
        # 23 blocks were written within the first half MiB, which the first trim freed.
        assert truth["valid_bytes"] == 0


def test_namespace_utilization_follows_writes_and_trims() -> None:
    with create_drive() as one:
        before = read_namespace(one)
        assert (before.size_lbas, before.used_lbas, before.lba_bytes) == (64 * MIB // 512, 0, 512)
        writes(one.device, 5, MIB, step=MIB)
        assert read_namespace(one).used_lbas == 5 * MIB // 512
        discards(one.device, 3, MIB)
        assert read_namespace(one).used_lbas == 2 * MIB // 512


def test_identify_controller_reports_serial_model_and_capacity() -> None:
    with create_drive() as one:
        controller = one.pages.identify(identify.CONTROLLER, 0)
        assert controller[4:24].decode().strip() == one.read_truth()["serial"]
        assert controller[24:64].decode().strip() == "opwatch simulated SSD"
        assert int.from_bytes(controller[280:296], "little") == 64 * MIB


def test_simulated_drive_is_found_by_its_partition_and_not_by_another_disk() -> None:
    with create_drive() as one, ScratchDisk(16 * MIB) as other:
        run("sh", "-c", f"echo 2048,40960 | sfdisk -q {one.device}")
        run("partx", "--update", one.device)
        part = Devices().resolve(f"{one.device}p1")
        simulated = find_simulated(part)
        assert simulated
        assert simulated.folder == one.pages.folder
        assert find_simulated(Devices().resolve(other.node)) is None
