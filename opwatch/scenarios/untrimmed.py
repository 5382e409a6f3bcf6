"""Deleted but untrimmed space: predict when the drive runs out of room, and measure when data are relocated.

On simulated flash, in virtual time.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from opwatch.errors import UsageError
from opwatch.fields import Fields
from opwatch.ftl.drive import Drive, Workload, Zone
from opwatch.scenarios.untrimmed_load import FileWriter, make_writer
from opwatch.sweep.virtual import ModelDrive, find_mapping_unit, make_drive

_MAX_PARTS = 8
_MAX_ROUNDS, _MAX_ROUND_S = 1000, 600
_STEPS = 2000
# A round is divided into this many parts to locate the first relocation.
_PARTS_OF_ROUND = 200


@dataclass(frozen=True, slots=True)
class UntrimmedSetup:
    """Parameters of the experiment, in bytes of the drive.

    The bytes and the number of files, never-written addresses, the smaller file system of the second run, and
    the rounds with their duration. Requests between two syncs of all files; 0 for direct I/O. A drive of
    another size than `capacity_bytes` uses the same shares by default.
    """

    capacity_bytes: int
    files_bytes: int
    unwritten_bytes: int
    filesystem_bytes: int
    rounds: int
    round_s: float
    rest_s: float
    published_cliff_bytes: int
    files: int
    fsync_every: int
    io_bytes: int
    queue_depth: int
    seed: int

    @property
    def workload(self) -> str:
        """Return the rounds in words."""
        how = (
            f"through the page cache, synced after each {self.fsync_every}"
            if self.fsync_every
            else f"queue depth {self.queue_depth}"
        )
        return f"{self.rounds} rounds of {self.round_s:g} s, random writes of {self.io_bytes} bytes, {how}"


def parse_untrimmed_setup(fields: Fields, io_bytes: int, queue_depth: int, seed: int) -> UntrimmedSetup:
    rounds, round_s = fields.read_count("rounds"), fields.read_amount("round_s")
    if not 1 <= rounds <= _MAX_ROUNDS or not 0 < round_s <= _MAX_ROUND_S:
        raise UsageError(
            f"--set rounds={rounds}, round_s={round_s:g}: 1 to {_MAX_ROUNDS} rounds of at most "
            f"{_MAX_ROUND_S} s each"
        )
    if fields.read_count("fsync_every") and queue_depth > 1:
        raise UsageError(
            f"--depth {queue_depth}: one thread writes through the page cache; direct I/O has a queue (--set "
            "fsync_every=0)"
        )
    return UntrimmedSetup(
        capacity_bytes=max(fields.read_count("capacity_bytes"), 1),
        files_bytes=fields.read_count("files_bytes"),
        unwritten_bytes=fields.read_count("unwritten_bytes"),
        filesystem_bytes=fields.read_count("filesystem_bytes"),
        rounds=rounds,
        round_s=round_s,
        rest_s=fields.read_amount("rest_s"),
        published_cliff_bytes=fields.read_count("published_cliff_bytes"),
        files=max(fields.read_count("files"), 1),
        fsync_every=fields.read_count("fsync_every"),
        io_bytes=io_bytes,
        queue_depth=queue_depth,
        seed=seed,
    )


@dataclass(frozen=True, slots=True)
class Filling:
    """The contents of a file system of `filesystem_bytes`: files and removed files.

    If `is_trimmed`, the removed files were trimmed.
    """

    name: str
    filesystem_bytes: int
    files: tuple[Zone, ...]
    removed: tuple[Zone, ...]
    is_trimmed: bool = False

    @property
    def files_bytes(self) -> int:
        return sum(zone.len_bytes for zone in self.files)

    @property
    def removed_bytes(self) -> int:
        return sum(zone.len_bytes for zone in self.removed)

    @property
    def stale_bytes(self) -> int:
        """Return the bytes that are free for the file system, but data for the drive."""
        return 0 if self.is_trimmed else self.removed_bytes


@dataclass(frozen=True, slots=True)
class CliffPrediction:
    """The prediction from the addresses and the flash size, before the first write.

    The room for writes, the bytes after which the cache is full (None without a cache), and the bytes after
    which the drive must relocate data.
    """

    room_bytes: float
    cache_bytes: float | None
    cliff_bytes: float


class WrittenRound(NamedTuple):
    host_bytes: float
    seconds: float


class RelocationSample(NamedTuple):
    """Bytes written by the host and bytes relocated by the drive at one moment."""

    written_bytes: int
    moved_bytes: int


def estimate_relocation_start(
    last: RelocationSample, first: RelocationSample, later: RelocationSample
) -> float | None:
    """Estimate after how many host bytes a drive began to relocate data.

    Extrapolates back from the relocation rate between `first`, the first sample with relocation, and `later`,
    but not before `last`, the last sample without relocation. None until `later` has more relocation.
    """
    written, moved = later.written_bytes - first.written_bytes, later.moved_bytes - first.moved_bytes
    if written <= 0 or moved <= 0:
        return None
    began = first.written_bytes - (first.moved_bytes - last.moved_bytes) * written / moved
    return max(began, float(last.written_bytes))


@dataclass(frozen=True, slots=True)
class UntrimmedRun:
    """A run of all rounds, in bytes and seconds of the drive that the model represents.

    `cliff_bytes` is the amount written before the first relocation, None if none occurred. `idle_bytes` is
    the amount relocated between rounds, without a request from the host.
    """

    name: str
    free_bytes: float
    stale_bytes: float
    foretold: CliffPrediction
    rounds: tuple[WrittenRound, ...]
    cliff_bytes: float | None
    idle_bytes: float = 0.0

    @property
    def written_bytes(self) -> float:
        return sum(one.host_bytes for one in self.rounds)

    @property
    def error_ratio(self) -> float | None:
        """Return the relative deviation from the predicted cliff, or None if the cliff was not reached."""
        return None if self.cliff_bytes is None else self.cliff_bytes / self.foretold.cliff_bytes - 1

    @property
    def fresh_rate(self) -> float | None:
        """Return bytes per second of the first round, or None if the cliff was within that round."""
        first = self.rounds[0]
        is_before = self.cliff_bytes is None or first.host_bytes < self.cliff_bytes
        return first.host_bytes / first.seconds if is_before else None

    @property
    def last_rate(self) -> float:
        """Return bytes per second over the last tenth of the rounds."""
        last = self.rounds[-max(len(self.rounds) // 10, 1) :]
        return sum(one.host_bytes for one in last) / sum(one.seconds for one in last)


def make_fillings(setup: UntrimmedSetup, model: ModelDrive) -> list[Filling]:
    """Return the author's two runs (A, B), and a trimmed run that is not shrunk (C), in bytes of the
    model."""
    visible = model.profile.drive["user_bytes"]
    small = _scale_bytes(setup.filesystem_bytes, model)
    if small > visible:
        raise UsageError(
            f"--set filesystem_bytes: {setup.filesystem_bytes} bytes are more than {model.profile.name} shows"
        )
    whole = _make_filling("A untrimmed", visible, setup, model)
    return [
        whole,
        _make_filling("B shrunk", small, setup, model),
        Filling("C trimmed", visible, whole.files, whole.removed, is_trimmed=True),
    ]


def _scale_bytes(n_bytes: float, model: ModelDrive) -> int:
    unit = find_mapping_unit(model.profile)
    return round(n_bytes * model.ratio) // unit * unit


def _make_filling(name: str, whole: int, setup: UntrimmedSetup, model: ModelDrive) -> Filling:
    files, left = _scale_bytes(setup.files_bytes, model), _scale_bytes(setup.unwritten_bytes, model)
    removed = whole - files - left
    if files < setup.io_bytes * _MAX_PARTS or removed < setup.io_bytes * _MAX_PARTS:
        raise UsageError(
            f"files of {setup.files_bytes} bytes and {setup.unwritten_bytes} unwritten bytes leave no "
            f"space for copies on {model.profile.name} ({name}): set files_bytes or unwritten_bytes"
        )
    return Filling(name, whole, *_lay_out_zones(files, removed, setup))


def _lay_out_zones(
    files: int, removed: int, setup: UntrimmedSetup
) -> tuple[tuple[Zone, ...], tuple[Zone, ...]]:
    """Lay out files and copies from the first address, each in several random parts; contiguous with seed
    1."""
    draw = random.Random(setup.seed)
    count = 1 if setup.seed == 1 else draw.randint(2, _MAX_PARTS)
    lengths = {
        "file": _split_parts(files, count, setup, draw),
        "copy": _split_parts(removed, count, setup, draw),
    }
    zones: dict[str, list[Zone]] = {"file": [], "copy": []}
    at = 0
    for place in range(count):
        for kind in ("file", "copy"):
            zones[kind].append(Zone(at, lengths[kind][place], lengths[kind][place] // setup.io_bytes))
            at += lengths[kind][place]
    return tuple(zones["file"]), tuple(zones["copy"])


def _split_parts(whole: int, count: int, setup: UntrimmedSetup, draw: random.Random) -> list[int]:
    """Split a length into `count` random parts of whole I/Os."""
    units = whole // setup.io_bytes
    cuts = sorted(draw.sample(range(1, units), count - 1))
    edges = [0, *cuts, units]
    return [(upper - lower) * setup.io_bytes for lower, upper in itertools.pairwise(edges)]


def predict_cliff(filling: Filling, model: ModelDrive) -> CliffPrediction:
    """Predict when a drive with the profile's flash runs out of room, given the written and untrimmed data.

    Uses no state of the drive.
    """
    settings = make_drive(model.profile).core.config()
    low = settings["gc_low_superblocks"] * settings["superblock_bytes"]
    room = settings["physical_bytes"] - filling.files_bytes - filling.stale_bytes - low
    cache = -(-settings["slc_bytes"] // settings["superblock_bytes"]) * settings["superblock_bytes"]
    if not cache:
        return CliffPrediction(room / model.ratio, None, room / model.ratio)
    if not settings["slc_dynamic"]:
        # A separate cache takes no room, and writes bypass a full cache.
        return CliffPrediction(room / model.ratio, cache / model.ratio, (room + cache) / model.ratio)
    # Trimmed blocks are erased after the remaining room is used up, when nothing is left to borrow.
    later = filling.removed_bytes - filling.stale_bytes
    first = min(cache, (room - later) / settings["slc_bits"])
    cliff = _add_borrowed_cache(room - later, first, settings["slc_bits"], filling.files_bytes) + later
    return CliffPrediction(room / model.ratio, first / model.ratio, cliff / model.ratio)


def _add_borrowed_cache(room: float, cache: float, bits: int, files: float) -> float:
    """Return the bytes that can be written if the cache borrows from the room.

    The cache shrinks with the room, and its valid data then move to the room.
    """
    written, left = cache + room - bits * cache, bits * cache
    valid = (1 - cache / (2 * files)) * math.exp(-(room - left) / files)
    step = left / _STEPS
    for _ in range(_STEPS):
        # Each byte of room used empties 1/bits of a byte of cache into the room.
        more = step * (1 - valid / bits)
        written += more
        valid *= math.exp(-more / files)
    return written


def run_untrimmed(setup: UntrimmedSetup, model: ModelDrive) -> list[UntrimmedRun]:
    return [_run_filling(filling, setup, model) for filling in make_fillings(setup, model)]


def _run_filling(filling: Filling, setup: UntrimmedSetup, model: ModelDrive) -> UntrimmedRun:
    drive = make_drive(model.profile)
    _write_filling(drive, filling)
    drive.stay_idle(setup.rest_s * model.ratio)
    foretold = predict_cliff(filling, model)
    writer = make_writer(drive, filling.files, setup)
    rounds, cliff, written = [], None, 0.0
    for _ in range(setup.rounds):
        before, again = (drive.save(), writer.copy_to(drive)) if cliff is None else (b"", writer)
        one = _run_round(drive, writer, setup, model)
        rounds.append(one)
        if cliff is None and _read_relocated(drive):
            earlier = Drive.load_saved(before, model.profile.timing)
            cliff = written + _locate_cliff(earlier, again.copy_to(earlier), setup, model)
        written += one.host_bytes
    return UntrimmedRun(
        filling.name,
        (filling.filesystem_bytes - filling.files_bytes) / model.ratio,
        filling.stale_bytes / model.ratio,
        foretold,
        tuple(rounds),
        cliff,
    )


def _write_filling(drive: Drive, filling: Filling) -> None:
    """Write files and copies once; then trim the copies, if the filling is trimmed."""
    unit = drive.core.config()["iu_bytes"]
    for zone in sorted((*filling.files, *filling.removed)):
        drive.run_load(Workload((zone,), sequential=True), zone.len_bytes // unit)
    if filling.is_trimmed:
        for zone in filling.removed:
            drive.core.trim(zone.start_bytes, zone.len_bytes)


def _run_round(drive: Drive, writer: FileWriter, setup: UntrimmedSetup, model: ModelDrive) -> WrittenRound:
    before, begun_ns = drive.read_counters()["host_write_bytes"], drive.now_ns()
    writer.write_for(setup.round_s * model.ratio)
    written = drive.read_counters()["host_write_bytes"] - before
    return WrittenRound(written / model.ratio, (drive.now_ns() - begun_ns) / 1e9 / model.ratio)


def _read_relocated(drive: Drive) -> int:
    return drive.read_counters()["nand_write_gc_bytes"]


def _locate_cliff(drive: Drive, writer: FileWriter, setup: UntrimmedSetup, model: ModelDrive) -> float:
    """Return the bytes that a round writes before the first relocation, by repeating the round in short
    parts.

    The order of the writes does not depend on their timing.
    """
    begin = drive.read_counters()["host_write_bytes"]
    while not _read_relocated(drive):
        writer.write_for(setup.round_s * model.ratio / _PARTS_OF_ROUND)
    return (drive.read_counters()["host_write_bytes"] - begin) / model.ratio


def run_layouts(setup: UntrimmedSetup, model: ModelDrive, seeds: Sequence[int]) -> Iterator[UntrimmedRun]:
    """Repeat the untrimmed run with other layouts: random shares of files, copies and never-written space."""
    visible = model.profile.drive["user_bytes"] / model.ratio
    for seed in seeds:
        draw = random.Random(seed)
        drawn = replace(
            setup,
            files_bytes=round(visible * draw.uniform(0.35, 0.65)),
            unwritten_bytes=round(visible * draw.uniform(0.005, 0.08)),
            seed=seed,
        )
        whole = model.profile.drive["user_bytes"]
        yield _run_filling(_make_filling(f"layout {seed}", whole, drawn, model), drawn, model)
