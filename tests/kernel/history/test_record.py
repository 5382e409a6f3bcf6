"""`opwatch trim record` and `trim stale --history` against the simulated drive's own map."""

from __future__ import annotations

import fcntl
import mmap
import os
import random
import struct
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from opwatch.collectors.history import changes
from opwatch.collectors.history.changes import ChangeTracer
from opwatch.collectors.history.recorder import HistoryRecorder
from opwatch.collectors.space.free_space import read_free_space
from opwatch.host.device import Devices
from opwatch.host.scratch import ScratchDisk
from opwatch.recording.reading.history import read_history, read_requests
from opwatch.tools.acting.trim.fitrim import require_mount, trim_mount
from opwatch.trim.history.changes import ChangeKind, DiskChange, decode_changes
from opwatch.trim.history.sectormap import SectorState
from opwatch.trim.space.extents import Extents
from tests.kernel.support.drives import MIB, Drive, create_drive, run
from tests.kernel.support.filesystems import (
    KINDS,
    count_held_bytes,
    find_free_extents,
    make_filesystem,
    mount_device,
    write_and_delete,
)
from tests.kernel.support.load import BLKDISCARD, BLKZEROOUT, discards, flushes, open_direct, reads, writes
from tests.kernel.support.recordings import record_load, run_command, start_recorder
from tests.kernel.support.watching import ATTEMPTS
from tests.requirements import require_drive

SIZE = 320 * MIB


def read_own_map(one: Drive) -> Extents:
    """Return the extents that the simulated drive's own map holds."""
    bits = (one.place.mount / "valid-map").read_bytes()
    units = (at * 8 + bit for at, byte in enumerate(bits) if byte for bit in range(8) if byte >> bit & 1)
    return Extents.from_sorted((unit * 4096, (unit + 1) * 4096) for unit in units)


# --- the programs ---


def test_history_keeps_every_request_in_order(disk: ScratchDisk, tmp_path: Path) -> None:
    path = tmp_path / "disk.history"
    recorder = HistoryRecorder(Devices(), Devices().resolve(disk.node), path)
    try:
        writes(disk.node, 29, size=8192, step=8192)
        discards(disk.node, 13)
        assert recorder.process_changes()
        recorder.save_changes()
        writes(disk.node, 5)
    finally:
        recorder.close()
    saved, requests = read_requests(path)
    assert saved.drive == recorder.drive and not requests.gaps
    expected = [(at * 16, 16, ChangeKind.WRITE) for at in range(29)]
    expected += [(at * 2048, 1024, ChangeKind.DISCARD) for at in range(13)]
    expected += [(at * 8, 8, ChangeKind.WRITE) for at in range(5)]
    assert list(zip(requests.sectors, requests.lengths, requests.kinds, strict=True)) == expected


def record_changes(disk: ScratchDisk, load: Callable[[], None]) -> list[DiskChange]:
    tracer = ChangeTracer(Devices().resolve(disk.node))
    try:
        load()
        return [DiskChange(*fields) for fields in decode_changes(tracer.drain_changes()[0])]
    finally:
        tracer.close()


def test_recorder_reports_every_kind_of_change_exactly(disk: ScratchDisk) -> None:
    def run_load() -> None:
        writes(other.node, 5)
        reads(disk.node, 23)
        writes(disk.node, 29, size=8192, step=8192)
        writes(disk.node, 7, flags=os.O_DSYNC)
        discards(disk.node, 13)
        discards(disk.node, 1, request=BLKZEROOUT)
        flushes(disk.node, 11)

    with ScratchDisk(64 * MIB) as other:
        for _ in range(ATTEMPTS):
            stream = record_changes(disk, run_load)
            if len(stream) >= 29 + 7 + 13 + 1:
                break
    places: dict[int, list[tuple[int, int]]] = {}
    for change in stream:
        if change.status == 0:
            places.setdefault(change.kind, []).append((change.sector, change.sectors))
        assert 0 < change.begin_ns < change.end_ns
    expected = [(at * 16, 16) for at in range(29)] + [(at * 8, 8) for at in range(7)]
    # Zeroes that the device cannot write in place become writes.
    [zeroed] = [change for change in stream if change.kind == ChangeKind.ZEROES]
    assert places[ChangeKind.WRITE][:36] == expected
    assert places[ChangeKind.DISCARD] == [(at * 2048, 1024) for at in range(13)]
    assert (zeroed.sector, zeroed.sectors, zeroed.status) == (0, 1024, 1)


def test_full_ring_is_reported_as_a_loss(
    disk: ScratchDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "_RING_BYTES", 4096)

    def run_load() -> None:
        discards(disk.node, 3)
        writes(disk.node, 500)

    recording = record_load(disk.node, tmp_path / "x", run_load)
    assert any("buffer" in why for why in recording.history.forgotten)
    assert not recording.history.map.collect_extents(SectorState.TRIMMED)
    # Written sectors stay written despite lost events about other writes.
    assert recording.history.map.collect_extents(SectorState.WRITTEN).total_bytes > 0
    assert recording.make_checkpoint().written_slack is not None


# --- against the drive ---


def scatter_changes(device: str, seed: int) -> None:
    """Write and discard whole units of the drive, often at the same offsets."""
    rng = random.Random(seed)
    pattern = mmap.mmap(-1, MIB)
    pattern.write(rng.randbytes(MIB))
    with open_direct(device) as descriptor:
        fcntl.ioctl(descriptor, BLKDISCARD, struct.pack("=QQ", 0, SIZE))
        for _ in range(400):
            at = rng.randrange(SIZE // 4096) * 4096
            length = min(rng.choice((4096, 12288, 65536, MIB)), SIZE - at)
            if rng.random() < 0.6:
                os.pwritev(descriptor, [memoryview(pattern)[:length]], at)
            else:
                fcntl.ioctl(descriptor, BLKDISCARD, struct.pack("=QQ", at, length))


@pytest.mark.parametrize("seed", range(6))
def test_recorded_map_equals_the_drives_map(seed: int, tmp_path: Path) -> None:
    require_drive()
    with create_drive(SIZE, "7%") as one:
        recording = record_load(one.device, tmp_path / "x", lambda: scatter_changes(one.device, seed))
        assert not recording.history.forgotten
        truth = read_own_map(one)
        assert truth.total_bytes > MIB
        assert recording.history.map.collect_extents(SectorState.WRITTEN) == truth
        assert recording.history.map.collect_extents(SectorState.TRIMMED) == truth.find_gaps(0, SIZE)
        look = recording.make_checkpoint()
        assert (look.written_slack, look.discarded_slack) == (0, 0)
        saved, alive = read_history(tmp_path / "x")
        assert not alive
        assert saved.map.collect_extents(SectorState.WRITTEN) == truth


def change_small_area(device: str, seed: int) -> None:
    """Write and discard in a small area from several independent threads."""

    def run_thread(number: int) -> None:
        rng = random.Random(seed * 10 + number)
        pattern = mmap.mmap(-1, 65536)
        pattern.write(rng.randbytes(65536))
        with open_direct(device) as descriptor:
            for _ in range(300):
                at, length = rng.randrange(512) * 4096, rng.choice((4096, 65536))
                if rng.random() < 0.6:
                    os.pwritev(descriptor, [memoryview(pattern)[:length]], at)
                else:
                    fcntl.ioctl(descriptor, BLKDISCARD, struct.pack("=QQ", at, length))

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(run_thread, range(6)))


@pytest.mark.parametrize("seed", range(3))
def test_overlapping_requests_are_unknown_and_the_rest_of_the_map_is_right(seed: int, tmp_path: Path) -> None:
    require_drive()
    with create_drive(SIZE, "7%") as one:
        recording = record_load(one.device, tmp_path / "x", lambda: change_small_area(one.device, seed))
        assert not recording.history.forgotten
        truth, map_ = read_own_map(one), recording.history.map
        assert not map_.collect_extents(SectorState.WRITTEN) - truth
        assert not map_.collect_extents(SectorState.TRIMMED) & truth
        # The known part is most of the area.
        assert map_.collect_extents(SectorState.WRITTEN).total_bytes > MIB // 2
        assert map_.collect_extents(SectorState.TRIMMED).total_bytes > MIB // 4


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_systems_stale_space_is_exact(kind: str, tmp_path: Path) -> None:
    require_drive()
    path, point = tmp_path / "x", tmp_path / "mnt"
    point.mkdir()
    with create_drive(SIZE, "7%") as one:

        def run_load() -> None:
            if os.path.ismount(point):
                run("umount", str(point))
            discards(one.device, 1, length=SIZE)
            make_filesystem(kind, one.device)
            run("mount", "-o", "nodiscard", one.device, str(point))
            write_and_delete(point, 1)
            trim_mount(require_mount(str(point)))
            write_and_delete(point, 2)

        try:
            recording = record_load(one.device, path, run_load)
            assert not recording.history.forgotten
            measured = run_command("stale", str(point), "--history", str(path))
            truth = count_held_bytes(one, find_free_extents(point))
            assert truth > 10 * MIB
            stale = measured["stale_bytes"]
            assert stale["low"] <= truth <= stale["high"]
            # The unknown part was zeroed, and lies where mkfs wrote.
            assert stale["high"] - stale["low"] == measured["unknown_bytes"] <= MIB
            assert measured["exact"] is (measured["unknown_bytes"] == 0)
            assert measured["exact"] is (stale["value"] is not None)
            [part] = measured["drives"]
            assert (part["doubts"], part["history"]) == ([], str(path))
            assert measured["physical_bytes"] == one.read_truth()["physical_bytes"]
        finally:
            run("umount", str(point))


def test_stale_reads_a_recording_in_progress(tmp_path: Path) -> None:
    """The reader waits until the recorder has saved its latest state."""
    require_drive()
    path, point = tmp_path / "x", tmp_path / "mnt"
    point.mkdir()
    with create_drive(SIZE, "7%") as one:
        for _ in range(ATTEMPTS):
            discards(one.device, 1, length=SIZE)
            with start_recorder(one.device, path) as process:
                discards(one.device, 1, length=SIZE)
                make_filesystem("ext4", one.device)
                with mount_device(one.device, point):
                    write_and_delete(point, 3)
                    (point / "last").write_bytes(bytes(MIB))
                    measured = run_command("stale", str(point), "--history", str(path))
                    truth = count_held_bytes(one, find_free_extents(point))
                    assert process.poll() is None
            [part] = measured["drives"]
            if not part["forgotten"]:
                break
            path.unlink()
        assert part["doubts"] == measured["notes"] == []
        assert measured["stale_bytes"]["low"] <= truth <= measured["stale_bytes"]["high"]
        assert measured["unknown_bytes"] <= MIB


def test_stale_needs_a_recording_of_each_disk(tmp_path: Path) -> None:
    require_drive()
    point, files = tmp_path / "mnt", [tmp_path / "one", tmp_path / "two"]
    point.mkdir()
    with create_drive(SIZE, "7%") as one, create_drive(SIZE, "7%") as two:
        devices = Devices()
        resolved = [devices.resolve(one_drive.device) for one_drive in (one, two)]
        recordings = [HistoryRecorder(devices, *pair) for pair in zip(resolved, files, strict=True)]
        try:
            for one_drive in (one, two):
                discards(one_drive.device, 1, length=SIZE)
            make_filesystem("btrfs", one.device, two.device)
            with mount_device(one.device, point):
                write_and_delete(point, 4)
                assert all(recording.process_changes() for recording in recordings)
                for recording in recordings:
                    recording.close()
                both = run_command(
                    "stale", str(point), "--history", str(files[0]), "--history", str(files[1])
                )
                alone = run_command("stale", str(point), "--history", str(files[0]))
                free = read_free_space(require_mount(str(point))).extents
                truth = [
                    count_held_bytes(one_drive, free[at.dev])
                    for one_drive, at in zip((one, two), resolved, strict=True)
                ]
        finally:
            for recording in recordings:
                recording.close()
        assert both["stale_bytes"]["low"] <= sum(truth) <= both["stale_bytes"]["high"]
        assert sum(truth) > 10 * MIB
        # If the host has lost events, more is unknown.
        if not any(recording.history.forgotten for recording in recordings):
            assert both["unknown_bytes"] <= MIB
        [other] = [part for part in alone["drives"] if part["history"] is None]
        assert (other["stale_bytes"], other["unknown_bytes"]) == (None, free[resolved[1].dev].total_bytes)
        assert alone["stale_bytes"]["low"] <= truth[0]
