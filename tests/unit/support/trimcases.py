"""Machines that show each cause recognisable without a trace, and the expected findings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from opwatch.counters.decode.identify import Controller, Namespace
from opwatch.trim.check.prediction import Outlook
from tests.unit.support.sysfs import SSD_QUEUE, write_attributes
from tests.unit.support.trimtree import MIB, NO_DISCARD, Machine

CRYPT = "0 2097152 crypt aes-xts-plain64 0000 0 8:0 0"
POOL = "0 1600000 thin-pool 253:0 253:1 2048 0 0"
POOL_STATUS = "0 1600000 thin-pool 0 214/2048 122/781 - {mode} {discards} queue_if_no_space - 512"
THIN_QUEUE = SSD_QUEUE | {"discard_granularity": str(MIB)}


def build_thin(
    m: Machine,
    mode: str = "rw",
    discards: str = "discard_passdown",
    queue: dict[str, str] = THIN_QUEUE,
    mapped: int = 204800,
) -> None:
    """An ext4 on a thin volume: dm-3 on pool dm-2 on dm-0 (metadata) and dm-1 (data)."""
    m.add_scsi_disk()
    for minor in (0, 1):
        m.add_dm_device(minor, f"0 1600000 linear 8:0 {minor << 21}", "sda")
    status = POOL_STATUS.format(mode=mode, discards=discards)
    m.add_dm_device(2, POOL, "dm-0", "dm-1", status=status, uuid="LVM-x-tpool", label="vg-pool-tpool")
    m.add_dm_device(
        3,
        "0 1600000 thin 253:2 1",
        "dm-2",
        status=f"0 1600000 thin {mapped} 1599999",
        queue=queue,
        uuid="LVM-xhome",
    )
    m.add_mount("253:3")


def build_raid(m: Machine, level: str, array: dict[str, str], *members: dict[str, str]) -> None:
    for letter, queue in zip("abcd", members, strict=False):
        m.add_scsi_disk(f"sd{letter}", where=f"pci0000:00/host{letter}/target/{letter}", queue=queue)
    attributes = {"md/level": level, "md/chunk_size": "524288", "md/reshape_position": "none"}
    m.tree.add_disk("md0", "9:0", queue=array, attributes=attributes)
    m.tree.stack_device("md0", *(f"sd{letter}" for letter, _ in zip("abcd", members, strict=False)))
    m.add_mount("9:0")


def build_loop(m: Machine, queue: dict[str, str]) -> None:
    file = m.tree.sys.parent / "disk.img"
    file.touch()
    m.tree.add_disk("loop0", "7:0", tags=[128], queue=queue, attributes={"loop/backing_file": str(file)})
    m.mountinfo += "20 1 8:99 / / rw - xfs /dev/sdz rw\n"
    m.add_mount("7:0")


def build_btrfs(m: Machine, *queues: dict[str, str], profile: str = "single", options: str = "rw") -> None:
    for letter, queue in zip("ab", queues, strict=False):
        m.add_scsi_disk(f"sd{letter}", where=f"pci0000:00/host{letter}/target/{letter}", queue=queue)
        m.members[f"sd{letter}"] = "btrfs 0123"
        (m.tree.dev / f"sd{letter}").touch()
    (m.tree.sys / f"fs/btrfs/0123/allocation/data/{profile}").mkdir(parents=True)
    m.add_mount("8:0", "btrfs", options=options)


def build_nvme(m: Machine, queue: dict[str, str] = SSD_QUEUE, ro: str = "0", lbas: int = 1) -> None:
    where = "pci0000:00/0000:00:04.0/nvme/nvme0"
    m.tree.add_disk("nvme0n1", "259:0", where=where, tags=[64], queue=queue, attributes={"ro": ro})
    drive = Controller(has_dataset_management=queue is not NO_DISCARD)
    m.identify["nvme0n1"] = (drive, Namespace(lba_bytes=512, deallocate_lbas=lbas))
    m.add_mount("259:0")


def build_virtio(m: Machine, queue: dict[str, str], feature: str) -> None:
    where = "pci0000:00/0000:00:03.0/virtio1"
    folder = m.tree.add_disk("vda", "254:0", where=f"{where}/block", tags=[64], queue=queue)
    write_attributes(m.tree.sys / "devices" / where, {"features": "0" * 13 + feature + "0" * 50})
    (folder / "device").symlink_to(m.tree.sys / "devices" / where)
    m.add_mount("254:0")


def make_scsi_builder(**device: object) -> Callable[[Machine], None]:
    def build(m: Machine) -> None:
        m.add_scsi_disk(**device)  # type: ignore[arg-type]
        m.add_mount("8:0")

    return build


def make_dm_builder(
    table: str, queue: dict[str, str] = NO_DISCARD, **device: str
) -> Callable[[Machine], None]:
    def build(m: Machine) -> None:
        m.add_scsi_disk()
        m.add_dm_device(0, table, "sda", queue=queue, **device)
        m.add_mount("253:0")

    return build


def build_lowered_path(m: Machine) -> None:
    m.add_scsi_disk(queue=LOWERED)
    m.add_dm_device(0, "0 8 multipath 0 0 1 1 round-robin 0 1 1 8:0 1", "sda", queue=SSD_QUEUE)
    m.add_mount("253:0")


def build_within_block(m: Machine) -> None:
    m.add_scsi_disk(queue=SSD_QUEUE | {"discard_granularity": "4096"})
    m.add_dm_device(0, "0 8 linear 8:0 7", "sda", queue=SSD_QUEUE)
    m.add_dm_device(1, "0 8 writecache s 253:0 253:0 4096 0", "dm-0", queue=SSD_QUEUE)
    m.add_mount("253:1")


def make_sata_builder(trim: str, queue: Mapping[str, str]) -> Callable[[Machine], None]:
    def build(m: Machine) -> None:
        m.add_sata_disk(trim=trim, queue=queue)
        m.add_mount("8:0")

    return build


def make_mount_builder(kind: str, options: str = "rw", dev: str = "8:0") -> Callable[[Machine], None]:
    def build(m: Machine) -> None:
        m.add_scsi_disk()
        m.add_mount(dev, kind, options=options, source="tank/home")

    return build


def build_lost_below(m: Machine) -> None:
    """Device mapper keeps the limits from the time its table was loaded."""
    m.add_scsi_disk(queue=NO_DISCARD, mode="disabled")
    m.add_dm_device(0, "0 2097152 linear 8:0 0", "sda")
    m.add_mount("253:0")


def build_half_lost_below(m: Machine) -> None:
    m.add_scsi_disk("sda")
    m.add_scsi_disk("sdb", where="pci0000:00/hostb/target/b", queue=NO_DISCARD, mode="disabled")
    m.add_dm_device(0, "0 2097152 linear 8:0 0\n2097152 2097152 linear 8:16 0", "sda", "sdb")
    m.add_mount("253:0")


def build_no_discard(m: Machine) -> None:
    m.add_disk(queue=NO_DISCARD)
    m.add_mount("254:0")


def build_bcache(m: Machine) -> None:
    m.add_scsi_disk("sda")
    m.add_scsi_disk("sdb", where="pci0000:00/hostb/target/b")
    write_attributes(m.tree["sdb"].sysfs, {"bcache/discard": "0"})
    m.tree.add_disk("bcache0", "251:0")
    m.tree.stack_device("bcache0", "sda", "sdb")
    m.add_mount("251:0")


def build_partly_partitioned(m: Machine) -> None:
    m.add_scsi_disk()
    m.tree.add_partition("sda", "sda1", "8:1", start=2048, sectors=1 << 20)
    m.add_mount("8:1")


@dataclass(frozen=True)
class Case:
    """The machine to build, the expected causes and outlook; `free` in units of 512 bytes."""

    build: Callable[[Machine], None]
    codes: str
    outlook: Outlook
    free: tuple[tuple[int, int], ...] = ()
    fstab: str = ""


R, P, N, U = Outlook.REACHES, Outlook.PART, Outlook.NOTHING, Outlook.UNKNOWN
LOWERED = SSD_QUEUE | {"discard_max_bytes": str(MIB)}
ODD = ((1, 9), (1000, 1001), (4096, 8192))
CASES = {
    "plain": Case(make_scsi_builder(), "advisory", R),
    "no FITRIM": Case(make_mount_builder("reiserfs"), "no-fitrim advisory", N),
    "overlay": Case(make_mount_builder("overlay", dev="0:40"), "no-fitrim", N),
    "zfs": Case(make_mount_builder("zfs", dev="0:41"), "zfs-trims-itself", N),
    "norecovery": Case(make_mount_builder("xfs", "ro,norecovery"), "filesystem-refuses advisory", N),
    "noload": Case(make_mount_builder("ext4", "ro,noload"), "filesystem-refuses advisory", N),
    "-o discard dropped": Case(
        make_scsi_builder(queue=NO_DISCARD, mode="full", thin="0"),
        "scsi-full discard-option-dropped",
        N,
        fstab="discard",
    ),
    "f2fs": Case(make_mount_builder("f2fs", "rw,discard"), "filesystem-trims-later advisory", R),
    "short extents": Case(
        make_scsi_builder(queue=SSD_QUEUE | {"discard_granularity": "4096"}),
        "below-minimum device-rounds advisory",
        P,
        ODD,
    ),
    "unpartitioned": Case(build_partly_partitioned, "outside-filesystems advisory", R),
    "lost below": Case(build_lost_below, "limit-zero scsi-disabled", N),
    "half lost below": Case(build_half_lost_below, "member-no-discards scsi-disabled advisory", P),
    "no reason": Case(build_no_discard, "device-no-discards", N),
    "lowered": Case(make_scsi_builder(queue=LOWERED), "limit-lowered advisory", R),
    "lowered below multipath": Case(build_lowered_path, "limit-shorter limit-lowered advisory", U),
    "blocks that are cut": Case(build_within_block, "block-cut advisory", U),
    "switched off": Case(
        make_scsi_builder(queue=SSD_QUEUE | {"discard_max_bytes": "0"}), "limit-switched-off", N
    ),
    "crypt": Case(make_dm_builder(CRYPT), "crypt-no-discards advisory", N),
    "crypt with discards": Case(make_dm_builder(f"{CRYPT} 1 allow_discards", SSD_QUEUE), "advisory", R),
    "integrity": Case(make_dm_builder("0 8 integrity 8:0 0 4 J 0"), "integrity-no-discards advisory", N),
    "verity": Case(make_dm_builder("0 8 verity 1 8:0 8:0 4096"), "verity-read-only advisory", N),
    "cache": Case(
        make_dm_builder("0 8 cache 8:0 8:0 8:0 512 1 no_discard_passdown smq 0", SSD_QUEUE),
        "cache-no-passdown advisory",
        N,
    ),
    "cache whose status says it": Case(
        make_dm_builder(
            "0 8 cache 8:0 8:0 8:0 512 1 writethrough smq 0",
            SSD_QUEUE,
            status="0 8 cache 8 1/2 512 0/8 0 0 0 0 0 0 0 2 writethrough no_discard_passdown 0 smq 0 rw -",
        ),
        "cache-no-passdown advisory",
        N,
    ),
    "old snapshot": Case(
        make_dm_builder("0 8 snapshot 8:0 8:0 P 8", SSD_QUEUE), "snapshot-swallows advisory", N
    ),
    "its origin": Case(make_dm_builder("0 8 snapshot-origin 8:0"), "snapshot-swallows advisory", N),
    "raid5 of LVM": Case(
        make_dm_builder("0 8 raid raid5_ls 3 128 region_size 1024 3 - 8:0 - 8:0"),
        "raid456-not-safe advisory",
        N,
    ),
    "other target": Case(make_dm_builder("0 8 log-writes 8:0 8:0"), "target-no-discards advisory", N),
    "half of it fails": Case(
        make_dm_builder("0 4 linear 8:0 0\n4 4 error", SSD_QUEUE), "target-fails advisory", P
    ),
    "all of it fails": Case(make_dm_builder("0 8 error", SSD_QUEUE), "target-error advisory", N),
    "fails at times": Case(make_dm_builder("0 8 flakey 8:0 0 30 5", SSD_QUEUE), "target-fails advisory", P),
    "fails at no time": Case(make_dm_builder("0 8 flakey 8:0 0 30 0", SSD_QUEUE), "advisory", R),
    "vdo": Case(make_dm_builder("0 8 vdo V4 8:0 2 4096 32768 16380", SSD_QUEUE), "vdo-keeps advisory", N),
    "ntfs3": Case(make_mount_builder("ntfs3"), "ntfs3-wants-discard advisory", N),
    "ntfs3 with discard": Case(make_mount_builder("ntfs3", "rw,discard"), "advisory", R),
    "ntfs by FUSE": Case(make_mount_builder("fuseblk"), "advisory", U),
    "bcache": Case(build_bcache, "bcache-discard-off advisory advisory advisory", R),
    "thin": Case(build_thin, "thin-not-mapped thin-partial-chunk advisory", U, ((2048, 6144), (8192, 12289))),
    "thin, all but an end mapped": Case(
        lambda m: build_thin(m, mapped=2095104),
        "thin-not-mapped thin-partial-chunk advisory",
        P,
        ((2048, 6144), (8192, 12289)),
    ),
    "thin, whole": Case(lambda m: build_thin(m, mapped=2097152), "advisory", R),
    "thin no passdown": Case(
        lambda m: build_thin(m, discards="no_discard_passdown"),
        "thin-no-passdown thin-not-mapped advisory",
        N,
    ),
    "thin ignores": Case(
        lambda m: build_thin(m, discards="ignore_discard", queue=NO_DISCARD),
        "thin-ignores-discard thin-not-mapped advisory",
        N,
    ),
    "thin read-only": Case(
        lambda m: build_thin(m, mode="ro"), "thin-pool-read-only thin-not-mapped advisory", N
    ),
    "raid5": Case(
        lambda m: build_raid(m, "raid5", NO_DISCARD, SSD_QUEUE, SSD_QUEUE),
        "raid456-not-safe advisory advisory",
        N,
    ),
    "raid6": Case(
        lambda m: build_raid(m, "raid6", SSD_QUEUE, SSD_QUEUE, SSD_QUEUE),
        "raid456-partial-stripe advisory advisory",
        R,
    ),
    "raid1": Case(
        lambda m: build_raid(m, "raid1", SSD_QUEUE, SSD_QUEUE, NO_DISCARD),
        "member-no-discards device-no-discards advisory",
        P,
    ),
    "btrfs": Case(
        lambda m: build_btrfs(m, SSD_QUEUE, NO_DISCARD),
        "btrfs-device-no-discards device-no-discards advisory",
        P,
    ),
    "btrfs raid5": Case(
        lambda m: build_btrfs(m, SSD_QUEUE, profile="raid5", options="rw,discard=async"),
        "btrfs-raid56 filesystem-trims-later advisory",
        R,
    ),
    "loop on ramfs": Case(lambda m: build_loop(m, NO_DISCARD), "loop-no-punch", N),
    "loop on ext4": Case(
        lambda m: build_loop(m, SSD_QUEUE | {"discard_granularity": "4096"}),
        "loop-frees-file loop-partial-block",
        P,
        ((1, 25), (4096, 8192)),
    ),
    "virtio without": Case(lambda m: build_virtio(m, NO_DISCARD, "0"), "virtual-no-discards", N),
    "virtio": Case(lambda m: build_virtio(m, SSD_QUEUE, "1"), "host-may-drop", R),
    "usb bridge": Case(make_scsi_builder(queue=NO_DISCARD, mode="full", thin="0"), "scsi-full", N),
    "rejected": Case(make_scsi_builder(queue=NO_DISCARD, mode="disabled"), "scsi-disabled", N),
    # Linux 6.12 leaves the hardware limit unchanged.
    "rejected, hardware limit kept": Case(
        make_scsi_builder(queue=SSD_QUEUE | {"discard_max_bytes": "0"}, mode="disabled"), "scsi-disabled", N
    ),
    "forced": Case(make_scsi_builder(mode="unmap", thin="0"), "scsi-forced advisory", R),
    "raid controller": Case(
        make_scsi_builder(queue=NO_DISCARD, mode="full", thin="0", driver="megaraid_sas"),
        "raid-controller",
        N,
    ),
    "no TRIM": Case(make_sata_builder("forced_unsupported", NO_DISCARD), "ata-no-trim", N),
    "unqueued": Case(make_sata_builder("forced_unqueued", SSD_QUEUE), "ata-unqueued-trim advisory", R),
    "no DSM": Case(lambda m: build_nvme(m, NO_DISCARD), "nvme-no-dsm", N),
    "NPDG": Case(lambda m: build_nvme(m, lbas=8), "nvme-granularity-hidden advisory", R),
    "read-only nvme": Case(lambda m: build_nvme(m, ro="1"), "nvme-locked filesystem-refuses", N),
}
