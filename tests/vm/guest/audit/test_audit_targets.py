"""`opwatch trim audit` through targets of device mapper with threads, copied requests or own splits."""

from __future__ import annotations

import contextlib
import os
import signal
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from opwatch.collectors.audit.discards import DiscardTracer
from opwatch.host.device import Devices
from opwatch.trim.audit.flow import Stage, Who
from tests.kernel.support import trims
from tests.kernel.support.load import discards
from tests.vm.guest.support.audits import (
    MIB,
    Audit,
    Verdict,
    audit,
    audited,
    codes,
    filesystem,
    freed,
    full_loop,
    image,
    leaf,
    row,
)
from tests.vm.guest.support.scsidebug import scsi_debug
from tests.vm.guest.support.shell import call, put
from tests.vm.guest.support.stacked import blank, mapped, multipath, sectors
from tests.vm.requirements import need_module

# By hand: it would take CI beyond its time on a slow machine.
TIERS = ()
DEVICES = ("virtio-blk-nodiscard",)
SECTOR = 512


def arrived_at(found: Audit, *loops: str) -> int:
    """Bytes of an audit in which nothing was lost, by what the files below lack."""
    assert (found.verdict, found.unexplained_bytes) == (Verdict.ACCEPTED, 0), found.rows
    assert found.evidence.trace.loss == (0, 0, 0, 0, 0)
    assert [leaf(found, loop).bytes_ok for loop in loops] == [freed(loop) for loop in loops]
    top = found.rows[1]
    assert top.bytes_in == top.bytes_ok == found.claimed_bytes
    assert not codes(found)
    return sum(freed(loop) for loop in loops)


# A target, what follows "0 SECTORS TARGET", and its modules; {0} is the disk, {1} a helper beside it.
HELPED = {
    "era": ("/dev/{1} /dev/{0} 2048", "dm_era"),
    "writecache": ("s /dev/{0} /dev/{1} 4096 0", "dm_writecache"),
    "log-writes": ("/dev/{0} /dev/{1}", "dm_log_writes"),
    "delay": ("/dev/{0} 0 5", "dm_delay"),
}


@pytest.mark.parametrize("target", HELPED)
def test_one_disk(target: str) -> None:
    arguments, module = HELPED[target]
    with full_loop() as disk, full_loop(64 * MIB) as helper:
        blank(helper)
        table = f"0 {sectors(disk)} {target} {arguments.format(disk, helper)}"
        with mapped(target, table, module) as top:
            found = audited(top.name, "ext4", disk)
            assert arrived_at(found, disk) == found.claimed_bytes


def test_stripes() -> None:
    with full_loop() as one, full_loop() as two:
        table = f"0 {2 * sectors(one)} striped 2 256 /dev/{one} 0 /dev/{two} 0"
        with mapped("striped", table, "dm_mod") as top:
            found = audited(top.name, "ext4", one, two)
            assert arrived_at(found, one, two) == found.claimed_bytes


def test_the_mirror_before_raid() -> None:
    with full_loop() as one, full_loop() as two:
        table = f"0 {sectors(one)} mirror core 2 1024 nosync 2 /dev/{one} 0 /dev/{two} 0"
        with mapped("mirror", table, "dm_mirror") as top:
            found = audited(top.name, "ext4", one, two)
            assert found.claimed_bytes == freed(one) == freed(two)
            assert arrived_at(found, one, two) == found.reached_bytes


@pytest.mark.parametrize("discards", [False, True])
def test_integrity(discards: bool) -> None:
    options = "2 internal_hash:crc32c allow_discards" if discards else "1 internal_hash:crc32c"
    with full_loop() as disk:
        # It writes its superblock, with the size that is left, when it finds none.
        blank(disk)
        with mapped("integrity", f"0 8 integrity /dev/{disk} 0 4 D {options}"):
            pass
        [size] = struct.unpack_from("<Q", Path(f"/dev/{disk}").read_bytes()[:SECTOR], 16)
        with mapped("integrity", f"0 {size} integrity /dev/{disk} 0 4 D {options}") as top:
            node = f"of=/dev/{top.name}"
            count = f"count={size * SECTOR // MIB}"
            call("dd", "if=/dev/zero", node, "bs=1M", count, "oflag=direct", "status=none")
            found = audited(top.name, "ext4", disk)
            if discards:
                assert arrived_at(found, disk) == found.claimed_bytes
            else:
                assert freed(disk) == 0
    if not discards:
        assert (found.verdict, list(codes(found))) == (Verdict.NOT_SENT, ["integrity-no-discards"])


@pytest.mark.parametrize("mode", ["0", "2 queue_mode bio", "2 queue_mode mq"], ids=["default", "bio", "mq"])
def test_multipath(mode: str) -> None:
    """Requests that it copies have bios that pass no event of their own. The disk's map is the oracle."""
    with scsi_debug(lbpws=0) as disk:
        disk.fill()
        with multipath(disk.name, mode) as top, filesystem(top.name, "ext4") as point:
            call("sync")
            before = disk.mapped_blocks()
            found = audit(point)
            gone = (before - disk.mapped_blocks()) * SECTOR
    assert (found.verdict, found.unexplained_bytes) == (Verdict.PROVEN, 0), found.rows
    assert found.reached_bytes == found.claimed_bytes == gone > 16 * MIB
    for each in (row(found, "multipath"), row(found, "disk")):
        assert each.bytes_in == each.bytes_out == each.bytes_ok == gone
    assert found.evidence.trace.loss == (0, 0, 0, 0, 0)


@contextlib.contextmanager
def readers(disk: str, count: int) -> Iterator[None]:
    """Processes that read a disk all the time."""
    loop = f"while dd if=/dev/{disk} of=/dev/null bs=4k count=400 iflag=direct status=none; do :; done"
    running = [subprocess.Popen(["sh", "-c", loop], start_new_session=True) for _ in range(count)]
    try:
        yield
    finally:
        for each in running:
            os.killpg(each.pid, signal.SIGKILL)
            each.wait()


def test_a_path_that_is_busy_gives_copies_back() -> None:
    """One command at a time, and others that read: the copy that does not come through is made again."""
    with scsi_debug(lbpws=0, max_queue=1, delay=1) as disk:
        disk.fill()
        with multipath(disk.name) as top, filesystem(top.name, "ext4") as point:
            fragmented(point)
            before = disk.mapped_blocks()
            with readers(top.name, 6):
                found = audit(point)
            gone = (before - disk.mapped_blocks()) * SECTOR
    assert found.verdict in (Verdict.PROVEN, Verdict.ACCEPTED), found.rows
    assert (found.unexplained_bytes, found.evidence.trace.loss) == (0, (0, 0, 0, 0, 0))
    assert found.reached_bytes == found.claimed_bytes == gone > 16 * MIB
    for each in (row(found, "multipath"), row(found, "disk")):
        assert each.bytes_in == each.bytes_out == each.bytes_ok == gone


def fragmented(point: Path) -> None:
    """Some hundred free extents."""
    files = [point / str(number) for number in range(600)]
    for file in files:
        file.write_bytes(b"x" * 20_000)
    call("sync")
    for file in files[::2]:
        file.unlink()
    call("sync")


def test_each_copied_request_counts_once() -> None:
    """Seven discards of half a MiB, of this process, on the device and on its path."""
    with scsi_debug(lbpws=0) as disk, multipath(disk.name) as top:
        devices = [Devices().resolve(name) for name in (top.name, disk.name)]
        with DiscardTracer(devices, {}) as tracer:
            tracer.follow(os.getpid())
            discards(f"/dev/{top.name}", 7)
            tracer.wait_quiet(0.1, 5)
            trace = tracer.read()
        seen = (Stage.BIO, Stage.ISSUED, Stage.DONE)
        stages = [*((top.name, each) for each in seen), *((disk.name, each) for each in seen[1:])]
        for device, stage in stages:
            [one] = trace.select(stage, disk=device)
            assert (one.who, one.status) == (Who.OURS, 0)
            assert (one.amount.count, one.amount.ranges, one.amount.bytes) == (7, 7, 7 << 19)
        assert trace.loss == (0, 0, 0, 0, 0)


@contextlib.contextmanager
def raid(kind: str, data: int, members: int) -> Iterator[tuple[str, list[str]]]:
    """An array of the target raid, with a device of metadata for each member; its name and its members."""
    for module in ("raid0", "raid1", "raid10", "raid456", "dm_raid"):
        need_module(module)
    put(Path("/sys/module/dm_raid/parameters/devices_handle_discard_safely"), "Y")
    with contextlib.ExitStack() as held:
        loops = [held.enter_context(full_loop(192 * MIB)) for _ in range(members)]
        metadata = [held.enter_context(full_loop(4 * MIB)) for _ in range(members)]
        options = {"raid0": "1 128", "raid1": "3 0 region_size 1024"}.get(kind, "3 128 region_size 1024")
        pairs = " ".join(f"/dev/{meta} /dev/{loop}" for meta, loop in zip(metadata, loops, strict=True))
        table = f"0 {160 * 2048 * data} raid {kind} {options} {members} {pairs}"
        yield held.enter_context(mapped("raid", table, "dm_raid")).name, loops


@pytest.mark.parametrize(("kind", "data", "members"), [("raid0", 2, 2), ("raid1", 1, 2), ("raid10", 2, 4)])
def test_raids(kind: str, data: int, members: int) -> None:
    """Discards longer than 64 MiB, at which RAID 1 and 10 split and send the rest to themselves."""
    with raid(kind, data, members) as (top, loops):
        found = audited(top, "ext4", *loops)
        copies = members // data
        assert arrived_at(found, *loops) == found.reached_bytes == copies * (found.claimed_bytes or 0)
        assert leaf(found, top).bytes_out == found.reached_bytes
        assert leaf(found, top).note == (f"{copies} copies" if copies > 1 else None)


@pytest.mark.parametrize(("kind", "data", "members"), [("raid5_ls", 2, 3), ("raid6_zr", 3, 5)])
def test_raids_with_parity(kind: str, data: int, members: int) -> None:
    with raid(kind, data, members) as (top, loops):
        found = audited(top, "ext4", *loops)
        gone = [freed(loop) for loop in loops]
    assert set(gone) == {gone[0]}
    assert found.reached_bytes == sum(gone)
    assert found.claimed_bytes
    assert codes(found) == {"raid456-partial-stripe": found.claimed_bytes - gone[0] * data}
    assert (found.verdict, found.unexplained_bytes) == (Verdict.PARTIAL, 0)


@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_a_disk_in_memory_without_requests(kind: str) -> None:
    need_module("brd", "rd_nr=1", "rd_size=262144")
    takes_discards = Path("/sys/block/ram0/queue/discard_max_bytes").read_text().strip() != "0"
    with filesystem("ram0", kind) as point:
        found = audit(point)
    if not takes_discards:
        assert (found.verdict, list(codes(found))) == (Verdict.NOT_SENT, ["device-no-discards"])
        return
    assert (found.verdict, found.unexplained_bytes, codes(found)) == (Verdict.ACCEPTED, 0, {"advisory": None})
    sent = row(found, "filesystem").bytes_out
    assert found.reached_bytes == sent == row(found, "disk").bytes_ok


def test_clusters_of_ext4() -> None:
    """Its event counts clusters, sixteen blocks each."""
    with full_loop() as disk:
        options = ("-O", "bigalloc", "-C", "65536", "-E", "nodiscard,lazy_itable_init=0")
        trims.run("mkfs.ext4", "-q", "-F", "-b", "4096", *options, f"/dev/{disk}")
        with filesystem(disk, "ext4", make=False) as point:
            os.sync()
            trims.fill_holes(image(disk))
            found = audit(point)
            assert arrived_at(found, disk) == found.claimed_bytes
    assert row(found, "filesystem").bytes_out == found.claimed_bytes
