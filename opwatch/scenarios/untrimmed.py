"""Space that a file system has given up and nobody trimmed: when the drive is out of room, foretold from what
its addresses hold, and where it was then. On simulated flash, in virtual time."""

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
from opwatch.ftl.profiles import Profile
from opwatch.scenarios.scenario import AuthorsWord, ScenarioVerdict
from opwatch.sweep.virtual import ModelDrive, make_drive, mapping_unit

# So near the foretold byte the drive has to be out of room.
NEAR_RATIO = 0.02
# What the author calls a collapse: less than so much of the speed before.
_COLLAPSE_RATIO = 0.5
_MOST_PARTS = 8
_MOST_ROUNDS, _MOST_ROUND_S = 1000, 600
_STEPS = 2000
# A round is cut into so many parts to say where in it data were moved first.
_PARTS_OF_ROUND = 200


@dataclass(frozen=True, slots=True)
class UntrimmedSetup:
    """The experiment in bytes of the drive: files, addresses that nothing was ever written to, the smaller
    file system of the second run, and rounds by their length."""

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


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class UntrimmedRun:
    """A run of all rounds, in bytes and seconds of the drive that the model stands for. `cliff_bytes` is what
    had been written when data were moved first, None where none were."""

    filling: Filling
    free_bytes: float
    stale_bytes: float
    foretold: Foretold
    rounds: tuple[WrittenRound, ...]
    cliff_bytes: float | None

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
        filling,
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


def statements(
    runs: Sequence[UntrimmedRun], setup: UntrimmedSetup, profile: Profile
) -> tuple[AuthorsWord, ...]:
    """What the author found, and what was foretold."""
    untrimmed, shrunk = runs[:2]
    return (_collapse(untrimmed), _without(shrunk), _foretold(runs), _at_five(untrimmed, setup, profile))


def _collapse(run: UntrimmedRun) -> AuthorsWord:
    what = "untrimmed, it collapses"
    if run.cliff_bytes is None:
        return AuthorsWord(
            what,
            ScenarioVerdict.UNTOLD,
            f"the rounds wrote {_gb(run.written_bytes)}, it comes after {_gb(run.foretold.cliff_bytes)}: "
            "more rounds, or longer ones (--set rounds=, round_s=)",
        )
    if run.fresh_rate is None:
        return AuthorsWord(what, ScenarioVerdict.UNTOLD, "it came within the first round: take shorter ones")
    kept = run.last_rate / run.fresh_rate
    verdict = ScenarioVerdict.REPRODUCED if kept < _COLLAPSE_RATIO else ScenarioVerdict.NOT_REPRODUCED
    return AuthorsWord(what, verdict, f"at the end it has {kept:.2f} of the speed of its first round")


def _without(run: UntrimmedRun) -> AuthorsWord:
    what = "trimmed and shrunk, it does not"
    if run.cliff_bytes is not None:
        return AuthorsWord(what, ScenarioVerdict.NOT_REPRODUCED, f"it does after {_gb(run.cliff_bytes)}")
    return AuthorsWord(
        what,
        ScenarioVerdict.REPRODUCED,
        f"the same rounds wrote {_gb(run.written_bytes)}; it would after {_gb(run.foretold.cliff_bytes)}",
    )


def _foretold(runs: Sequence[UntrimmedRun]) -> AuthorsWord:
    what = "the cliff came where it was foretold"
    errors = [abs(run.error_ratio) for run in runs if run.error_ratio is not None]
    early = [
        run for run in runs if run.error_ratio is None and run.written_bytes > 1.02 * run.foretold.cliff_bytes
    ]
    if early:
        return AuthorsWord(what, ScenarioVerdict.NOT_REPRODUCED, f"{early[0].filling.name}: it did not come")
    if not errors:
        return AuthorsWord(what, ScenarioVerdict.UNTOLD, "no run wrote as much")
    verdict = ScenarioVerdict.REPRODUCED if max(errors) <= NEAR_RATIO else ScenarioVerdict.NOT_REPRODUCED
    return AuthorsWord(what, verdict, f"{100 * max(errors):.2g} % off; {100 * NEAR_RATIO:g} % are wanted")


def _at_five(run: UntrimmedRun, setup: UntrimmedSetup, profile: Profile) -> AuthorsWord:
    """Whether the collapse is where the author's account of free blocks ends."""
    published = setup.published_cliff_bytes
    what = f"shortly after {_gb(published)}, the blocks that were free"
    if run.cliff_bytes is None:
        return AuthorsWord(what, ScenarioVerdict.UNTOLD, "it did not come")
    if published <= run.cliff_bytes <= 1.5 * published:
        return AuthorsWord(what, ScenarioVerdict.REPRODUCED, f"after {_gb(run.cliff_bytes)}")
    hidden = profile.drive["physical_bytes"] - profile.drive["user_bytes"]
    why = (
        f"after {_gb(run.cliff_bytes)}: beside the addresses that nothing was written to, this drive has "
        f"{_gb(hidden)} of flash that it never shows"
    )
    cache = run.foretold.cache_bytes
    if cache is None:
        return AuthorsWord(what, ScenarioVerdict.NOT_REPRODUCED, why)
    why += (
        f". Its cache is full after {_gb(cache)}; which of both the author met, he could not see, and the "
        f"cache of this profile proves nothing of it ({profile.source})"
    )
    return AuthorsWord(what, ScenarioVerdict.UNTOLD, why)


def _gb(n_bytes: float) -> str:
    return f"{n_bytes / 1e9:.1f} GB"


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
