"""Predictions of `opwatch trim check` for disks with real drivers, compared with the effects of fstrim."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.vm.guest.support import sysfs
from tests.vm.guest.support.scsidebug import load_scsi_debug
from tests.vm.guest.support.shell import run_command, write_attribute
from tests.vm.guest.support.trims import MIB, mount_with_files, run_check, run_fstrim

# Manual runs only: these tests would exceed CI's time limit.
TIERS = ()
DEVICES = (
    "virtio-blk",
    "virtio-blk-ignored",
    "virtio-blk-nodiscard",
    "virtio-scsi",
    "virtio-scsi-ignored",
    "ahci",
    "usb",
    "nvme",
)

# Serial number -> outlook and reason codes. All are QEMU disks: only the host knows the freed bytes.
DISKS = {
    "opw-virtio-blk": ("reaches", {"host-may-drop"}),
    "opw-virtio-ignored": ("reaches", {"host-may-drop"}),
    "opw-virtio-nodisc": ("nothing", {"virtual-no-discards"}),
    "opw-virtio-scsi": ("reaches", {"host-may-drop"}),
    "opw-scsi-ignored": ("reaches", {"host-may-drop"}),
    "opw-ahci": ("reaches", {"host-may-drop"}),
    "opw-usb": ("nothing", {"virtual-no-discards"}),
    "opw-nvme": ("reaches", {"host-may-drop", "nvme-granularity-hidden"}),
}


@pytest.mark.parametrize("serial", DISKS)
def test_predicted_bytes_equal_the_bytes_that_arrive(serial: str) -> None:
    disk = sysfs.disk(serial)
    outlook, codes = DISKS[serial]
    with mount_with_files("ext4", disk) as point:
        forecast = run_check(point)
        # The ends of extents are rounded off where the unit is larger than a block.
        wanted = "part" if forecast.rounded_bytes else outlook
        assert (forecast.outlook, forecast.reason_codes - {"device-rounds", "below-minimum"}) == (
            wanted,
            codes,
        )
        done = run_fstrim(point, disk)
        assert done.refused is (forecast.document["accepted"] is False)
        if outlook == "nothing":
            assert (forecast.status, forecast.expected_bytes, done.arrived) == (32, 0, (0,))
        else:
            assert (forecast.status, done.arrived) == (64 if wanted == "part" else 0, (forecast.sent_bytes,))
            assert done.claimed_bytes == forecast.sent_bytes


def test_drivers_report_their_facts() -> None:
    facts = {
        serial: run_check("--dev", disk).find_facts(disk) for serial in DISKS if (disk := sysfs.disk(serial))
    }
    assert facts["opw-virtio-blk"]["virtio_discard"] is True
    assert facts["opw-virtio-nodisc"]["virtio_discard"] is False
    assert facts["opw-virtio-scsi"]["provisioning_mode"] in ("unmap", "writesame_16")
    assert facts["opw-virtio-scsi"]["thin_provisioning"] is True
    assert facts["opw-usb"]["provisioning_mode"] == "full"
    assert facts["opw-usb"]["transport"] == "usb"
    assert facts["opw-ahci"]["ata_trim"] in ("unqueued", "queued")
    assert facts["opw-nvme"]["dataset_management"] is True
    assert facts["opw-nvme"]["deallocate_bytes"] == 4096


# --- scsi_debug, whose map shows the unmapped blocks


def test_fully_provisioned_scsi_disk_is_predicted_to_refuse() -> None:
    with load_scsi_debug(lbpu=0, lbpws=0, lbpws10=0) as scsi, mount_with_files("ext4", scsi.name) as point:
        forecast = run_check(point)
        assert (forecast.status, forecast.outlook, forecast.reason_codes) == (32, "nothing", {"scsi-full"})
        done = run_fstrim(point, scsi.name)
        assert (done.refused, done.arrived) == (True, (0,))


@pytest.mark.parametrize("mode", ["unmap", "writesame_16", "writesame_10"])
def test_each_scsi_unmap_command_is_predicted(mode: str) -> None:
    knows = {"unmap": "lbpu", "writesame_16": "lbpws", "writesame_10": "lbpws10"}
    parameters = {name: int(knows[mode] == name) for name in knows.values()}
    with load_scsi_debug(**parameters) as scsi, mount_with_files("ext4", scsi.name) as point:
        forecast = run_check(point)
        assert forecast.find_facts(scsi.name)["provisioning_mode"] == mode
        assert (forecast.status, forecast.outlook) == (0, "reaches")
        assert run_fstrim(point, scsi.name).arrived == (forecast.sent_bytes,)


def test_prediction_counts_whole_granules_only() -> None:
    """Granules of 1 MiB: the drive leaves the ends of each range allocated, and the prediction says so."""
    with load_scsi_debug(unmap_granularity=2048, lbpws=0) as scsi:
        scsi.write_start()
        with mount_with_files("ext4", scsi.name) as point:
            forecast = run_check(point)
            assert (forecast.status, forecast.outlook, "device-rounds" in forecast.reason_codes) == (
                64,
                "part",
                True,
            )
            assert forecast.document["dry_run"][0]["granule_bytes"] == MIB
            before = scsi.count_mapped_blocks()
            done = run_fstrim(point, scsi.name)
            assert done.arrived == (forecast.sent_bytes,)
            # The map counts granules.
            assert (before - scsi.count_mapped_blocks()) * MIB == forecast.expected_bytes


def test_misaligned_partition_loses_partial_granules() -> None:
    with load_scsi_debug(unmap_granularity=2048, lbpws=0) as scsi:
        run_command("sfdisk", "-q", f"/dev/{scsi.name}", stdin="label: dos\nstart=63, size=120000, type=83\n")
        sysfs.wait_for("the partition", lambda: (Path("/sys/class/block") / f"{scsi.name}1").exists())
        run_command("dd", "if=/dev/zero", f"of=/dev/{scsi.name}1", "bs=512", "oflag=direct", "count=120000")
        with mount_with_files("ext4", f"{scsi.name}1") as point:
            forecast = run_check(point)
            [run] = forecast.document["dry_run"]
            assert (run["granule_bytes"], run["rounded_bytes"] > 0) == (MIB, True)
            before = scsi.count_mapped_blocks()
            run_fstrim(point)
            assert (before - scsi.count_mapped_blocks()) * MIB == forecast.expected_bytes


def test_rejected_discard_disables_later_discards() -> None:
    """A forced command that the disk lacks: fstrim claims success, and the next check reports it."""
    # With a single block group the error would end the trim; with several, fstrim claims the others.
    with load_scsi_debug(lbpws=0, dev_size_mb=256) as scsi, mount_with_files("ext4", scsi.name) as point:
        [mode] = Path(f"/sys/block/{scsi.name}/device/scsi_disk").glob("*/provisioning_mode")
        write_attribute(mode, "writesame_16")
        assert run_check(point).outlook == "reaches"
        done = run_fstrim(point, scsi.name)
        assert not done.refused and done.claimed_bytes > 0
        forecast = run_check(point)
        assert (forecast.status, forecast.reason_codes) == (32, {"scsi-disabled"})
        assert forecast.find_facts(scsi.name)["provisioning_mode"] == "disabled"
