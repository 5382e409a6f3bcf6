"""Every cause that can be recognised without a trace, in a tree that shows it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from opwatch.counters.identify import Controller, Namespace
from opwatch.sinks.trim_check import Checked, document, lines
from opwatch.tools.trim_check import exit_status
from opwatch.trim.causes import Effect, causes
from opwatch.trim.dryrun import dry_run, ext4_groups
from opwatch.trim.extents import Extents
from opwatch.trim.forecast import Forecast, Outlook
from opwatch.trim.layers import Kind, changes
from tests.unit.sysfs import SSD_QUEUE, write
from tests.unit.trimtree import MIB, NO_DISCARD, Machine

CRYPT = "0 2097152 crypt aes-xts-plain64 0000 0 8:0 0"
POOL = "0 1600000 thin-pool 253:0 253:1 2048 0 0"
POOL_STATUS = "0 1600000 thin-pool 0 214/2048 122/781 - {mode} {discards} queue_if_no_space - 512"
THIN_QUEUE = SSD_QUEUE | {"discard_granularity": str(MIB)}


def thin(
    m: Machine,
    mode: str = "rw",
    discards: str = "discard_passdown",
    queue: dict[str, str] = THIN_QUEUE,
    mapped: int = 204800,
) -> None:
    """An ext4 on a thin volume: dm-3 on pool dm-2 on dm-0 (metadata) and dm-1 (data)."""
    m.scsi()
    for minor in (0, 1):
        m.dm_device(minor, f"0 1600000 linear 8:0 {minor << 21}", "sda")
    status = POOL_STATUS.format(mode=mode, discards=discards)
    m.dm_device(2, POOL, "dm-0", "dm-1", status=status, uuid="LVM-x-tpool", label="vg-pool-tpool")
    m.dm_device(
        3,
        "0 1600000 thin 253:2 1",
        "dm-2",
        status=f"0 1600000 thin {mapped} 1599999",
        queue=queue,
        uuid="LVM-xhome",
    )
    m.mount("253:3")


def raid(m: Machine, level: str, array: dict[str, str], *members: dict[str, str]) -> None:
    for letter, queue in zip("abcd", members, strict=False):
        m.scsi(f"sd{letter}", where=f"pci0000:00/host{letter}/target/{letter}", queue=queue)
    attributes = {"md/level": level, "md/chunk_size": "524288", "md/reshape_position": "none"}
    m.tree.disk("md0", "9:0", queue=array, attributes=attributes)
    m.tree.stack("md0", *(f"sd{letter}" for letter, _ in zip("abcd", members, strict=False)))
    m.mount("9:0")


def loop(m: Machine, queue: dict[str, str]) -> None:
    file = m.tree.sys.parent / "disk.img"
    file.touch()
    m.tree.disk("loop0", "7:0", tags=[128], queue=queue, attributes={"loop/backing_file": str(file)})
    m.mountinfo += "20 1 8:99 / / rw - xfs /dev/sdz rw\n"
    m.mount("7:0")


def btrfs(m: Machine, *queues: dict[str, str], profile: str = "single", options: str = "rw") -> None:
    for letter, queue in zip("ab", queues, strict=False):
        m.scsi(f"sd{letter}", where=f"pci0000:00/host{letter}/target/{letter}", queue=queue)
        m.members[f"sd{letter}"] = "btrfs 0123"
        (m.tree.dev / f"sd{letter}").touch()
    (m.tree.sys / f"fs/btrfs/0123/allocation/data/{profile}").mkdir(parents=True)
    m.mount("8:0", "btrfs", options=options)


def nvme(m: Machine, queue: dict[str, str] = SSD_QUEUE, ro: str = "0", lbas: int = 1) -> None:
    where = "pci0000:00/0000:00:04.0/nvme/nvme0"
    m.tree.disk("nvme0n1", "259:0", where=where, tags=[64], queue=queue, attributes={"ro": ro})
    drive = Controller(has_dataset_management=queue is not NO_DISCARD)
    m.identify["nvme0n1"] = (drive, Namespace(lba_bytes=512, deallocate_lbas=lbas))
    m.mount("259:0")


def virtio(m: Machine, queue: dict[str, str], feature: str) -> None:
    where = "pci0000:00/0000:00:03.0/virtio1"
    folder = m.tree.disk("vda", "254:0", where=f"{where}/block", tags=[64], queue=queue)
    write(m.tree.sys / "devices" / where, {"features": "0" * 13 + feature + "0" * 50})
    (folder / "device").symlink_to(m.tree.sys / "devices" / where)
    m.mount("254:0")


def on_scsi(**device: object) -> Callable[[Machine], None]:
    def build(m: Machine) -> None:
        m.scsi(**device)  # type: ignore[arg-type]
        m.mount("8:0")

    return build


def on_dm(table: str, queue: dict[str, str] = NO_DISCARD, **device: str) -> Callable[[Machine], None]:
    def build(m: Machine) -> None:
        m.scsi()
        m.dm_device(0, table, "sda", queue=queue, **device)
        m.mount("253:0")

    return build


def on_sata(trim: str, queue: Mapping[str, str]) -> Callable[[Machine], None]:
    def build(m: Machine) -> None:
        m.sata(trim=trim, queue=queue)
        m.mount("8:0")

    return build


def mounted(kind: str, options: str = "rw", dev: str = "8:0") -> Callable[[Machine], None]:
    def build(m: Machine) -> None:
        m.scsi()
        m.mount(dev, kind, options=options, source="tank/home")

    return build


def lost_below(m: Machine) -> None:
    """dm keeps the limits that it had when its table was loaded."""
    m.scsi(queue=NO_DISCARD, mode="disabled")
    m.dm_device(0, "0 2097152 linear 8:0 0", "sda")
    m.mount("253:0")


def mute(m: Machine) -> None:
    m.disk(queue=NO_DISCARD)
    m.mount("254:0")


def bcache(m: Machine) -> None:
    m.scsi("sda")
    m.scsi("sdb", where="pci0000:00/hostb/target/b")
    write(m.tree["sdb"].sysfs, {"bcache/discard": "0"})
    m.tree.disk("bcache0", "251:0")
    m.tree.stack("bcache0", "sda", "sdb")
    m.mount("251:0")


def partly_partitioned(m: Machine) -> None:
    m.scsi()
    m.tree.partition("sda", "sda1", "8:1", start=2048, sectors=1 << 20)
    m.mount("8:1")


@dataclass(frozen=True)
class Case:
    """What is built, the causes that must be found and the outlook; `free` in units of 512 bytes."""

    build: Callable[[Machine], None]
    codes: str
    outlook: Outlook
    free: tuple[tuple[int, int], ...] = ()
    fstab: str = ""


R, P, N = Outlook.REACHES, Outlook.PART, Outlook.NOTHING
LOWERED = SSD_QUEUE | {"discard_max_bytes": str(MIB)}
ODD = ((1, 9), (1000, 1001), (4096, 8192))
CASES = {
    "plain": Case(on_scsi(), "advisory", R),
    "no FITRIM": Case(mounted("reiserfs"), "no-fitrim advisory", N),
    "overlay": Case(mounted("overlay", dev="0:40"), "no-fitrim", N),
    "zfs": Case(mounted("zfs", dev="0:41"), "zfs-trims-itself", N),
    "norecovery": Case(mounted("xfs", "ro,norecovery"), "filesystem-refuses advisory", N),
    "noload": Case(mounted("ext4", "ro,noload"), "filesystem-refuses advisory", N),
    "-o discard dropped": Case(
        on_scsi(queue=NO_DISCARD, mode="full", thin="0"),
        "scsi-full discard-option-dropped",
        N,
        fstab="discard",
    ),
    "f2fs": Case(mounted("f2fs", "rw,discard"), "filesystem-trims-later advisory", R),
    "short extents": Case(
        on_scsi(queue=SSD_QUEUE | {"discard_granularity": "4096"}),
        "below-minimum device-rounds advisory",
        R,
        ODD,
    ),
    "unpartitioned": Case(partly_partitioned, "outside-filesystems advisory", R),
    "lost below": Case(lost_below, "limit-zero scsi-disabled", N),
    "no reason": Case(mute, "device-no-discards", N),
    "lowered": Case(on_scsi(queue=LOWERED), "limit-lowered advisory", R),
    "switched off": Case(on_scsi(queue=SSD_QUEUE | {"discard_max_bytes": "0"}), "limit-switched-off", N),
    "crypt": Case(on_dm(CRYPT), "crypt-no-discards advisory", N),
    "crypt with discards": Case(on_dm(f"{CRYPT} 1 allow_discards", SSD_QUEUE), "advisory", R),
    "integrity": Case(on_dm("0 8 integrity 8:0 0 4 J 0"), "integrity-no-discards advisory", N),
    "verity": Case(on_dm("0 8 verity 1 8:0 8:0 4096"), "verity-read-only advisory", N),
    "cache": Case(
        on_dm("0 8 cache 8:0 8:0 8:0 512 1 no_discard_passdown smq 0", SSD_QUEUE),
        "cache-no-passdown advisory",
        N,
    ),
    "old snapshot": Case(on_dm("0 8 snapshot 8:0 8:0 P 8", SSD_QUEUE), "snapshot-swallows advisory", N),
    "its origin": Case(on_dm("0 8 snapshot-origin 8:0"), "snapshot-swallows advisory", N),
    "other target": Case(on_dm("0 8 log-writes 8:0 8:0"), "target-no-discards advisory", N),
    "bcache": Case(bcache, "bcache-discard-off advisory advisory advisory", R),
    "thin": Case(thin, "thin-not-mapped thin-partial-chunk advisory", R, ((2048, 6144), (8192, 12289))),
    "thin, whole": Case(lambda m: thin(m, mapped=2097152), "advisory", R),
    "thin no passdown": Case(
        lambda m: thin(m, discards="no_discard_passdown"), "thin-no-passdown thin-not-mapped advisory", N
    ),
    "thin ignores": Case(
        lambda m: thin(m, discards="ignore_discard", queue=NO_DISCARD),
        "thin-ignores-discard thin-ignores-discard thin-not-mapped advisory",
        N,
    ),
    "thin read-only": Case(lambda m: thin(m, mode="ro"), "thin-pool-read-only thin-not-mapped advisory", N),
    "raid5": Case(
        lambda m: raid(m, "raid5", NO_DISCARD, SSD_QUEUE, SSD_QUEUE), "raid456-not-safe advisory advisory", N
    ),
    "raid6": Case(
        lambda m: raid(m, "raid6", SSD_QUEUE, SSD_QUEUE, SSD_QUEUE),
        "raid456-partial-stripe advisory advisory",
        R,
    ),
    "raid1": Case(
        lambda m: raid(m, "raid1", SSD_QUEUE, SSD_QUEUE, NO_DISCARD),
        "member-no-discards device-no-discards advisory",
        P,
    ),
    "btrfs": Case(
        lambda m: btrfs(m, SSD_QUEUE, NO_DISCARD),
        "btrfs-device-no-discards device-no-discards advisory",
        P,
    ),
    "btrfs raid5": Case(
        lambda m: btrfs(m, SSD_QUEUE, profile="raid5", options="rw,discard=async"),
        "btrfs-raid56 filesystem-trims-later advisory",
        R,
    ),
    "loop on ramfs": Case(lambda m: loop(m, NO_DISCARD), "loop-no-punch", N),
    "loop on ext4": Case(
        lambda m: loop(m, SSD_QUEUE | {"discard_granularity": "4096"}),
        "loop-frees-file loop-partial-block",
        R,
        ((1, 25), (4096, 8192)),
    ),
    "virtio without": Case(lambda m: virtio(m, NO_DISCARD, "0"), "virtual-no-discards", N),
    "virtio": Case(lambda m: virtio(m, SSD_QUEUE, "1"), "host-may-drop", R),
    "usb bridge": Case(on_scsi(queue=NO_DISCARD, mode="full", thin="0"), "scsi-full", N),
    "rejected": Case(on_scsi(queue=NO_DISCARD, mode="disabled"), "scsi-disabled", N),
    "forced": Case(on_scsi(mode="unmap", thin="0"), "scsi-forced advisory", R),
    "raid controller": Case(
        on_scsi(queue=NO_DISCARD, mode="full", thin="0", driver="megaraid_sas"), "raid-controller", N
    ),
    "no TRIM": Case(on_sata("forced_unsupported", NO_DISCARD), "ata-no-trim", N),
    "unqueued": Case(on_sata("forced_unqueued", SSD_QUEUE), "ata-unqueued-trim advisory", R),
    "no DSM": Case(lambda m: nvme(m, NO_DISCARD), "nvme-no-dsm", N),
    "NPDG": Case(lambda m: nvme(m, lbas=8), "nvme-granularity-hidden advisory", R),
    "read-only nvme": Case(lambda m: nvme(m, ro="1"), "nvme-locked filesystem-refuses", N),
}


def found(case: Case, m: Machine) -> Forecast:
    case.build(m)
    free = [(start * 512, end * 512) for start, end in case.free]
    return m.forecast(free=free, fstab_options=tuple(filter(None, case.fstab.split(","))))


@pytest.mark.parametrize("name", CASES)
def test_each_cause_is_recognised(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    seen = found(case, Machine(tmp_path))
    assert sorted(each.code for each in seen.reasons) == sorted(case.codes.split())
    assert seen.outlook is case.outlook
    assert (seen.stopped_at is not None) or case.outlook is not N


@pytest.mark.parametrize("name", CASES)
def test_what_is_printed_fits_and_is_json(name: str, tmp_path: Path) -> None:
    m = Machine(tmp_path)
    seen = found(CASES[name], m)
    checked = Checked(m.stack(), seen, ())
    printed = lines(checked, "ascii")
    # A line is longer only where a single word is.
    assert [line for line in printed if len(line) > 80 and " " in line.strip()] == []
    assert all(each.code in "\n".join(printed) for each in seen.reasons)
    assert "<" not in "".join(each.remedy for each in seen.reasons if "libvirt" not in each.remedy)
    assert json.loads(json.dumps(document(checked)))["outlook"] == seen.outlook.value


def test_no_cause_of_a_check_is_without_a_case() -> None:
    shown = {code for case in CASES.values() for code in case.codes.split()}
    # These have tests of their own: they are about paths, timers, and files that are devices.
    elsewhere = {"not-a-mount-point", "timer-off", "timer-skips-mount", "loop-on-device"}
    wanted = {code for code, cause in causes().items() if "check" in cause.seen_by}
    assert wanted - shown == elsewhere
    assert shown <= wanted


# --- figures


def test_the_dry_run_adds_up(tmp_path: Path) -> None:
    seen = found(CASES["short extents"], Machine(tmp_path))
    [run] = seen.runs
    assert run.free_bytes == (8 + 1 + 4096) * 512
    assert run.below_minimum_bytes == 512
    # Eight sectors from sector 1 hold no whole granule of eight sectors from sector 0.
    assert run.rounded_bytes == 8 * 512
    assert seen.expected_bytes == run.expected_bytes == 4096 * 512
    assert run.free_bytes == run.below_minimum_bytes + run.rounded_bytes + run.expected_bytes


def test_granules_begin_where_the_kernel_says(tmp_path: Path) -> None:
    m = Machine(tmp_path)
    m.scsi(queue=SSD_QUEUE | {"discard_granularity": str(MIB)})
    folder = m.tree.partition("sda", "sda1", "8:1", start=34, sectors=1 << 20)
    write(folder, {"discard_alignment": str(MIB - 34 * 512)})
    m.mount("8:1")
    [run] = m.forecast(free=[(0, 2 * MIB)]).runs
    assert (run.granule_bytes, run.expected_bytes) == (MIB, MIB)


def test_an_nvme_drive_frees_in_its_own_unit(tmp_path: Path) -> None:
    m = Machine(tmp_path)
    nvme(m, lbas=8)
    m.tree.partition("nvme0n1", "nvme0n1p1", "259:1", start=2047, sectors=1 << 20)
    m.mount("259:1")
    [run] = m.forecast(free=[(0, 8 * 512)]).runs
    # The first unit of 8 blocks begins at block 2048 of the disk, which is block 1 of the partition.
    assert (run.granule_bytes, run.expected_bytes, run.rounded_bytes) == (4096, 0, 4096)


def test_each_piece_of_an_extent_is_rounded_for_itself(tmp_path: Path) -> None:
    m = Machine(tmp_path)
    m.scsi(queue=SSD_QUEUE | {"discard_granularity": "4096"})
    m.mount("8:0")
    groups = ext4_groups(1024)
    free = {"8:0": Extents.of([(0, 20 * MIB)])}
    [run] = dry_run(m.stack(), free, 0, groups)
    # Groups of 8 MiB from 1 KiB on: two borders lie inside, each within a granule that is then lost; and the
    # first piece, of 1 KiB, is too short.
    assert (run.extents, run.below_minimum_bytes) == (4, 1024)
    assert run.rounded_bytes == 3 * 4096 - 1024
    assert run.expected_bytes == 20 * MIB - 3 * 4096
    assert ext4_groups(4096) == (128 * MIB, 0)


def test_what_does_not_arrive_is_no_dry_run(tmp_path: Path) -> None:
    m = Machine(tmp_path)
    CASES["crypt"].build(m)
    seen = m.forecast(free=[(0, MIB)])
    assert (seen.outlook, seen.expected_bytes, seen.runs, seen.accepted) == (N, 0, (), False)


def test_success_is_foretold_where_the_kernel_will_claim_it(tmp_path: Path) -> None:
    m = Machine(tmp_path)
    CASES["thin no passdown"].build(m)
    assert m.forecast().accepted is True


# --- layers


def test_without_privilege_names_and_limits_tell_what_tables_would(tmp_path: Path) -> None:
    m = Machine(tmp_path)
    m.scsi()
    m.dm_device(0, CRYPT, "sda", queue=NO_DISCARD, uuid="CRYPT-LUKS2-0123-home", label="home")
    m.mount("253:0")
    m.dm.locked = True
    seen = m.forecast()
    assert [each.code for each in seen.reasons] == ["crypt-no-discards", "advisory"]
    assert "home" in seen.reasons[0].remedy
    assert m.stack().layers[0].unknown == {"table": "device-mapper tables are for root only"}


def test_without_privilege_a_thin_pool_leaves_a_doubt(tmp_path: Path) -> None:
    m = Machine(tmp_path)
    thin(m)
    m.dm.locked = True
    assert [layer.kind for layer in m.stack().layers[:2]] == [Kind.THIN, Kind.THIN_POOL]
    seen = m.forecast()
    assert seen.outlook is R
    assert any("vg-pool-tpool passes discards on" in doubt for doubt in seen.unknowable)


def test_only_the_data_device_of_a_pool_counts(tmp_path: Path) -> None:
    m = Machine(tmp_path)
    m.scsi("sda", queue=NO_DISCARD, mode="full")
    m.scsi("sdb", where="pci0000:00/hostb/target/b")
    status = POOL_STATUS.format(mode="rw", discards="discard_passdown")
    m.dm_device(2, "0 1600000 thin-pool 8:0 8:16 2048 0 0", "sda", "sdb", status=status)
    m.mount("253:2")
    assert m.forecast().outlook is R


def test_layers_come_after_what_stands_on_them(tmp_path: Path) -> None:
    m = Machine(tmp_path)
    thin(m)
    assert [layer.device for layer in m.stack().layers] == ["dm-3", "dm-2", "dm-0", "dm-1", "sda"]


def test_two_readings_show_what_flipped(tmp_path: Path) -> None:
    m = Machine(tmp_path)
    m.scsi()
    m.mount("8:0")
    before = m.stack()
    assert changes(before, m.stack()) == []
    device = m.tree["sda"].sysfs
    write(device / "device/scsi_disk/1:0:0:0", {"provisioning_mode": "disabled"})
    write(device, {"queue/discard_max_bytes": "0"})
    found = {
        (change.device, change.fact): (change.before, change.after) for change in changes(before, m.stack())
    }
    assert found == {
        ("sda", "max_bytes"): (2147450880, 0),
        ("sda", "provisioning_mode"): ("unmap", "disabled"),
    }


def test_a_loop_on_a_device_is_followed_down(tmp_path: Path) -> None:
    m = Machine(tmp_path)
    m.scsi()
    loop(m, SSD_QUEUE)
    stack = m.stack()
    # A node cannot be made without root; the walk itself is tested with real ones in tests/kernel.
    top = replace(stack.layers[0], facts={"backing_file": "/dev/sda", "backing_is_device": True})
    from opwatch.trim.rules import reasons_of

    assert [each.code for each in reasons_of(replace(stack, layers=(top,)), top)] == ["loop-on-device"]


def test_a_path_that_vanished_leaves_no_layer(tmp_path: Path) -> None:
    m = Machine(tmp_path)
    m.mount("8:0")
    seen = m.forecast()
    assert (seen.outlook, seen.reasons) == (Outlook.UNKNOWN, ())


# --- the command


@pytest.mark.parametrize(
    ("outlooks", "status"),
    [([R, R], 0), ([N], 32), ([N, N], 32), ([R, N], 64), ([P], 64), ([Outlook.UNKNOWN], 64)],
)
def test_exit_statuses_are_those_of_fstrim(outlooks: list[Outlook], status: int) -> None:
    assert exit_status(outlooks) == status


def test_every_effect_has_a_word() -> None:
    assert {cause.effect for cause in causes().values()} == set(Effect)
