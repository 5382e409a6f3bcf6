"""Reproduce the untrimmed cliff on a file system of a simulated drive.

The flash size of such a drive is known, and its counters show when data are moved.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from opwatch.collectors.firmware.drive_folder import find_drive_folder
from opwatch.drive.life import read_true_counters
from opwatch.drive.place import DriveFolder
from opwatch.errors import RefusedError, Unsupported
from opwatch.host.device import Devices
from opwatch.host.usage import Mount
from opwatch.load.sysbench import FIO
from opwatch.samples.measurement_run import ProgressSink
from opwatch.scenarios.mixed import MixLoad
from opwatch.scenarios.untrimmed import (
    CliffPrediction,
    RelocationSample,
    UntrimmedRun,
    UntrimmedSetup,
    WrittenRound,
    estimate_relocation_start,
)
from opwatch.tools.acting.scenarios.unnamed_file import (
    FileLoad,
    create_unnamed_file,
    fill_file,
    read_filesystem_mark,
    run_load,
)
from opwatch.tools.acting.sweep.bench import SweepClock
from opwatch.tools.acting.trim.fitrim import check_mount, trim_mount

_MIB = 1 << 20
_MIN_BYTES = 64 * _MIB
# All rounds together write this multiple of the first run's free flash.
_ROOM_TIMES = 1.5
# Without simulated timing, the write rate is limited so that the free flash lasts this long.
_ROOM_S = 5
_TICK_S = 0.01
_FILL_DEPTH = 16
# The cliff starts when the drive moves this share of the written bytes. Single pages that the file system
# rewrites often do not count.
_MOVING_RATIO = 0.1


@dataclass(frozen=True, slots=True)
class UntrimmedPlace:
    """Mount on a simulated drive, and the space for the test."""

    mount: Mount
    drive: DriveFolder
    device: str
    free_bytes: int
    is_timed: bool
    # Identifies the drive and file system.
    mark: str

    def with_free(self, n_bytes: int) -> UntrimmedPlace:
        """Return the place with the free space of the earlier run, or raise RefusedError if less is free."""
        if n_bytes > self.free_bytes:
            raise RefusedError(
                f"{self.mount.point}: {self.free_bytes} bytes are free, but {n_bytes} were at the "
                "start: free some space, or start again"
            )
        return replace(self, free_bytes=n_bytes)


class _DrivePolls:
    """Bytes that a drive had written and moved at points of a run."""

    def __init__(self, drive: DriveFolder) -> None:
        self._drive = drive
        first = read_true_counters(drive)
        self._begin = first["host_write_bytes"]
        # Last poll without significant moves, and the first poll with them.
        self._last = RelocationSample(0, first["nand_write_gc_bytes"])
        self._first: RelocationSample | None = None
        self.cliff_bytes: float | None = None
        self.idle_bytes = 0

    def begin_round(self) -> None:
        """Record the bytes moved since the last poll, while the drive was idle."""
        if self._first is None:
            moved = read_true_counters(self._drive)["nand_write_gc_bytes"]
            self.idle_bytes += moved - self._last.moved_bytes
            self._last = self._last._replace(moved_bytes=moved)

    def poll_drive(self) -> None:
        if self.cliff_bytes is not None:
            return
        now = read_true_counters(self._drive)
        here = RelocationSample(now["host_write_bytes"] - self._begin, now["nand_write_gc_bytes"])
        if self._first is not None:
            self.cliff_bytes = estimate_relocation_start(self._last, self._first, here)
        elif here.moved_bytes - self._last.moved_bytes > _MOVING_RATIO * max(
            here.written_bytes - self._last.written_bytes, 1
        ):
            self._first = here
        else:
            self._last = here


def make_untrimmed_place(devices: Devices, folder: Path) -> UntrimmedPlace:
    """Inspect a folder and refuse those without a predictable result. Writes nothing."""
    mount = check_mount(str(folder))
    status, space = folder.stat(), os.statvfs(folder)
    device = devices.by_number(os.major(status.st_dev), os.minor(status.st_dev))
    pages = find_drive_folder(device) if device else None
    if device is None or pages is None:
        raise Unsupported(
            f"{folder}: it is not on a simulated drive, and other drives do not report their flash "
            "size, which this needs: opwatch drive create makes one, --virtual needs none"
        )
    drive = DriveFolder(pages.parent.name, pages.parent.parent)
    now = read_true_counters(drive, "sweep run")
    if now["slc_limit_bytes"]:
        raise Unsupported(f"{folder}: drive {drive.name} has a cache, which only --virtual supports")
    if space.f_frsize % now["iu_bytes"]:
        raise Unsupported(
            f"{folder}: its blocks of {space.f_frsize} bytes are smaller than the drive's mapping unit "
            f"of {now['iu_bytes']}, so writes would depend on alignment: create it again with mkfs -b "
            f"{now['iu_bytes']}"
        )
    free = space.f_bavail * space.f_frsize
    if free < _MIN_BYTES:
        raise RefusedError(f"{folder}: {free} bytes are free; at least {_MIN_BYTES} are needed")
    mark = f"{now['serial']}-{read_filesystem_mark(folder)}"
    return UntrimmedPlace(mount, drive, device.name, free, bool(now.get("timing")), mark)


def run_on_mount(
    place: UntrimmedPlace,
    setup: UntrimmedSetup,
    time: SweepClock,
    talk: ProgressSink,
    *,
    done: Sequence[UntrimmedRun] = (),
    round_bytes: int | None = None,
    keep: Callable[[UntrimmedRun, int | None], None] = lambda run, round_bytes: None,
    loader: str = FIO,
) -> list[UntrimmedRun]:
    """Run the author's two runs and a trimmed run at full size, without those that are done.

    `round_bytes` is the round size of done runs. Instead of shrinking the file system, the second run writes
    less of it, which is equivalent for the drive. Passes each run to `keep`.
    """
    runs, series = list(done), _MountRuns(place, setup, time, talk, loader, round_bytes)
    for name, whole, is_trimmed in _list_runs(setup)[len(done) :]:
        runs.append(series.run(name, whole, is_trimmed=is_trimmed))
        keep(runs[-1], series.round_bytes)
    _trim_place(place)
    return runs


def _trim_place(place: UntrimmedPlace) -> None:
    """Trim all free space. Deleted files are free only after a sync."""
    _sync_place(place)
    trim_mount(place.mount)


def _sync_place(place: UntrimmedPlace) -> None:
    descriptor = os.open(place.mount.point, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _compute_sizes(place: UntrimmedPlace, setup: UntrimmedSetup, whole: float) -> tuple[int, int]:
    """Return the bytes of files and copies if this share of the file system may be written."""

    def compute_share(share: float) -> int:
        return int(place.free_bytes * share) // _MIB * _MIB

    files = compute_share(setup.files_bytes / setup.capacity_bytes)
    copies = compute_share(whole) - files - compute_share(setup.unwritten_bytes / setup.capacity_bytes)
    if min(files, copies) < _MIB:
        raise RefusedError(f"{place.mount.point}: no space for files and their copies")
    return files, copies


def plan_fillings(place: UntrimmedPlace, setup: UntrimmedSetup) -> list[tuple[str, int, int]]:
    """Return (name, bytes of files, bytes of copies) per run."""
    return [(name, *_compute_sizes(place, setup, whole)) for name, whole, _ in _list_runs(setup)]


def _list_runs(setup: UntrimmedSetup) -> tuple[tuple[str, float, bool], ...]:
    """Return (name, writable share of the file system, whether deleted files are trimmed) per run."""
    share = setup.filesystem_bytes / setup.capacity_bytes
    return (("A untrimmed", 1.0, False), ("B shrunk", share, False), ("C trimmed", 1.0, True))


@dataclass(slots=True)
class _MountRuns:
    """Runs one after the other: fill, then rounds."""

    place: UntrimmedPlace
    setup: UntrimmedSetup
    time: SweepClock
    talk: ProgressSink
    loader: str
    round_bytes: int | None

    def run(self, name: str, whole: float, *, is_trimmed: bool) -> UntrimmedRun:
        """Run in this share of the file system."""
        point = self.place.mount.point
        _trim_place(self.place)
        n_bytes, copied = _compute_sizes(self.place, self.setup, whole)
        with create_unnamed_file(point, n_bytes) as path:
            self.talk.show_progress(f"{name}: files and copies")
            fill_file(path, n_bytes, _FILL_DEPTH, self.time)
            with create_unnamed_file(point, copied) as copies:
                fill_file(copies, copied, _FILL_DEPTH, self.time)
            # As umount does: deleted files become free space in the file system.
            _sync_place(self.place)
            if is_trimmed:
                _trim_place(self.place)
            space, now = os.statvfs(point), read_true_counters(self.place.drive)
            room = now["physical_bytes"] - now["valid_bytes"]
            if self.round_bytes is None:
                io_bytes = self.setup.io_bytes
                self.round_bytes = int(_ROOM_TIMES * room / self.setup.rounds) // io_bytes * io_bytes
            load = FileLoad(
                path,
                n_bytes,
                MixLoad("rndwr", 0, 100, self.setup.io_bytes),
                self.setup.queue_depth,
                self.setup.seed * 10_000,
                total_bytes=self.round_bytes,
                fsync_every=self.setup.fsync_every,
                # Without timing, speed is meaningless, so limit it to keep the polls close together.
                most_bytes_per_s=0 if self.place.is_timed else max(room // _ROOM_S, _MIB),
            )
            looks = _DrivePolls(self.place.drive)
            rounds = [self._run_round(name, number, load, looks) for number in range(self.setup.rounds)]
        return UntrimmedRun(
            name=name,
            free_bytes=space.f_bfree * space.f_frsize,
            stale_bytes=0 if is_trimmed else copied,
            foretold=CliffPrediction(room, None, room),
            rounds=tuple(rounds),
            cliff_bytes=looks.cliff_bytes,
            idle_bytes=looks.idle_bytes,
        )

    def _run_round(self, name: str, number: int, load: FileLoad, looks: _DrivePolls) -> WrittenRound:
        """Run the author's own load for one round."""
        self.talk.show_progress(f"{name}: round {number + 1} of {self.setup.rounds}")
        looks.begin_round()
        load = replace(load, seed=load.seed + number)
        rate = run_load(load, self.loader, self.time, looks.poll_drive, _TICK_S)
        looks.poll_drive()
        return WrittenRound(float(rate.moved_bytes), max(rate.seconds, 1e-3))
