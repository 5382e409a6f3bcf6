from __future__ import annotations

import argparse
import io
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from opwatch.errors import Unsupported, UsageError
from opwatch.host.details import (
    Details,
    Limits,
    detect_transport,
    parse_schedulers,
    parse_unit_serial,
    read_details,
    read_limits,
)
from opwatch.host.device import BlockDevice, Devices
from opwatch.host.usage import Usage
from opwatch.sinks.devices import HEADER, format_device
from opwatch.sinks.terminal import make_encodable
from opwatch.tools.commands import devices as command
from tests.unit.support.sysfs import SSD_QUEUE, Tree, write_attributes


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def run_devices(
    tree: Tree, usage: Usage, *arguments: str, stream: type[io.StringIO] = io.StringIO
) -> tuple[int, str]:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    out = stream()
    status = command.show_devices(tree.devices, usage, parser.parse_args(arguments), out)
    return status, out.getvalue()


def find_row(text: str, name: str) -> str:
    """Return the line of a device in a table."""
    rows = [line for line in text.splitlines() if line.strip("│├└─ ").split(" ")[0] == name]
    assert rows, f"no line for {name}"
    return rows[0]


def map_by_name(tree: Tree, usage: Usage, *arguments: str) -> dict[str, dict[str, Any]]:
    status, text = run_devices(tree, usage, "--json", *arguments)
    document = json.loads(text)
    assert (status, document["schema"]) == (0, "opwatch/1")
    devices = {device["name"]: device for device in document["devices"]}
    assert len(devices) == len(document["devices"])
    return devices


# --- reading


def test_limits_are_in_bytes(tree: Tree) -> None:
    limits = read_limits(tree["sda"])
    assert limits.max_io_bytes == 1280 * 1024
    assert limits.max_hw_io_bytes == 32767 * 1024
    assert (limits.logical_block_bytes, limits.physical_block_bytes) == (512, 4096)
    assert (limits.discard_granularity_bytes, limits.discard_max_bytes) == (512, 2147450880)
    assert limits.write_zeroes_max_bytes == 0
    # Missing in this tree: unknown, which differs from 0.
    assert (limits.max_segments, limits.optimal_io_bytes, limits.chunk_bytes) == (None, None, None)


def test_a_partition_has_the_limits_of_its_disk_and_its_own_alignment(tree: Tree) -> None:
    write_attributes(tree["sda"].sysfs, {"discard_alignment": "0"})
    write_attributes(tree["sda3"].sysfs, {"discard_alignment": "256"})
    limits = read_limits(tree["sda3"])
    assert limits.discard_max_bytes == 2147450880
    assert limits.discard_alignment_bytes == 256
    assert read_limits(tree["sda"]).discard_alignment_bytes == 0


@pytest.mark.parametrize("garbage", ["", "many", "-1", "0x200", "512 512", "9" * 20 + "k"])
def test_invalid_limit_is_unknown_and_never_0(tree: Tree, usage: Usage, garbage: str) -> None:
    folder = tree["sda"].sysfs
    write_attributes(
        folder / "queue", {name: garbage for name in SSD_QUEUE if name not in ("scheduler", "zoned")}
    )
    write_attributes(folder, {"mq/0/nr_tags": garbage, "ro": garbage, "removable": garbage})
    details = read_details(tree.devices, tree["sda"], usage)
    assert all(getattr(details.limits, field) is None for field in Limits.__match_args__)
    queue = details.queue
    assert (queue.tags_per_queue, queue.nr_requests, queue.wbt_lat_us) == (None, None, None)
    assert (queue.rotational, queue.fua, queue.iostats, queue.io_poll) == (None, None, None, None)
    assert (details.read_only, details.removable) == (None, None)
    assert find_row(run_devices(tree, usage)[1], "sda").split()[4:7] == ["-", "-", "1x-"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[none] mq-deadline kyber", ("none", ("none", "mq-deadline", "kyber"))),
        ("none [mq-deadline]", ("mq-deadline", ("none", "mq-deadline"))),
        ("none", ("none", ("none",))),
        ("", (None, ())),
        (None, (None, ())),
    ],
)
def test_scheduler_in_brackets_is_active(text: str | None, expected: tuple[str | None, Any]) -> None:
    assert parse_schedulers(text) == expected


@pytest.mark.parametrize(
    ("page", "serial"),
    [
        (b"\0\x80\0\x05 A123", "A123"),
        (b"\0\x80\0\x03ABCDEF", "ABC"),
        (b"\0\x80\0\x20SHORT", "SHORT"),
        (b"\0\x80\0\x04    ", None),
        (b"\0\x83\0\x04ABCD", None),
        (b"\0\x80\0", None),
        (b"", None),
    ],
)
def test_the_serial_number_of_a_vpd_page(page: bytes, serial: str | None) -> None:
    assert parse_unit_serial(page) == serial


PCI = "/sys/devices/pci0000:00/0000:00:1f.2/"


@pytest.mark.parametrize(
    ("folder", "kind", "more", "expected"),
    [
        (PCI + "ata1/host0/target0:0:0/0:0:0:0/block/sda", "disk", {"vendor": "ATA"}, "sata"),
        (PCI + "usb2/2-1/2-1:1.0/host6/target6:0:0/6:0:0:0/block/sdb", "disk", {}, "usb"),
        (PCI + "host1/port-1:0/end_device-1:0/target1:0:0/1:0:0:0/block/sdc", "disk", {}, "sas"),
        (PCI + "host1/port-1:0/end_device-1:0/t/1:0:0:0/block/sdc", "disk", {"vendor": "ATA"}, "sata"),
        (PCI + "virtio3/block/vda", "disk", {}, "virtio"),
        (PCI + "virtio3/host2/target2:0:0/2:0:0:1/block/sda", "disk", {}, "virtio"),
        ("/sys/devices/platform/host3/session1/target3:0:0/3:0:0:0/block/sdd", "disk", {}, "iscsi"),
        (PCI + "mmc_host/mmc0/mmc0:0001/block/mmcblk0", "disk", {}, "mmc"),
        (PCI + "nvme/nvme0/nvme0n1", "disk", {"nvme": "pcie"}, "nvme"),
        ("/sys/devices/virtual/nvme-fabrics/ctl/nvme2/nvme2n1", "disk", {"nvme": "tcp"}, "nvme-tcp"),
        ("/sys/devices/virtual/block/loop0", "loop", {}, "loop"),
        ("/sys/devices/virtual/block/zram0", "zram", {}, "memory"),
        ("/sys/devices/virtual/block/dm-0", "dm-crypt", {}, None),
        (PCI + "block/odd", "disk", {}, None),
    ],
)
def test_transport_is_detected(folder: str, kind: str, more: dict[str, str], expected: str | None) -> None:
    assert detect_transport(Path(folder), kind, **more) == expected


def test_sata_drive_and_partition_have_the_same_identity(tree: Tree, usage: Usage) -> None:
    for name in ("sda", "sda1"):
        identity = read_details(tree.devices, tree[name], usage).identity
        assert (identity.model, identity.vendor, identity.firmware) == ("SAMSUNG MZ7LH960", "ATA", "904Q")
        assert identity.serial == "S3Z8NB0K5077a"
        assert identity.wwid == "naa.5002538e4034d3ab"
        assert (identity.transport, identity.drivers) == ("sata", ("sd", "ahci"))


def test_a_multipath_head_is_known_by_its_subsystem_and_its_paths(tree: Tree, usage: Usage) -> None:
    details = read_details(tree.devices, tree["nvme1n1"], usage)
    assert details.identity.model == "ACME 7400 1920GB"
    assert (details.identity.transport, details.identity.drivers) == ("nvme", ("nvme",))
    assert details.paths == ("nvme1c1n1", "nvme1c2n1")
    assert details.queue.hardware_queues == 0
    assert details.tracing.level == "requests"
    assert details.tracing.leaves == (("nvme1c1n1", "requests"), ("nvme1c2n1", "requests"))


def test_bus_number_is_not_a_vendor(tree: Tree, usage: Usage) -> None:
    write_attributes(tree["cciss/c0d0"].sysfs / "device", {"vendor": "0x1af4"})
    assert read_details(tree.devices, tree["cciss/c0d0"], usage).identity.vendor is None


def test_device_on_request_and_bio_disks_is_traced_as_mixed(tree: Tree, usage: Usage) -> None:
    tree.add_disk("dm-1", "253:1", attributes={"dm/uuid": "LVM-abc"})
    tree.stack_device("dm-1", "zram0", "sda1")
    details = read_details(tree.devices, tree["dm-1"], usage)
    assert details.tracing.level == "mixed"
    [traced] = [line for line in format_device(details) if line.strip().startswith("traced as")]
    assert re.findall(r"(\w+) on (\w+)", traced) == [("requests", "sda1"), ("bios", "zram0")]


# --- output


def test_the_table_fits_80_columns_on_a_terminal(tree: Tree, usage: Usage) -> None:
    write_attributes(tree["nvme0n1"].sysfs / "device", {"model": "A MODEL NAME OF FORTY CHARACTERS AND MORE"})
    _, text = run_devices(tree, usage, "-a", stream=Terminal)
    assert max(map(len, text.splitlines())) == 80
    assert find_row(text, "nvme0n1").endswith("…")


def test_output_in_a_pipe_is_neither_cut_nor_coloured(tree: Tree, usage: Usage) -> None:
    model = "A MODEL NAME OF FORTY CHARACTERS AND MORE"
    write_attributes(tree["nvme0n1"].sysfs / "device", {"model": model})
    for arguments in ([], ["-v"], ["sda"]):
        assert "\033" not in run_devices(tree, usage, *arguments)[1]
    assert find_row(run_devices(tree, usage)[1], "nvme0n1").endswith(model)


def test_names_cannot_smuggle_control_characters(tree: Tree, usage: Usage) -> None:
    write_attributes(tree["loop0"].sysfs, {"loop/backing_file": "/srv/\033[31mred\x07.img"})
    for arguments in ([], ["loop0"]):
        text = run_devices(tree, usage, *arguments)[1]
        assert "/srv/?[31mred?.img" in text
        assert not any(ord(char) < 32 and char != "\n" for char in text)


def test_table_rows_describe_the_devices(tree: Tree, usage: Usage) -> None:
    text = run_devices(tree, usage)[1]
    assert text.splitlines()[0].split(maxsplit=8) == list(HEADER)
    expected = {
        "sda": "disk 960 GB ssd 2.00GiB/512B 1x32 none back SAMSUNG MZ7LH960",
        "sda1": "part 537 MB on /boot",
        "sdb1": "part 537 MB swap",
        "sdb3": "part 8.59 GB btrfs 0123",
        "md0": "md-raid1 1.07 GB ssd 2.00GiB/512B bio none back",
        "dm-0": "dm-crypt 1.07 GB ssd 2.00GiB/512B bio none back cryptroot on /",
        "nvme0n1": "disk 1.92 TB ssd 2.00GiB/512B 8x1023 none back ACME 7400 1920GB",
        "nvme1c2n1": "path 1.92 TB ssd 2.00GiB/512B 1x127 none back ACME 7400 1920GB",
        "loop0": "loop 1.07 GB ssd 2.00GiB/512B 1x128 none back /srv/disk one.img",
        "zram0": "zram 1.07 GB ram 2.00GiB/512B bio none thru",
    }
    for name, rest in expected.items():
        assert find_row(text, name).split(name, 1)[1].split() == rest.split()


def test_missing_and_unknown_discard_support_differ(tree: Tree, usage: Usage) -> None:
    write_attributes(tree["sda"].sysfs, {"queue/discard_max_bytes": "0"})
    (tree["sdb"].sysfs / "queue/discard_max_bytes").unlink()
    text = run_devices(tree, usage)[1]
    assert find_row(text, "sda").split()[5] == "no"
    assert find_row(text, "sdb").split()[5] == "-"


def test_disabled_discard_is_reported(tree: Tree, usage: Usage) -> None:
    write_attributes(tree["sda"].sysfs, {"queue/discard_max_bytes": "0"})
    text = run_devices(tree, usage, "sda")[1]
    assert "2147450880 bytes" in text
    write_attributes(tree["sda"].sysfs, {"queue/discard_max_hw_bytes": "0"})
    assert "2147450880" not in run_devices(tree, usage, "sda")[1]


def test_empty_devices_are_shown_on_request(tree: Tree, usage: Usage) -> None:
    assert "loop1" not in run_devices(tree, usage)[1]
    assert "loop1" in run_devices(tree, usage, "-a")[1]
    assert set(map_by_name(tree, usage, "-a")) - set(map_by_name(tree, usage)) == {"loop1"}
    # A drive without capacity is broken and must not be hidden.
    write_attributes(tree["nvme0n1"].sysfs, {"size": "0"})
    assert "0 B" in find_row(run_devices(tree, usage)[1], "nvme0n1")


def test_named_device_is_shown_in_full(tree: Tree, usage: Usage) -> None:
    text = run_devices(tree, usage, "sda2", "loop1")[1]
    blocks = text.split("\n\n")
    assert [block.splitlines()[0] for block in blocks] == [
        "sda2: partition, 2.15 GB",
        "loop1: loop, 0 B",
    ]
    lines = [" ".join(line.split()) for line in blocks[0].splitlines()]
    for line in (
        "partition of sda",
        "holders md0",
        "traced as requests on sda, sectors 2097152 to 6291455",
        "limits (of sda)",
        "physical block 4096 bytes (4 KiB)",
        "largest write-zeroes none",
        "write-back throttling 2000 us",
        "scheduler none (or mq-deadline)",
        "segments -",
    ):
        assert line in lines
    assert "traced as             not traced: it has no medium" in blocks[1]


def test_verbose_shows_every_device_in_full_once(tree: Tree, usage: Usage) -> None:
    text = run_devices(tree, usage, "-v")[1]
    heads = [line.split(":")[0] for line in text.splitlines() if line and not line.startswith(" ")]
    assert sorted(heads) == sorted(map_by_name(tree, usage))


def test_an_unknown_name_is_a_usage_error(tree: Tree, usage: Usage) -> None:
    with pytest.raises(UsageError, match=r"^sdz: "):
        run_devices(tree, usage, "sda", "sdz")


def test_missing_sysfs_is_an_error(tmp_path: Path, usage: Usage) -> None:
    with pytest.raises(Unsupported, match="sysfs"):
        run_devices(Tree(tmp_path), usage)


def test_json_has_bytes_as_integers_and_null_for_the_unknown(tree: Tree, usage: Usage) -> None:
    (tree["sda"].sysfs / "queue/discard_max_bytes").unlink()
    devices = map_by_name(tree, usage)
    sda = devices["sda"]
    assert sda["size_bytes"] == 1875385008 * 512
    assert sda["limits"]["discard_max_bytes"] is None
    assert sda["limits"]["discard_granularity_bytes"] == 512
    assert sda["queue"]["tags_per_queue"] == 32 and sda["queue"]["rotational"] is False
    assert (sda["dev"], sda["model"], sda["serial"]) == ("8:0", "SAMSUNG MZ7LH960", "S3Z8NB0K5077a")
    assert devices["sda2"]["disk"] == "sda" and devices["sda2"]["first_sector"] == 2097152
    assert devices["md0"]["stands_on"] == ["sda2", "sdb2"]
    assert devices["md0"]["traced"] == {
        "level": "requests",
        "leaves": [{"device": "sda2", "level": "requests"}, {"device": "sdb2", "level": "requests"}],
    }
    assert devices["nvme1c1n1"]["dev"] is None and devices["nvme1c1n1"]["hidden"] is True
    assert devices["loop0"]["backing_file"] == "/srv/disk one.img"
    assert devices["sda1"]["mounts"] == [{"point": "/boot", "filesystem": "ext4", "source": "/dev/sda1"}]
    assert devices["zram0"]["traced"]["level"] == "bios"


def test_json_of_a_named_device_has_a_single_device(tree: Tree, usage: Usage) -> None:
    assert list(map_by_name(tree, usage, "dm-0")) == ["dm-0"]


@pytest.mark.parametrize("arguments", [[], ["-v"], ["--json"]])
def test_devices_that_vanish_during_the_listing_are_skipped(
    tree: Tree, usage: Usage, arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tree["sda"].sysfs

    def remove_and_read(devices: Devices, device: BlockDevice, usage: Usage) -> Details:
        shutil.rmtree(gone, ignore_errors=True)
        return read_details(devices, device, usage)

    monkeypatch.setattr(command, "read_details", remove_and_read)
    status, text = run_devices(tree, usage, *arguments)
    assert status == 0
    if not arguments:
        assert find_row(text, "sda").split() == ["sda", "disk", "-", "-", "-", "-", "-", "-"]
    if arguments == ["--json"]:
        sda = next(device for device in json.loads(text)["devices"] if device["name"] == "sda")
        assert sda["size_bytes"] is None and sda["queue"]["hardware_queues"] is None


def test_unencodable_line_is_converted() -> None:
    assert make_encodable("├─md0 é…", "ascii") == "|-md0 ?+"
    assert make_encodable("├─md0 é…", "utf-8") == "├─md0 é…"
