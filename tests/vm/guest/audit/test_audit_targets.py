"""`opwatch trim audit` through device mapper targets that use threads, clone requests or split bios."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from opwatch.collectors.audit.discards import DiscardTracer
from opwatch.errors import RefusedError
from opwatch.host.device import Devices
from opwatch.tools import cli
from opwatch.trim.audit.flow import SenderKind, Stage
from tests.kernel.support import trims
from tests.kernel.support.load import discards
from tests.vm.guest.support import sysfs
from tests.vm.guest.support.audits import (
    MIB,
    Audit,
    Verdict,
    audit_new_filesystem,
    audit_point,
    count_freed_bytes,
    find_image,
    find_leaf_row,
    find_row,
    fragment_free_space,
    full_loop,
    mount_filesystem,
    sum_reasons,
)
from tests.vm.guest.support.formats.vdo import BLOCK, create_vdo
from tests.vm.guest.support.scsidebug import load_scsi_debug
from tests.vm.guest.support.shell import run_command, write_attribute
from tests.vm.guest.support.stacked import (
    blank_start,
    count_sectors,
    create_mapped,
    create_multipath,
    read_integrity_sectors,
)
from tests.vm.guest.support.trims import run_check
from tests.vm.requirements import need_module

# Manual runs only: these tests would exceed CI's time limit on a slow machine.
TIERS = ()
DEVICES = ("virtio-blk-nodiscard",)
SECTOR = 512


def check_freed_bytes(result: Audit, *loops: str) -> int:
    """Check that the audit lost nothing, and return the bytes freed in the backing files."""
    assert (result.verdict, result.unexplained_bytes) == (Verdict.ACCEPTED, 0), result.rows
    assert result.evidence.trace.loss == (0, 0, 0, 0, 0)
    assert [find_leaf_row(result, loop).bytes_ok for loop in loops] == [
        count_freed_bytes(loop) for loop in loops
    ]
    top = result.rows[1]
    assert top.bytes_in == top.bytes_ok == result.claimed_bytes
    assert not sum_reasons(result)
    return sum(count_freed_bytes(loop) for loop in loops)


# Target: arguments after "0 SECTORS TARGET", and module; {0} is the disk, {1} a helper device.
HELPER_TARGETS = {
    "era": ("/dev/{1} /dev/{0} 2048", "dm_era"),
    "writecache": ("s /dev/{0} /dev/{1} 4096 0", "dm_writecache"),
    "log-writes": ("/dev/{0} /dev/{1}", "dm_log_writes"),
    "delay": ("/dev/{0} 0 5", "dm_delay"),
}


@pytest.mark.parametrize("target", HELPER_TARGETS)
def test_target_on_a_single_disk_frees_the_claimed_bytes(target: str) -> None:
    arguments, module = HELPER_TARGETS[target]
    with full_loop() as disk, full_loop(64 * MIB) as helper:
        blank_start(helper)
        table = f"0 {count_sectors(disk)} {target} {arguments.format(disk, helper)}"
        with create_mapped(target, table, module) as top:
            result = audit_new_filesystem(top.name, "ext4", disk)
            assert check_freed_bytes(result, disk) == result.claimed_bytes


def test_striped_target_frees_the_claimed_bytes() -> None:
    with full_loop() as one, full_loop() as two:
        table = f"0 {2 * count_sectors(one)} striped 2 256 /dev/{one} 0 /dev/{two} 0"
        with create_mapped("striped", table, "dm_mod") as top:
            result = audit_new_filesystem(top.name, "ext4", one, two)
            assert check_freed_bytes(result, one, two) == result.claimed_bytes


def test_legacy_mirror_target_frees_bytes_on_both_legs() -> None:
    with full_loop() as one, full_loop() as two:
        table = f"0 {count_sectors(one)} mirror core 2 1024 nosync 2 /dev/{one} 0 /dev/{two} 0"
        with create_mapped("mirror", table, "dm_mirror") as top:
            result = audit_new_filesystem(top.name, "ext4", one, two)
            assert result.claimed_bytes == count_freed_bytes(one) == count_freed_bytes(two)
            assert check_freed_bytes(result, one, two) == result.reached_bytes


@pytest.mark.parametrize("discards", [False, True])
def test_integrity_frees_bytes_only_with_allow_discards(discards: bool) -> None:
    options = "2 internal_hash:crc32c allow_discards" if discards else "1 internal_hash:crc32c"
    with full_loop() as disk:
        table = f"integrity /dev/{disk} 0 4 D {options}"
        size = read_integrity_sectors(disk, table)
        with create_mapped("integrity", f"0 {size} {table}") as top:
            node = f"of=/dev/{top.name}"
            count = f"count={size * SECTOR // MIB}"
            run_command("dd", "if=/dev/zero", node, "bs=1M", count, "oflag=direct", "status=none")
            result = audit_new_filesystem(top.name, "ext4", disk)
            if discards:
                assert check_freed_bytes(result, disk) == result.claimed_bytes
            else:
                assert count_freed_bytes(disk) == 0
    if not discards:
        assert (result.verdict, list(sum_reasons(result))) == (Verdict.NOT_SENT, ["integrity-no-discards"])


@pytest.mark.parametrize("first", [0, 3])
def test_integrity_areas_that_start_inside_a_block_are_predicted(first: int) -> None:
    """Integrity's limits do not show where its data starts; opwatch computes the offset from the table."""
    with (
        full_loop() as disk,
        create_mapped("linear", f"0 {count_sectors(disk) - 8} linear /dev/{disk} {first}", "dm_mod") as below,
    ):
        table = f"integrity /dev/{below.name} 0 4 D 2 internal_hash:crc32c allow_discards"
        with create_mapped("integrity", f"0 {read_integrity_sectors(below.name, table)} {table}") as top:
            run_command("blkdiscard", "--force", f"/dev/{top.name}")
            with mount_filesystem(top.name, "ext4") as point:
                run_command("sync")
                trims.fill_holes(find_image(disk))
                foretold = run_check(point)
                result = audit_point(point)
            gone = count_freed_bytes(disk)
    assert result.reached_bytes == gone == foretold.expected_bytes > 16 * MIB
    assert (foretold.outlook, result.unexplained_bytes) == ("part" if first else "reaches", 0), result.rows
    assert (result.verdict is Verdict.PARTIAL) == bool(first)


@pytest.mark.parametrize("mode", ["0", "2 queue_mode bio", "2 queue_mode mq"], ids=["default", "bio", "mq"])
def test_multipath_frees_the_claimed_bytes(mode: str) -> None:
    """dm-multipath clones requests, and the bios of a clone pass no events. The disk's map is the oracle."""
    with load_scsi_debug(lbpws=0) as disk:
        disk.write_start()
        with create_multipath(disk.name, mode) as top, mount_filesystem(top.name, "ext4") as point:
            run_command("sync")
            before = disk.count_mapped_blocks()
            result = audit_point(point)
            gone = (before - disk.count_mapped_blocks()) * SECTOR
    assert (result.verdict, result.unexplained_bytes) == (Verdict.PROVEN, 0), result.rows
    assert result.reached_bytes == result.claimed_bytes == gone > 16 * MIB
    for line in (find_row(result, "multipath"), find_row(result, "disk")):
        assert line.bytes_in == line.bytes_out == line.bytes_ok == gone
    assert result.evidence.trace.loss == (0, 0, 0, 0, 0)


@contextlib.contextmanager
def run_readers(disk: str, count: int) -> Iterator[None]:
    """Run processes that read a disk continuously."""
    loop = f"while dd if=/dev/{disk} of=/dev/null bs=4k count=400 iflag=direct status=none; do :; done"
    running = [subprocess.Popen(["sh", "-c", loop], start_new_session=True) for _ in range(count)]
    try:
        yield
    finally:
        for reader in running:
            os.killpg(reader.pid, signal.SIGKILL)
            reader.wait()


def test_clones_refused_by_a_busy_path_count_once() -> None:
    """One command at a time, with competing readers: a refused clone is cloned again."""
    with load_scsi_debug(lbpws=0, max_queue=1, delay=1) as disk:
        disk.write_start()
        with create_multipath(disk.name) as top, mount_filesystem(top.name, "ext4") as point:
            fragment_free_space(point, [20_000] * 600)
            before = disk.count_mapped_blocks()
            with run_readers(top.name, 6):
                result = audit_point(point)
            gone = (before - disk.count_mapped_blocks()) * SECTOR
    assert result.verdict in (Verdict.PROVEN, Verdict.ACCEPTED), result.rows
    assert (result.unexplained_bytes, result.evidence.trace.loss) == (0, (0, 0, 0, 0, 0))
    assert result.reached_bytes == result.claimed_bytes == gone > 16 * MIB
    for line in (find_row(result, "multipath"), find_row(result, "disk")):
        assert line.bytes_in == line.bytes_out == line.bytes_ok == gone


def test_each_cloned_request_counts_once() -> None:
    """Seven discards of 512 KiB by this process, on the device and on the path."""
    with load_scsi_debug(lbpws=0) as disk, create_multipath(disk.name) as top:
        devices = [Devices().resolve(name) for name in (top.name, disk.name)]
        with DiscardTracer(devices, {}) as tracer:
            tracer.follow_process(os.getpid())
            discards(f"/dev/{top.name}", 7)
            tracer.wait_quiet(0.1, 5)
            trace = tracer.read_trace()
        stages_below = (Stage.BIO, Stage.ISSUED, Stage.DONE)
        stages = [
            *((top.name, stage) for stage in stages_below),
            *((disk.name, stage) for stage in stages_below[1:]),
        ]
        for device, stage in stages:
            [one] = trace.select(stage, disk=device)
            assert (one.who, one.status) == (SenderKind.FOLLOWED, 0)
            assert (one.amount.count, one.amount.ranges, one.amount.bytes) == (7, 7, 7 << 19)
        assert trace.loss == (0, 0, 0, 0, 0)


@contextlib.contextmanager
def create_dm_raid(kind: str, data: int, members: int) -> Iterator[tuple[str, list[str]]]:
    """Yield an array of dm-raid, with a metadata device for each member, and its members."""
    for module in ("raid0", "raid1", "raid10", "raid456", "dm_raid"):
        need_module(module)
    write_attribute(Path("/sys/module/dm_raid/parameters/devices_handle_discard_safely"), "Y")
    with contextlib.ExitStack() as opened:
        loops = [opened.enter_context(full_loop(192 * MIB)) for _ in range(members)]
        metadata = [opened.enter_context(full_loop(4 * MIB)) for _ in range(members)]
        options = {"raid0": "1 128", "raid1": "4 0 nosync region_size 1024"}
        # RAID 6 does not accept nosync, and computes its parity while the test runs.
        parity = "3 128 region_size 1024" if kind.startswith("raid6") else "4 128 nosync region_size 1024"
        pairs = " ".join(f"/dev/{meta} /dev/{loop}" for meta, loop in zip(metadata, loops, strict=True))
        table = f"0 {160 * 2048 * data} raid {kind} {options.get(kind, parity)} {members} {pairs}"
        yield opened.enter_context(create_mapped("raid", table, "dm_raid")).name, loops


@pytest.mark.parametrize(("kind", "data", "members"), [("raid0", 2, 2), ("raid1", 1, 2), ("raid10", 2, 4)])
def test_dm_raid_frees_the_claimed_bytes_on_every_copy(kind: str, data: int, members: int) -> None:
    """Discards longer than 64 MiB: RAID 1 and 10 split there and resubmit the rest to themselves."""
    with create_dm_raid(kind, data, members) as (top, loops):
        result = audit_new_filesystem(top, "ext4", *loops)
        copies = members // data
        assert (
            check_freed_bytes(result, *loops) == result.reached_bytes == copies * (result.claimed_bytes or 0)
        )
        assert find_leaf_row(result, top).bytes_out == result.reached_bytes
        assert find_leaf_row(result, top).note == (f"{copies} copies" if copies > 1 else None)


@pytest.mark.parametrize(("kind", "data", "members"), [("raid5_ls", 2, 3), ("raid6_zr", 3, 5)])
def test_dm_raid_with_parity_frees_whole_stripes_only(kind: str, data: int, members: int) -> None:
    with create_dm_raid(kind, data, members) as (top, loops):
        result = audit_new_filesystem(top, "ext4", *loops)
        gone = [count_freed_bytes(loop) for loop in loops]
    assert set(gone) == {gone[0]}
    assert result.reached_bytes == sum(gone)
    assert result.claimed_bytes
    partial = {"raid456-partial-stripe": result.claimed_bytes - gone[0] * data}
    # RAID 6 may still be computing its parity.
    writes = (
        {"array-writes": None} if "array-writes" in sum_reasons(result) and kind.startswith("raid6") else {}
    )
    assert sum_reasons(result) == partial | writes
    assert (result.verdict, result.unexplained_bytes) == (Verdict.PARTIAL, 0)


@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_brd_disk_reaches_the_sent_bytes(kind: str) -> None:
    need_module("brd", "rd_nr=1", "rd_size=262144")
    takes_discards = Path("/sys/block/ram0/queue/discard_max_bytes").read_text().strip() != "0"
    with mount_filesystem("ram0", kind) as point:
        result = audit_point(point)
    if not takes_discards:
        assert (result.verdict, list(sum_reasons(result))) == (Verdict.NOT_SENT, ["device-no-discards"])
        return
    assert (result.verdict, result.unexplained_bytes, sum_reasons(result)) == (
        Verdict.ACCEPTED,
        0,
        {"advisory": None},
    )
    sent = find_row(result, "filesystem").bytes_out
    assert result.reached_bytes == sent == find_row(result, "disk").bytes_ok


def _watch_fstrim(point: Path) -> tuple[str, int, int, set[str]]:
    """Return (verdict, bytes reached, bytes unexplained, causes) of a watched fstrim."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        cli.main(["trim", "audit", "--json", "--watch", str(point), "--", "fstrim", str(point)])
    document = json.loads(out.getvalue())
    causes = {reason["code"] for row in document["ledger"] for reason in row["reasons"]}
    return document["verdict"], document["reached_bytes"], document["unexplained_bytes"], causes


def test_audit_refuses_a_path_with_a_lowered_limit() -> None:
    """If the lowered limit is not propagated upwards, the first discard fails the path. check warns, audit
    refuses, and a watch of another process's trim reports the cause."""
    with (
        full_loop() as disk,
        trims.lower_limit(disk, 65536),
        create_multipath(disk, "0") as top,
        mount_filesystem(top.name, "ext4") as point,
    ):
        run_command("sync")
        trims.fill_holes(find_image(disk))
        is_longer = int((sysfs.SYS_BLOCK / top.name / "queue/discard_max_bytes").read_text()) > 65536
        foretold = run_check(point)
        if is_longer:
            with pytest.raises(RefusedError, match=rf"limit-shorter.*--watch {point}"):
                audit_point(point)
            assert count_freed_bytes(disk) == 0
        verdict, reached, unexplained, causes = _watch_fstrim(point)
        gone = count_freed_bytes(disk)
    assert (reached, unexplained) == (gone, 0)
    assert (verdict in ("REJECTED", "PARTIAL")) == is_longer
    assert ("limit-shorter" in foretold.reason_codes) == ("limit-shorter" in causes) == is_longer
    assert foretold.outlook == ("unknown" if is_longer else "reaches")


@pytest.mark.parametrize("target", ["writecache", "integrity"])
def test_discards_split_inside_a_block_are_rejected(target: str) -> None:
    """A discard over the disk's limit is split at the disk's granules, and these targets fail the pieces."""
    with (
        load_scsi_debug(unmap_granularity=8, unmap_max_blocks=128, lbpws=0) as disk,
        full_loop(64 * MIB) as helper,
        create_mapped(
            "linear", f"0 {count_sectors(disk.name) - 8} linear /dev/{disk.name} 7", "dm_mod"
        ) as below,
    ):
        disk.write_start()
        blank_start(helper)
        if target == "writecache":
            size, table = count_sectors(below.name), f"writecache s /dev/{below.name} /dev/{helper} 4096 0"
        else:
            table = f"integrity /dev/{below.name} 0 4 D 3 internal_hash:crc32c allow_discards block_size:4096"
            size = read_integrity_sectors(below.name, table)
        with create_mapped(target, f"0 {size} {table}") as top:
            # dm-integrity only has checksums of blocks that were written.
            run_command(
                "dd", "if=/dev/zero", f"of=/dev/{top.name}", "bs=4k", f"count={size // 8}", "oflag=direct"
            )
            with mount_filesystem(top.name, "ext4") as point:
                run_command("sync")
                before = disk.count_mapped_blocks()
                foretold = run_check(point)
                result = audit_point(point)
                gone = (before - disk.count_mapped_blocks()) * 8 * SECTOR
    assert (foretold.outlook, "block-cut" in foretold.reason_codes) == ("unknown", True)
    assert (result.verdict, result.unexplained_bytes) == (Verdict.REJECTED, 0), result.rows
    assert result.reached_bytes == gone == 0
    assert (sum_reasons(result)["block-cut"] or 0) > 16 * MIB


def test_ext4_clusters_free_the_claimed_bytes() -> None:
    """ext4's event counts clusters of sixteen blocks each."""
    with full_loop() as disk:
        options = ("-O", "bigalloc", "-C", "65536", "-E", "nodiscard,lazy_itable_init=0")
        trims.run("mkfs.ext4", "-q", "-F", "-b", "4096", *options, f"/dev/{disk}")
        with mount_filesystem(disk, "ext4", make=False) as point:
            os.sync()
            trims.fill_holes(find_image(disk))
            result = audit_point(point)
            assert check_freed_bytes(result, disk) == result.claimed_bytes
    assert find_row(result, "filesystem").bytes_out == result.claimed_bytes


def _read_vdo_usage(label: str) -> int:
    """Return the bytes that VDO uses for data and metadata."""
    words = run_command("dmsetup", "status", label).split()
    return int(words[words.index("vdo") + 6]) * BLOCK


def test_vdo_keeps_the_freed_bytes_from_its_disk() -> None:
    deleted = 32 * MIB
    with (
        full_loop(512 * MIB) as disk,
        create_vdo(disk, 256 * MIB) as top,
        mount_filesystem(top.name, "ext4") as point,
    ):
        victim = point / "victim"
        # VDO stores no blocks of zeroes.
        victim.write_bytes(os.urandom(deleted))
        run_command("sync")
        trims.fill_holes(find_image(disk))
        before = _read_vdo_usage(top.label)
        victim.unlink()
        run_command("sync")
        foretold = run_check(point)
        result = audit_point(point)
        after = _read_vdo_usage(top.label)
        assert count_freed_bytes(disk) == 0
    # Writes of the journal take some blocks in the meantime.
    assert before - after > deleted - MIB
    assert (foretold.outlook, foretold.reason_codes & {"vdo-keeps"}) == ("nothing", {"vdo-keeps"})
    assert (result.verdict, result.reached_bytes, result.unexplained_bytes) == (Verdict.NOT_SENT, 0, 0)
    assert list(sum_reasons(result)) == ["vdo-keeps"]
    assert result.claimed_bytes and result.claimed_bytes > deleted
