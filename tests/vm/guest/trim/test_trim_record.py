"""Recordings on real drivers, compared with scsi_debug's own map and with raw reads, also with commands that
bypass the block layer."""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import mmap
import os
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from opwatch.collectors.history.changes import ChangeTracer
from opwatch.collectors.history.recorder import HistoryRecorder
from opwatch.collectors.space.free_space import read_free_space
from opwatch.collectors.space.lba_status import read_mapped_extents
from opwatch.collectors.space.raw_disk import RawDisk
from opwatch.host.device import Devices
from opwatch.tools import cli
from opwatch.tools.acting.trim.fitrim import require_mount
from opwatch.trim.history.changes import ChangeKind, DiskChange, decode_changes
from opwatch.trim.history.sectormap import SectorState
from opwatch.trim.space.extents import Extents
from tests.kernel.support.filesystems import wait_until_settled
from tests.kernel.support.load import BLKDISCARD, discards, flushes, open_direct, reads, writes
from tests.vm.guest.support import sysfs
from tests.vm.guest.support.scsidebug import load_scsi_debug
from tests.vm.guest.support.shell import run_command
from tests.vm.guest.support.trims import MIB, mount_with_files
from tests.vm.requirements import need_tool

# Manual runs only: these tests would exceed CI's time limit.
TIERS = ()
DEVICES = ("nvme", "virtio-blk", "ahci")
TIMEOUT_S = 1800


def record_load(disk: str, path: Path, load: Callable[[], object]) -> HistoryRecorder:
    """Record a load and return the recorder; no event may be lost here."""
    device = Devices().by_name(disk)
    assert device
    recording = HistoryRecorder(Devices(), device, path)
    try:
        load()
        assert recording.process_changes()
    finally:
        recording.close()
    return recording


def list_known_extents(recording: HistoryRecorder, state: SectorState) -> Extents:
    return recording.history.map.collect_extents(state)


def scatter_changes(disk: str, seed: int, size: int, unit: int, step: int) -> None:
    """Write in units, and discard ranges that start and end at any multiple of `step`."""
    rng = random.Random(seed)
    pattern = mmap.mmap(-1, 1 << 18)
    pattern.write(rng.randbytes(1 << 18))
    with open_direct(f"/dev/{disk}") as descriptor:
        fcntl.ioctl(descriptor, BLKDISCARD, struct.pack("=QQ", 0, size))
        for _ in range(150):
            length = rng.choice((1, 3, 16, 64)) * unit
            if rng.random() < 0.6:
                at = rng.randrange((size - length) // unit) * unit
                os.pwritev(descriptor, [memoryview(pattern)[:length]], at)
            else:
                at = rng.randrange((size - length) // step) * step
                fcntl.ioctl(descriptor, BLKDISCARD, struct.pack("=QQ", at, length))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("granule", "unit", "step"), [(1, 512, 512), (8, 4096, 4096), (8, 4096, 512)])
def test_recorded_map_equals_the_map_of_scsi_debug(
    granule: int, unit: int, step: int, seed: int, tmp_path: Path
) -> None:
    with load_scsi_debug(dev_size_mb=32, unmap_granularity=granule) as scsi:
        device = Devices().by_name(scsi.name)
        assert device
        truth: list[Extents | None] = []

        def run_load() -> None:
            scatter_changes(scsi.name, seed, 32 * MIB, unit, step)
            # Read the map with a command that bypasses the block layer and changes nothing.
            truth.append(read_mapped_extents(device))

        recording = record_load(scsi.name, tmp_path / "x", run_load)
        [mapped] = truth
        assert mapped is not None and mapped.total_bytes == scsi.count_mapped_blocks() * 512 * granule
        assert recording.history.forgotten == {}
        written, unknown = (
            list_known_extents(recording, SectorState.WRITTEN),
            list_known_extents(recording, SectorState.UNKNOWN),
        )
        if step == unit:
            assert written == mapped
            assert not unknown
        else:
            # Sectors in a partly discarded granule may be held or not; scsi_debug holds them.
            assert unknown
            assert not written - mapped
            assert not mapped - (written | unknown)
        look = recording.make_checkpoint()
        assert (look.written_slack, look.discarded_slack) == (0, 0)


def test_destructive_scsi_passthrough_command_clears_the_map(tmp_path: Path) -> None:
    need_tool("sg_inq")
    with load_scsi_debug(unmap_granularity=8) as scsi:
        node = f"/dev/{scsi.name}"

        def send_harmless() -> None:
            writes(node, 11)
            run_command("sg_inq", node)
            run_command("sg_readcap", "--16", node)
            run_command("sg_get_lba_status", node)

        def send_destructive() -> None:
            writes(node, 11)
            run_command("sg_unmap", "--lba=0", "--num=8", "--force", node)

        recording = record_load(scsi.name, tmp_path / "x", send_harmless)
        assert recording.history.forgotten == {}
        assert list_known_extents(recording, SectorState.WRITTEN).total_bytes == 11 * 4096
        recording = record_load(scsi.name, tmp_path / "x", send_destructive)
        assert [*recording.history.forgotten.values()] == [1]
        assert not list_known_extents(recording, SectorState.WRITTEN)


def test_harmless_ata_passthrough_command_keeps_the_map(tmp_path: Path) -> None:
    need_tool("sg_sat_identify")
    disk = sysfs.disk("opw-ahci")

    def run_load() -> None:
        writes(f"/dev/{disk}", 11)
        discards(f"/dev/{disk}", 3)
        run_command("sg_sat_identify", f"/dev/{disk}")

    recording = record_load(disk, tmp_path / "x", run_load)
    assert recording.history.forgotten == {}
    assert list_known_extents(recording, SectorState.TRIMMED).total_bytes == 3 << 19


NVME_COMMANDS = {
    "smart-log": (("nvme", "smart-log", "/dev/{0}"), True),
    "identify": (("nvme", "id-ns", "/dev/{0}"), True),
    "read": (("nvme", "read", "/dev/{0}", "-s", "0", "-c", "7", "-z", "4096"), True),
    "dsm": (("nvme", "dsm", "/dev/{0}", "--ad", "-s", "0", "-b", "8"), False),
    "format": (("nvme", "format", "/dev/{0}", "--force"), False),
}


@pytest.mark.parametrize("name", NVME_COMMANDS)
def test_nvme_passthrough_command_clears_the_map_unless_harmless(name: str, tmp_path: Path) -> None:
    need_tool("nvme")
    disk = sysfs.disk("opw-nvme")
    argv, harmless = NVME_COMMANDS[name]

    def run_load() -> None:
        writes(f"/dev/{disk}", 11)
        run_command(*(word.format(disk) for word in argv))

    recording = record_load(disk, tmp_path / "x", run_load)
    assert (recording.history.forgotten == {}) is harmless, recording.history.forgotten
    assert bool(list_known_extents(recording, SectorState.WRITTEN)) is harmless


PRIMES = {"nvme": "opw-nvme", "virtio-blk": "opw-virtio-blk", "ahci": "opw-ahci"}


@pytest.mark.parametrize("driver", PRIMES)
def test_tracer_reports_every_kind_of_change_exactly(driver: str) -> None:
    disk = sysfs.disk(PRIMES[driver])
    device = Devices().by_name(disk)
    assert device
    node = f"/dev/{disk}"
    before = sysfs.read_stat(disk)
    tracer = ChangeTracer(device)
    reads(node, 23)
    writes(node, 29, size=8192, step=8192)
    writes(node, 7, flags=os.O_DSYNC)
    discards(node, 13)
    flushes(node, 11)
    changes = [DiskChange(*fields) for fields in decode_changes(tracer.drain_changes()[0])]
    assert tracer.read_loss() == (0, 0, 0)
    tracer.close()
    delta = sysfs.read_stat(disk) - before
    places = {
        kind: [(change.sector, change.sectors) for change in changes if change.kind == kind]
        for kind in ChangeKind
    }
    assert places[ChangeKind.WRITE] == [(at * 16, 16) for at in range(29)] + [(at * 8, 8) for at in range(7)]
    assert places[ChangeKind.DISCARD] == [(at * 2048, 1024) for at in range(13)]
    assert len(changes) == 29 + 7 + 13
    assert all(change.status == 0 and 0 < change.begin_ns < change.end_ns for change in changes)
    assert sum(size for _, size in places[ChangeKind.WRITE]) * 512 == delta.write_bytes
    assert sum(size for _, size in places[ChangeKind.DISCARD]) * 512 == delta.discard_bytes


def count_blocks(disk: str, extents: Extents) -> tuple[int, int]:
    """Return (blocks with data, blocks of zeros) among the whole blocks of the extents."""
    data = zeros = 0
    with RawDisk(disk, MIB) as raw:
        for start, end in extents.round_to_granules(4096):
            for at in range(start, end, MIB):
                content = raw.read(at, min(MIB, end - at)) or b""
                for block in range(0, len(content), 4096):
                    empty = content[block : block + 4096] == bytes(4096)
                    zeros, data = zeros + empty, data + (not empty)
    return data, zeros


def run_stale(*arguments: str | Path) -> dict[str, Any]:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert cli.main(["trim", "stale", *map(str, arguments), "--json"]) == 0
    document: dict[str, Any] = json.loads(out.getvalue())
    return document


def delete_every_other(point: Path) -> None:
    """Delete every other one of 120 small files, so that no two free ranges touch."""
    for number in range(120):
        (point / f"n{number}").write_bytes(os.urandom(8192))
        os.sync() if number % 40 == 39 else None
    for number in range(0, 120, 2):
        (point / f"n{number}").unlink()


def test_each_range_of_an_nvme_command_is_recorded(tmp_path: Path) -> None:
    """XFS with online discard gives NVMe many ranges per command: each is recorded and reads zeros."""
    disk, path = sysfs.disk("opw-nvme"), tmp_path / "x"
    device = Devices().by_name(disk)
    assert device
    tracer = ChangeTracer(device)
    raw: list[bytes] = []
    size = device.size_bytes
    recording = HistoryRecorder(Devices(), device, path)
    try:
        discards(f"/dev/{disk}", 1, length=size)
        with mount_with_files("xfs", disk, options="discard") as point:
            delete_every_other(point)
            # Free but not trimmed. XFS cannot change this option with a remount.
            run_command("umount", str(point))
            run_command("mount", "-t", "xfs", "-o", "nodiscard", f"/dev/{disk}", str(point))
            (point / "left").write_bytes(os.urandom(5 * MIB))
            run_command("sync")
            (point / "left").unlink()
            wait_until_settled(point)
            raw.append(tracer.drain_changes()[0])
            assert recording.process_changes()
            recording.close()
            assert recording.history.forgotten == {}
            measured = run_stale(point, "--history", path)
            [free] = read_free_space(require_mount(str(point))).extents.values()
            data, _ = count_blocks(disk, free)
            assert measured["stale_bytes"]["low"] >= 5 * MIB
            # Blocks written as zeros are held by the drive, but a read cannot show that.
            assert data * 4096 <= measured["stale_bytes"]["high"]
    finally:
        tracer.close()
    ranges = [DiskChange(*fields) for fields in decode_changes(b"".join(raw))]
    ends = [change.end_ns for change in ranges if change.kind == ChangeKind.DISCARD]
    assert len(ends) - len(set(ends)) > 10, "no command had several ranges"
    trimmed = list_known_extents(recording, SectorState.TRIMMED)
    data, zeros = count_blocks(disk, trimmed)
    assert (data, zeros) == (0, trimmed.round_to_granules(4096).total_bytes // 4096)


def test_record_refuses_bio_based_devices(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_command("modprobe", "zram")
    sysfs.wait_for("zram0", lambda: (sysfs.SYS_BLOCK / "zram0").exists())
    (sysfs.SYS_BLOCK / "zram0" / "disksize").write_text("16M")
    try:
        assert cli.main(["trim", "record", "--dev", "zram0", "-o", str(tmp_path / "x")]) == 5
        assert "without requests" in capsys.readouterr().err
    finally:
        (sysfs.SYS_BLOCK / "zram0" / "reset").write_text("1")
