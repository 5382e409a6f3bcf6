"""Machines that show each cause recognisable without a trace, and the expected findings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from opwatch.counters.decode.identify import Controller, Namespace
from opwatch.trim.check.forecast import Outlook
from tests.unit.support.sysfs import SSD_QUEUE, write
from tests.unit.support.trimtree import MIB, NO_DISCARD, Machine

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


def lowered_path(m: Machine) -> None:
    m.scsi(queue=LOWERED)
    m.dm_device(0, "0 8 multipath 0 0 1 1 round-robin 0 1 1 8:0 1", "sda", queue=SSD_QUEUE)
    m.mount("253:0")


def within_a_block(m: Machine) -> None:
    m.scsi(queue=SSD_QUEUE | {"discard_granularity": "4096"})
    m.dm_device(0, "0 8 linear 8:0 7", "sda", queue=SSD_QUEUE)
    m.dm_device(1, "0 8 writecache s 253:0 253:0 4096 0", "dm-0", queue=SSD_QUEUE)
    m.mount("253:1")


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
    """Device mapper keeps the limits from the time its table was loaded."""
    m.scsi(queue=NO_DISCARD, mode="disabled")
    m.dm_device(0, "0 2097152 linear 8:0 0", "sda")
    m.mount("253:0")


def half_lost_below(m: Machine) -> None:
    m.scsi("sda")
    m.scsi("sdb", where="pci0000:00/hostb/target/b", queue=NO_DISCARD, mode="disabled")
    m.dm_device(0, "0 2097152 linear 8:0 0\n2097152 2097152 linear 8:16 0", "sda", "sdb")
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
        P,
        ODD,
    ),
    "unpartitioned": Case(partly_partitioned, "outside-filesystems advisory", R),
    "lost below": Case(lost_below, "limit-zero scsi-disabled", N),
    "half lost below": Case(half_lost_below, "member-no-discards scsi-disabled advisory", P),
    "no reason": Case(mute, "device-no-discards", N),
    "lowered": Case(on_scsi(queue=LOWERED), "limit-lowered advisory", R),
    "lowered below multipath": Case(lowered_path, "limit-shorter limit-lowered advisory", U),
    "blocks that are cut": Case(within_a_block, "block-cut advisory", U),
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
    "cache whose status says it": Case(
        on_dm(
            "0 8 cache 8:0 8:0 8:0 512 1 writethrough smq 0",
            SSD_QUEUE,
            status="0 8 cache 8 1/2 512 0/8 0 0 0 0 0 0 0 2 writethrough no_discard_passdown 0 smq 0 rw -",
        ),
        "cache-no-passdown advisory",
        N,
    ),
    "old snapshot": Case(on_dm("0 8 snapshot 8:0 8:0 P 8", SSD_QUEUE), "snapshot-swallows advisory", N),
    "its origin": Case(on_dm("0 8 snapshot-origin 8:0"), "snapshot-swallows advisory", N),
    "raid5 of LVM": Case(
        on_dm("0 8 raid raid5_ls 3 128 region_size 1024 3 - 8:0 - 8:0"), "raid456-not-safe advisory", N
    ),
    "other target": Case(on_dm("0 8 log-writes 8:0 8:0"), "target-no-discards advisory", N),
    "half of it fails": Case(on_dm("0 4 linear 8:0 0\n4 4 error", SSD_QUEUE), "target-fails advisory", P),
    "all of it fails": Case(on_dm("0 8 error", SSD_QUEUE), "target-error advisory", N),
    "fails at times": Case(on_dm("0 8 flakey 8:0 0 30 5", SSD_QUEUE), "target-fails advisory", P),
    "fails at no time": Case(on_dm("0 8 flakey 8:0 0 30 0", SSD_QUEUE), "advisory", R),
    "vdo": Case(on_dm("0 8 vdo V4 8:0 2 4096 32768 16380", SSD_QUEUE), "vdo-keeps advisory", N),
    "ntfs3": Case(mounted("ntfs3"), "ntfs3-wants-discard advisory", N),
    "ntfs3 with discard": Case(mounted("ntfs3", "rw,discard"), "advisory", R),
    "ntfs by FUSE": Case(mounted("fuseblk"), "advisory", U),
    "bcache": Case(bcache, "bcache-discard-off advisory advisory advisory", R),
    "thin": Case(thin, "thin-not-mapped thin-partial-chunk advisory", U, ((2048, 6144), (8192, 12289))),
    "thin, all but an end mapped": Case(
        lambda m: thin(m, mapped=2095104),
        "thin-not-mapped thin-partial-chunk advisory",
        P,
        ((2048, 6144), (8192, 12289)),
    ),
    "thin, whole": Case(lambda m: thin(m, mapped=2097152), "advisory", R),
    "thin no passdown": Case(
        lambda m: thin(m, discards="no_discard_passdown"), "thin-no-passdown thin-not-mapped advisory", N
    ),
    "thin ignores": Case(
        lambda m: thin(m, discards="ignore_discard", queue=NO_DISCARD),
        "thin-ignores-discard thin-not-mapped advisory",
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
        P,
        ((1, 25), (4096, 8192)),
    ),
    "virtio without": Case(lambda m: virtio(m, NO_DISCARD, "0"), "virtual-no-discards", N),
    "virtio": Case(lambda m: virtio(m, SSD_QUEUE, "1"), "host-may-drop", R),
    "usb bridge": Case(on_scsi(queue=NO_DISCARD, mode="full", thin="0"), "scsi-full", N),
    "rejected": Case(on_scsi(queue=NO_DISCARD, mode="disabled"), "scsi-disabled", N),
    # Linux 6.12 leaves the hardware limit unchanged.
    "rejected, hardware limit kept": Case(
        on_scsi(queue=SSD_QUEUE | {"discard_max_bytes": "0"}, mode="disabled"), "scsi-disabled", N
    ),
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
