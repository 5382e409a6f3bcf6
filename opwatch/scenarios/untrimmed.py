"""Space that a file system has given up and nobody trimmed: when the drive is out of room, foretold from what
its addresses hold, and where it was then. On simulated flash, in virtual time."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Sequence

from opwatch.errors import UsageError
from opwatch.fields import Fields
from opwatch.frozen import frozen, replace
from opwatch.ftl.drive import Drive, Workload, Zone
from opwatch.named import NamedTuple
from opwatch.sweep.virtual import ModelDrive, make_drive, mapping_unit

_MOST_PARTS = 8
_MOST_ROUNDS, _MOST_ROUND_S = 1000, 600
_STEPS = 2000
# A round is cut into so many parts to say where in it data were moved first.
_PARTS_OF_ROUND = 200


@frozen
class UntrimmedSetup:
    """The experiment in bytes of the drive: files, addresses that nothing was ever written to, the smaller
    file system of the second run, and rounds by their length. Of another drive than one of
    `capacity_bytes` the same shares are taken where nothing else is said."""

    capacity_bytes: int
    files_bytes: int
    unwritten_bytes: int
    filesystem_bytes: int
    rounds: int
    round_s: float
    rest_s: float
    published_cliff_bytes: int
    io_bytes: int
    queue_depth: int
    seed: int


def untrimmed_setup(fields: Fields, io_bytes: int, queue_depth: int, seed: int) -> UntrimmedSetup:
    rounds, round_s = fields.count("rounds"), fields.amount("round_s")
    if not 1 <= rounds <= _MOST_ROUNDS or not 0 < round_s <= _MOST_ROUND_S:
        raise UsageError(
            f"--set rounds={rounds}, round_s={round_s:g}: 1 to {_MOST_ROUNDS} rounds of at most "
            f"{_MOST_ROUND_S} s each"
        )
    return UntrimmedSetup(
        capacity_bytes=max(fields.count("capacity_bytes"), 1),
        files_bytes=fields.count("files_bytes"),
        unwritten_bytes=fields.count("unwritten_bytes"),
        filesystem_bytes=fields.count("filesystem_bytes"),
        rounds=rounds,
        round_s=round_s,
        rest_s=fields.amount("rest_s"),
        published_cliff_bytes=fields.count("published_cliff_bytes"),
        io_bytes=io_bytes,
        queue_depth=queue_depth,
        seed=seed,
    )


@frozen
class Filling:
    """What lies on the addresses of a file system of `filesystem_bytes`: files, and what was removed. Where
    `is_trimmed` the drive was told of the latter."""

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
        """Free for the file system, data for the drive."""
        return 0 if self.is_trimmed else self.removed_bytes


class Foretold(NamedTuple):
    """Out of the addresses and the size of the flash, before the first write: what the drive has to write
    on, after how many bytes its cache is full (None without one), and after how many it has to move data."""

    room_bytes: float
    cache_bytes: float | None
    cliff_bytes: float


class WrittenRound(NamedTuple):
    host_bytes: float
    seconds: float


class Moved(NamedTuple):
    """What had been written, and what a drive had moved, at a moment."""

    written_bytes: int
    moved_bytes: int


def began_moving(last: Moved, first: Moved, later: Moved) -> float | None:
    """After how many bytes a drive began to move data: between the last look at which it did not and the
    first at which it did, as much before that as it moves for a byte from there on. None until more is."""
    written, moved = later.written_bytes - first.written_bytes, later.moved_bytes - first.moved_bytes
    if written <= 0 or moved <= 0:
        return None
    began = first.written_bytes - (first.moved_bytes - last.moved_bytes) * written / moved
    return max(began, float(last.written_bytes))


@frozen
class UntrimmedRun:
    """A run of all rounds, in bytes and seconds of the drive that the model stands for. `cliff_bytes` is what
    had been written when data were moved first, None where none were; `idle_bytes` is what the drive moved
    between the rounds, when nobody asked for anything."""

    name: str
    free_bytes: float
    stale_bytes: float
    foretold: Foretold
    rounds: tuple[WrittenRound, ...]
    cliff_bytes: float | None
    idle_bytes: float = 0.0

    @property
    def written_bytes(self) -> float:
        return sum(one.host_bytes for one in self.rounds)

    @property
    def error_ratio(self) -> float | None:
        """How far from the foretold byte it came; None where it did not come."""
        return None if self.cliff_bytes is None else self.cliff_bytes / self.foretold.cliff_bytes - 1

    @property
    def fresh_rate(self) -> float | None:
        """Bytes a second of the first round, if it was over before the cliff."""
        first = self.rounds[0]
        is_before = self.cliff_bytes is None or first.host_bytes < self.cliff_bytes
        return first.host_bytes / first.seconds if is_before else None

    @property
    def last_rate(self) -> float:
        """Bytes a second of the last tenth of the rounds."""
        last = self.rounds[-max(len(self.rounds) // 10, 1) :]
        return sum(one.host_bytes for one in last) / sum(one.seconds for one in last)


def fillings(setup: UntrimmedSetup, model: ModelDrive) -> list[Filling]:
    """The author's two runs (A, B), and one that is trimmed and not shrunk (C), in bytes of the model."""
    visible = model.profile.drive["user_bytes"]
    small = _scaled(setup.filesystem_bytes, model)
    if small > visible:
        raise UsageError(
            f"--set filesystem_bytes: {setup.filesystem_bytes} bytes are more than {model.profile.name} shows"
        )
    whole = _filling("A untrimmed", visible, setup, model)
    return [
        whole,
        _filling("B shrunk", small, setup, model),
        Filling("C trimmed", visible, whole.files, whole.removed, is_trimmed=True),
    ]


def _scaled(n_bytes: float, model: ModelDrive) -> int:
    unit = mapping_unit(model.profile)
    return round(n_bytes * model.ratio) // unit * unit


def _filling(name: str, whole: int, setup: UntrimmedSetup, model: ModelDrive) -> Filling:
    files, left = _scaled(setup.files_bytes, model), _scaled(setup.unwritten_bytes, model)
    removed = whole - files - left
    if files < setup.io_bytes * _MOST_PARTS or removed < setup.io_bytes * _MOST_PARTS:
        raise UsageError(
            f"files of {setup.files_bytes} bytes and {setup.unwritten_bytes} that stay unwritten leave "
            f"no room for copies on {model.profile.name} ({name}): set files_bytes or unwritten_bytes"
        )
    return Filling(name, whole, *_layout(files, removed, setup))


def _layout(files: int, removed: int, setup: UntrimmedSetup) -> tuple[tuple[Zone, ...], tuple[Zone, ...]]:
    """Files and copies from the first address on, in some parts each, as the seed draws them; with seed 1 one
    behind the other."""
    draw = random.Random(setup.seed)
    count = 1 if setup.seed == 1 else draw.randint(2, _MOST_PARTS)
    lengths = {"file": _parts(files, count, setup, draw), "copy": _parts(removed, count, setup, draw)}
    zones: dict[str, list[Zone]] = {"file": [], "copy": []}
    at = 0
    for place in range(count):
        for kind in ("file", "copy"):
            zones[kind].append(Zone(at, lengths[kind][place], lengths[kind][place] // setup.io_bytes))
            at += lengths[kind][place]
    return tuple(zones["file"]), tuple(zones["copy"])


def _parts(whole: int, count: int, setup: UntrimmedSetup, draw: random.Random) -> list[int]:
    """A length in whole I/Os as that many random parts of it."""
    units = whole // setup.io_bytes
    cuts = sorted(draw.sample(range(1, units), count - 1))
    edges = [0, *cuts, units]
    return [(upper - lower) * setup.io_bytes for lower, upper in itertools.pairwise(edges)]


def foretell(filling: Filling, model: ModelDrive) -> Foretold:
    """When a drive is out of room that has the flash of the profile and holds what was written and not
    trimmed. Nothing of the drive's state is asked for."""
    settings = make_drive(model.profile).core.config()
    low = settings["gc_low_superblocks"] * settings["superblock_bytes"]
    room = settings["physical_bytes"] - filling.files_bytes - filling.stale_bytes - low
    cache = -(-settings["slc_bytes"] // settings["superblock_bytes"]) * settings["superblock_bytes"]
    if not cache:
        return Foretold(room / model.ratio, None, room / model.ratio)
    if not settings["slc_dynamic"]:
        # What is in the cache takes nothing of the room, and a full one is written past.
        return Foretold(room / model.ratio, cache / model.ratio, (room + cache) / model.ratio)
    # What was trimmed is erased when the rest is gone, and nothing is left to borrow then.
    later = filling.removed_bytes - filling.stale_bytes
    first = min(cache, (room - later) / settings["slc_bits"])
    cliff = _with_borrowed_cache(room - later, first, settings["slc_bits"], filling.files_bytes) + later
    return Foretold(room / model.ratio, first / model.ratio, cliff / model.ratio)


def _with_borrowed_cache(room: float, cache: float, bits: int, files: float) -> float:
    """What can be written until the room is gone, where the cache borrows from it: it shrinks as the room
    does, and what is still valid of it goes to the room then."""
    written, left = cache + room - bits * cache, bits * cache
    valid = (1 - cache / (2 * files)) * math.exp(-(room - left) / files)
    step = left / _STEPS
    for _ in range(_STEPS):
        # For a byte of room that is gone, 1/bits of the cache is emptied into it.
        more = step * (1 - valid / bits)
        written += more
        valid *= math.exp(-more / files)
    return written


def run_untrimmed(setup: UntrimmedSetup, model: ModelDrive) -> list[UntrimmedRun]:
    return [_run(filling, setup, model) for filling in fillings(setup, model)]


def _run(filling: Filling, setup: UntrimmedSetup, model: ModelDrive) -> UntrimmedRun:
    drive = make_drive(model.profile)
    _fill(drive, filling)
    drive.pause(setup.rest_s * model.ratio)
    foretold = foretell(filling, model)
    load = Workload(filling.files, rng=setup.seed)
    rounds, cliff, written = [], None, 0.0
    for _ in range(setup.rounds):
        before = drive.save() if cliff is None else b""
        again = Workload(filling.files, rng=load.rng)
        one = _round(drive, load, setup, model)
        rounds.append(one)
        if cliff is None and _moved(drive):
            cliff = written + _cliff_within(Drive.load(before, model.profile.timing), again, setup, model)
        written += one.host_bytes
    return UntrimmedRun(
        filling.name,
        (filling.filesystem_bytes - filling.files_bytes) / model.ratio,
        filling.stale_bytes / model.ratio,
        foretold,
        tuple(rounds),
        cliff,
    )


def _fill(drive: Drive, filling: Filling) -> None:
    """Files and copies are written once; the copies are trimmed, or nobody hears of it."""
    unit = drive.core.config()["iu_bytes"]
    for zone in sorted((*filling.files, *filling.removed)):
        drive.run(Workload((zone,), sequential=True), zone.len_bytes // unit)
    if filling.is_trimmed:
        for zone in filling.removed:
            drive.core.trim(zone.start_bytes, zone.len_bytes)


def _round(drive: Drive, load: Workload, setup: UntrimmedSetup, model: ModelDrive) -> WrittenRound:
    before, begun_ns = drive.counters()["host_write_bytes"], drive.now_ns()
    _play(drive, load, setup, setup.round_s * model.ratio)
    written = drive.counters()["host_write_bytes"] - before
    return WrittenRound(written / model.ratio, (drive.now_ns() - begun_ns) / 1e9 / model.ratio)


def _play(drive: Drive, load: Workload, setup: UntrimmedSetup, seconds: float) -> None:
    drive.run_timed(
        load,
        seconds,
        io_bytes=setup.io_bytes,
        queue_depth=setup.queue_depth,
        interval_ns=max(round(seconds * 1e9), 1),
    )


def _moved(drive: Drive) -> int:
    return drive.counters()["nand_write_gc_bytes"]


def _cliff_within(drive: Drive, load: Workload, setup: UntrimmedSetup, model: ModelDrive) -> float:
    """What the round of this drive writes until data are moved: the same round again, in short parts. The
    order of the writes does not hang on the time that they take."""
    begin = drive.counters()["host_write_bytes"]
    while not _moved(drive):
        _play(drive, load, setup, setup.round_s * model.ratio / _PARTS_OF_ROUND)
    return (drive.counters()["host_write_bytes"] - begin) / model.ratio


def seeded(setup: UntrimmedSetup, model: ModelDrive, seeds: Sequence[int]) -> Iterator[UntrimmedRun]:
    """The untrimmed run in other layouts: other shares of files, of copies and of what was never written."""
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
        yield _run(_filling(f"layout {seed}", whole, drawn, model), drawn, model)
