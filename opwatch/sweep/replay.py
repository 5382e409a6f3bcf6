"""Repeat the recorded writes of a real system on a model drive until its WAF is in steady state.

The recorded requests are repeated endlessly. What they never write is static: it stays where the fill put it,
until collection moves it. No clock is needed, so the result is a WAF alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from opwatch.errors import NotEnoughData
from opwatch.ftl.drive import Drive, GcFrontier, Policy, Tie, Workload, Zone
from opwatch.ftl.host_load import HostLoad
from opwatch.ftl.recorded import SECTOR, DiskRequests, ScaledRequests, scale_requests
from opwatch.steady.coverage import WriteSpread
from opwatch.steady.rounds import Round
from opwatch.steady.skew import UNIFORM, WritePart, merge_parts
from opwatch.steady.strict import StrictState, StrictVerdict, VerdictInputs, judge_strict
from opwatch.sweep.band import make_greedy_model
from opwatch.trim.history.requests import RecordedRequests, is_freeing

_UNIT_BYTES = 4096
# A round has whole repetitions, and at least this share of the data in use.
_ROUND_RATIO = 0.1
# Superblocks of a model: enough that the open one hardly counts.
_SUPERBLOCKS, _LEAST_PAGES = 1024, 64
_MOST_ROUNDS, _LEAST_ROUNDS = 400, 5
# Rounds between two verdicts, as a share of all rounds so far.
_VERDICT_SHARE = 20


@dataclass(frozen=True, slots=True)
class ReplayDrive:
    """The model drive. `spare_ratio` is (T-U)/U, where U is the whole disk.

    `superblock_pages` is of the real drive, or None if unknown. The model has `units` units, or as many as
    the disk if these are fewer.
    """

    spare_ratio: float
    policy: Policy = Policy.GREEDY
    frontier: GcFrontier = GcFrontier.COMMON
    tie: Tie = Tie.LATEST
    superblock_pages: int | None = None
    units: int = 1 << 18


@dataclass(frozen=True, slots=True)
class ReplayOutcome:
    """The result of a replay.

    `waf` is NAND bytes per host byte of the last rounds. `error_ratio` contains chance, the rest of the
    approach and the size of the model. If `is_settled` is False, `waf` is where the level is expected to
    settle, or the last value, and `reason` says what is missing. `live_ratio` is the share of the disk that
    holds data, and `drive_writes` were replayed.
    """

    waf: float
    error_ratio: float
    is_settled: bool
    reason: str
    live_ratio: float
    drive_writes: float
    verdict: StrictVerdict


def prepare_requests(requests: RecordedRequests, free_bytes: Iterable[tuple[int, int]] = ()) -> DiskRequests:
    """Return the requests of a history as a model takes them.

    `free_bytes` are ranges of the disk that held no data before the first request. All others hold data until
    a request trims them.
    """
    table = bytes(is_freeing(kind) for kind in range(256))
    trims = requests.kinds.translate(table)
    disk_bytes = requests.drive.sectors * SECTOR
    return DiskRequests(disk_bytes, requests.sectors, requests.lengths, trims, tuple(free_bytes))


def replay_requests(
    requests: DiskRequests, drive: ReplayDrive, *, most_drive_writes: float = 60.0
) -> ReplayOutcome:
    """Repeat the requests on a model drive until WAF is proven, or `most_drive_writes`.

    Raise NotEnoughData for requests that write nothing.
    """
    scaled = scale_requests(requests, drive.units, _UNIT_BYTES)
    if not scaled.pass_bytes:
        raise NotEnoughData("the recording writes nothing, or too little for a model: record for longer")
    model = _make_drive(scaled, drive)
    host = HostLoad(model, scaled.units * scaled.unit_bytes, records=scaled.records)
    return _run_replay(model, host, scaled, drive, most_drive_writes)


def find_parts(scaled: ScaledRequests) -> tuple[WritePart, ...]:
    """Return the shares of space and of writes of the units, by their number of writes."""
    parts = (WritePart(units, units * writes) for writes, units in scaled.density.items())
    return merge_parts(parts) or UNIFORM


def _make_drive(scaled: ScaledRequests, drive: ReplayDrive) -> Drive:
    """Return the model, filled in order, with its free ranges trimmed."""
    unit, used = scaled.unit_bytes, scaled.units
    flash = round(used * (1 + drive.spare_ratio))
    pages = max(1 << int(math.log2(max(flash / _SUPERBLOCKS, 1))), _LEAST_PAGES)
    pages = min(pages, max(drive.superblock_pages or pages, _LEAST_PAGES))
    settings = {
        "user_bytes": used * unit,
        "physical_bytes": flash * unit,
        "superblock_bytes": pages * unit,
        "iu_bytes": unit,
        "policy": drive.policy,
        "gc_frontier": drive.frontier,
        "tie": drive.tie,
    }
    model = Drive(settings)
    model.run_load(Workload((Zone(0, used * unit),), sequential=True), used)
    for begin, end in scaled.free:
        model.core.trim(begin * unit, (end - begin) * unit)
    return model


def _run_replay(
    model: Drive,
    host: HostLoad,
    scaled: ScaledRequests,
    drive: ReplayDrive,
    most_drive_writes: float,
) -> ReplayOutcome:
    used = scaled.units * scaled.unit_bytes
    repeats = max(math.ceil(_ROUND_RATIO * used / scaled.pass_bytes), 1)
    rounds: list[Round] = []
    spread = WriteSpread(1.0, None, "the fill of the model", find_parts(scaled))
    verdict = None
    while True:
        done = host.run(repeats * scaled.pass_bytes)
        # Equal times make IOPS a constant: only WAF is judged.
        rounds.append(Round(done.host_bytes, 1.0, 1, None, done.nand_bytes))
        turns = sum(one.host_bytes for one in rounds) / used
        is_last = turns >= most_drive_writes or len(rounds) >= _MOST_ROUNDS
        if not is_last and (len(rounds) < _LEAST_ROUNDS or len(rounds) % (len(rounds) // _VERDICT_SHARE + 1)):
            continue
        counters = model.read_counters()
        # Free space is spare area too.
        live = counters["valid_bytes"]
        verdict = judge_strict(rounds, VerdictInputs(live, counters["physical_bytes"] - live, spread))
        if is_last or (verdict.is_amplification_proven and verdict.state is not StrictState.NOT_REACHED):
            break
    return _make_outcome(verdict, rounds, drive, scaled.padding_ratio, (live / used, turns), model)


def _make_outcome(
    verdict: StrictVerdict,
    rounds: list[Round],
    drive: ReplayDrive,
    padding: float,
    shares: tuple[float, float],
    model: Drive,
) -> ReplayOutcome:
    is_settled = verdict.is_amplification_proven
    window = verdict.window
    if is_settled and window and window.waf:
        waf, error = window.whole.waf or window.waf.mean, window.waf.error
    else:
        expected = verdict.expect_settled()
        waf, error = rounds[-1].waf or 1.0, 1.0
        if expected and expected.waf and expected.waf_error is not None:
            waf, error = expected.waf, expected.waf_error / expected.waf
    return ReplayOutcome(
        waf=waf * padding,
        error_ratio=error + _estimate_size_error(model, drive),
        is_settled=is_settled,
        reason="" if is_settled else verdict.reason,
        live_ratio=shares[0],
        drive_writes=shares[1],
        verdict=verdict,
    )


def _estimate_size_error(model: Drive, drive: ReplayDrive) -> float:
    """Return the relative error of WAF due to the open superblock, and to smaller superblocks."""
    settings = model.core.config()
    pages = settings["superblock_bytes"] // settings["iu_bytes"]
    error = settings["superblock_bytes"] / settings["physical_bytes"]
    if drive.policy is not Policy.GREEDY or not drive.superblock_pages:
        return error
    alpha = 1 + drive.spare_ratio
    large = make_greedy_model(drive.superblock_pages).waf(alpha)
    return error + abs(make_greedy_model(pages).waf(alpha) / large - 1)
