"""Evidence of audits on very different stacks, for tests of the code that stores and shows audits."""

from __future__ import annotations

import errno
from dataclasses import replace

from opwatch.recording.coding.audits import SeenAudit
from opwatch.trim.audit.accounts import Account, CounterMeaning
from opwatch.trim.audit.audit import AuditEvidence, BackingFile, Held, ReadBack
from opwatch.trim.audit.flow import Origin, SenderKind, Stage, Trace
from opwatch.trim.audit.kernel_log import KernelLog
from opwatch.trim.filesystems.btrfs import BtrfsFacts
from opwatch.trim.space.lba_status import SentinelMap
from opwatch.trim.stack.dmtable import DmTarget, PoolMode
from opwatch.trim.stack.facts import Unread
from opwatch.trim.stack.layers import Kind, Stack
from opwatch.trim.stale.sentinel import ReadsAs
from opwatch.trim.stale.stale import Count
from tests.unit.support.trim_evidence import (
    make_disk_flows,
    make_evidence,
    make_extent_flow,
    make_flow,
    make_layer,
    make_stack,
)

MIB = 1 << 20


def _make_full_disk() -> AuditEvidence:
    """A partition on a disk with a proven trim and every optional field filled in."""
    parts = (
        make_layer("sda1", "8:1", Kind.PARTITION, "sda", start_bytes=MIB),
        make_layer("sda", "8:0", model="A disk", drivers=("sd", "ata"), deallocate_bytes=8192),
    )
    read_back = ReadBack(
        {ReadsAs.ZEROS: 4 * MIB, ReadsAs.UNCHANGED: 4096},
        None,
        ("4096 B are in the journal",),
        Count(0, 4 * MIB, 0, 4 * MIB),
        {"sda": SentinelMap(4 * MIB, 4 * MIB, 0)},
        {"sda": {ReadsAs.ZEROS: 4 * MIB, ReadsAs.UNCHANGED: 4096}},
    )
    audited = make_evidence(
        make_stack(*parts),
        [
            make_extent_flow("8:1", 8 * MIB, 3),
            *make_disk_flows("sda", "8:1", 8 * MIB),
            make_flow(Stage.FS_SMALL, "8:1", 4096),
        ],
        8 * MIB,
        stats={"sda": (3, 8 * MIB)},
        absent=["ext4_trim_extent"],
        read_back=read_back,
    )
    return replace(
        audited,
        log=KernelLog(("sda: a message of the kernel's",)),
        in_use={"sda": Held(90 * MIB, 82 * MIB, None)},
        files={"loop0": BackingFile(MIB, 4096)},
        accounts=(Account("sda", "SMART 241", CounterMeaning.TRIMMED, 512, 5, 5 + 8 * MIB // 512),),
    )


def _make_thin_pool() -> AuditEvidence:
    thin = make_layer(
        "dm-3", "253:3", Kind.THIN, "dm-2", target="thin", granularity=MIB, mapped_bytes=4 * MIB
    )
    pool = make_layer(
        "dm-2", "253:2", Kind.THIN_POOL, "dm-1", "dm-0", chunk_bytes=MIB, mode=PoolMode.READ_WRITE
    )
    data, meta = (make_layer(f"dm-{n}", f"253:{n}", Kind.DM, "nvme0n1", target="linear") for n in (1, 0))
    data = replace(data, table=(DmTarget(0, 2048, "linear", ("259:0", "2048")),))
    pool = replace(pool, unknown={Unread.STATUS: "dmsetup says nothing"})
    layers = (thin, pool, data, make_layer("nvme0n1", "259:0", nuse_blocks=7), meta)
    flows = [make_extent_flow("253:3", 8 * MIB), make_flow(Stage.BIO, "253:3", 8 * MIB, disk="dm-3")]
    changed = make_layer("dm-3", "253:3", Kind.THIN, "dm-2", target="thin", granularity=MIB, mapped_bytes=MIB)
    return make_evidence(make_stack(*layers), flows, 8 * MIB, after=make_stack(changed, *layers[1:]))


def _make_watched_array() -> AuditEvidence:
    """Another process trims btrfs on an array, and a member fails some of the discards."""
    members = [make_layer(name, dev) for name, dev in (("sdb", "8:16"), ("sdc", "8:32"))]
    array = make_layer("md0", "9:0", Kind.MD, "sdb", "sdc", level="raid1", raid_disks=2)
    layers = make_stack(array, *members, kind="btrfs")
    assert layers.filesystem
    facts = BtrfsFacts(fsid="5f3a", profiles=("data/single",), discardable_bytes=0)
    layers = replace(layers, filesystem=replace(layers.filesystem, facts=facts, unknown={"zoned": "no file"}))
    flows = (
        make_flow(Stage.FITRIM, "9:0", 4 * MIB, disk="fstrim", who=SenderKind.OTHER),
        make_flow(Stage.BIO, "9:0", 4 * MIB, disk="md0", who=SenderKind.OTHER),
        *make_disk_flows("sdb", "9:0", 4 * MIB, who=SenderKind.KERNEL),
        make_flow(Stage.DONE, "9:0", 4 * MIB, disk="sdc", status=10, who=SenderKind.KERNEL),
    )
    sender = Origin("md0", "9:0", "fstrim", 77, "discard", SenderKind.OTHER, 2, 4 * MIB, MIB, 3 * MIB, 0)
    return AuditEvidence(layers, layers, Trace(flows, (sender,), misses=3, claims_seen=True), settled=False)


def make_sample_audits() -> list[SeenAudit]:
    """Return one audit of each kind."""
    crypt = make_layer("dm-0", "253:0", Kind.CRYPT, "sda", max_bytes=0, label="c0", allow_discards=False)
    loop = make_layer("loop0", "7:0", Kind.LOOP, backing_file="/an image", backing_filesystem="overlay")
    refused = make_evidence(make_stack(crypt, make_layer("sda", "8:0")), [], None, error=errno.EOPNOTSUPP)
    on_image = [make_extent_flow("7:0", MIB), make_flow(Stage.BIO, "7:0", MIB, disk="loop0")]
    on_image += [make_flow(stage, "7:0", MIB, disk="loop0", status=1) for stage in (Stage.ISSUED, Stage.DONE)]
    bare = Stack(None, (make_layer("sdd", "8:48"),))
    return [
        SeenAudit("/mnt/data", _make_full_disk()),
        SeenAudit("/mnt/thin", _make_thin_pool()),
        SeenAudit("/mnt/array", _make_watched_array(), "where programs do not run"),
        SeenAudit("/mnt/crypt", refused),
        SeenAudit("/mnt/im\udcffage", make_evidence(make_stack(loop, kind="xfs"), on_image, MIB)),
        SeenAudit("sdd", AuditEvidence(bare, bare, Trace(()))),
    ]
