"""Whose NAND bytes: each owner's share, proportionally, by moved data, and by cause. Pure.

The drive's flash and its collector are unknown, as in sweep/history/prediction.py: each assumed collector
that explains the drive's counter gives shares, and a band reaches over all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import NamedTuple

from opwatch.blame.coalitions import (
    Absence,
    Coalition,
    CoalitionBytes,
    count_written_units,
    list_coalitions,
    replay_coalition,
)
from opwatch.blame.history import OwnedHistory
from opwatch.blame.shapley import compute_shapley, leave_one_out
from opwatch.errors import NotEnoughData
from opwatch.ftl.drive import GcFrontier, Policy
from opwatch.sweep.history.advice import KnownDrive, find_padding
from opwatch.sweep.history.model import HistoryModel
from opwatch.sweep.history.prediction import FittedCollector, fit_collectors
from opwatch.sweep.history.replaying import ASSUMED_COLLECTORS, LEAST_EXCESS, AssumedCollector
from opwatch.sweep.ranges import ValueRange

# Shares depend more on the collector than WAF: on where moved data goes under greedy collection among few
# and on how near to greedy it is. Choosing at random is the other end: drives that choose among few blocks,
# or only among old ones, are between. Predictions do without these two.
BLAMED_COLLECTORS = (
    *ASSUMED_COLLECTORS,
    AssumedCollector(
        "greedy among five, a frontier for moved data",
        {"policy": Policy.D_CHOICES, "policy_arg": 5, "gc_frontier": GcFrontier.COMMON},
        64,
    ),
    AssumedCollector(
        "random, one frontier",
        {"policy": Policy.D_CHOICES, "policy_arg": 1, "gc_frontier": GcFrontier.SHARED},
        64,
    ),
)
# A fit may end this far from the WAF above 1, relative to it.
_FIT_TOLERANCE = 0.02
# Widening of a band: a share of all NAND bytes, larger for moved data, and then at least this share of the
# band's middle. All are from drives whose collectors are none of the models (tests/bench/blame_bench).
_MARGIN, _MOVED_MARGIN, _LEAST_HALF = 0.005, 0.02, 0.1


class ByteBand(NamedTuple):
    """The range within which a number of bytes is expected."""

    low: float
    high: float

    @property
    def middle(self) -> float:
        return (self.low + self.high) / 2


@dataclass(frozen=True, slots=True)
class OwnerBlame:
    """NAND bytes of an owner.

    `proportional_bytes` is its share of what the host wrote. `moved_for` is its own data, as written and as
    moved later, whoever needed the room. `caused` is its Shapley value. `saved_without` is what the drive
    would not program without it; these do not add up. The last three are None if no model explains the drive.
    """

    name: str
    host_bytes: int
    proportional_bytes: float
    moved_for: ByteBand | None = None
    caused: ByteBand | None = None
    saved_without: ByteBand | None = None


@dataclass(frozen=True, slots=True)
class Blame:
    """The answer.

    `nand` is the drive's own counter. `moved_for_older` is data from before the history. `interference` has
    the NAND bytes that the writes of one owner (row) add to the data of another (column) if both are alone on
    the drive. `collectors` are the assumed collectors behind the bands; `refusal` says why there are none.
    """

    nand: ValueRange
    absence: Absence
    owners: tuple[OwnerBlame, ...]
    moved_for_older: ByteBand | None = None
    interference: tuple[tuple[ByteBand | None, ...], ...] = ()
    collectors: tuple[str, ...] = ()
    refusal: str | None = None


class ReplayedShares(NamedTuple):
    """Shares of all NAND bytes under one collector. `programmed` begins with the data from before the
    history."""

    programmed: tuple[float, ...]
    caused: tuple[float, ...]
    saved_without: tuple[float, ...]
    interference: tuple[tuple[float, ...], ...]


def blame_owners(
    history: OwnedHistory,
    nand: ValueRange,
    flash_bytes: int | None = None,
    absence: Absence = Absence.STAYS,
) -> Blame:
    """Return the share of each owner of the NAND bytes that the drive counted during the history.

    Without a model that explains this counter, the shares are proportional only, with the reason.
    """
    total = sum(history.host_bytes)
    proportional = Blame(
        nand,
        absence,
        tuple(
            OwnerBlame(name, host, nand.value * host / total)
            for name, host in zip(history.names, history.host_bytes, strict=True)
        ),
    )
    model = history.system.model
    try:
        model.require_enough()
        with ThreadPoolExecutor() as pool:
            fitted = _fit_drive(history, nand, flash_bytes, pool)
            shares = _replay_all(model, len(history.names), fitted, absence, pool)
    except NotEnoughData as error:
        return replace(proportional, refusal=str(error))
    return _join_shares(proportional, shares, fitted)


def _fit_drive(
    history: OwnedHistory, nand: ValueRange, flash_bytes: int | None, pool: ThreadPoolExecutor
) -> list[FittedCollector]:
    """Return the collectors whose NAND bytes agree with the counter. Raise NotEnoughData if none does."""
    system = history.system
    reported = ValueRange(nand.value / system.written_bytes, nand.error / system.written_bytes)
    padding = find_padding(system, KnownDrive(reported))
    waf, error = reported.value / padding, reported.error / padding
    if waf + error < 1:
        raise NotEnoughData(
            f"the drive counted {reported.value:.2f} NAND bytes per written byte: it compresses, or its "
            "counter does not cover the history"
        )
    flash_units = round(flash_bytes / system.unit_bytes) if flash_bytes else None
    fitted = fit_collectors(system.model, max(waf, 1.0), flash_units, pool, BLAMED_COLLECTORS)
    near = [one for one in fitted if _is_near(one, waf, error)]
    if not near:
        closest = min((one.aged.waf for one in fitted), key=lambda value: abs(value - waf))
        raise NotEnoughData(
            f"the nearest model programs {closest * padding:.2f} bytes per written byte, and the drive "
            f"counted {reported.value:.2f} ± {reported.error:.2f}"
        )
    return near


def _is_near(one: FittedCollector, waf: float, error: float) -> bool:
    tolerance = _FIT_TOLERANCE + one.aged.pass_error
    return abs(one.aged.waf - waf) <= error + tolerance * max(waf - 1, LEAST_EXCESS)


def _replay_all(
    model: HistoryModel,
    owners: int,
    fitted: Sequence[FittedCollector],
    absence: Absence,
    pool: ThreadPoolExecutor,
) -> list[ReplayedShares]:
    coalitions = list_coalitions(model, owners, absence)
    jobs = [(coalition, one) for one in fitted for coalition in coalitions]

    def replay(job: tuple[Coalition, FittedCollector]) -> CoalitionBytes:
        coalition, one = job
        return replay_coalition(coalition, one.collector, one.flash_units, owners)

    replayed = list(pool.map(replay, jobs))
    written, count = count_written_units(model, owners), len(coalitions)
    found = list[ReplayedShares]()
    for place, one in enumerate(fitted):
        values = replayed[place * count : (place + 1) * count]
        found.append(compute_shares(values, written))
        if one.collector.settings["policy"] == Policy.FIFO:
            found.append(compute_unbroken_shares(values, found[-1]))
    return found


def compute_unbroken_shares(coalitions: Sequence[CoalitionBytes], shares: ReplayedShares) -> ReplayedShares:
    """Return the shares with the NAND bytes of each coalition before the first break in a log, if known."""
    values = [one.nand if one.unbroken is None else one.unbroken for one in coalitions]
    return shares._replace(
        caused=tuple(one / values[-1] for one in compute_shapley(values)),
        saved_without=tuple(one / values[-1] for one in leave_one_out(values)),
    )


def compute_shares(coalitions: Sequence[CoalitionBytes], written: Sequence[int]) -> ReplayedShares:
    """Return the shares of the owners. `written` are the units that each owner writes, from owner 0 on."""
    values = [one.nand for one in coalitions]
    whole, owners = coalitions[-1], len(written) - 1
    programmed = [coalitions[1 << bit].programmed[bit + 1] for bit in range(owners)]
    interference = [
        tuple(
            (coalitions[1 << by | 1 << of].programmed[of + 1] - programmed[of]) / whole.nand
            if by != of
            else 0.0
            for of in range(owners)
        )
        for by in range(owners)
    ]
    total = sum(whole.programmed)
    return ReplayedShares(
        tuple(one / total for one in whole.programmed),
        tuple(one / whole.nand for one in compute_shapley(values)),
        tuple(one / whole.nand for one in leave_one_out(values)),
        tuple(interference),
    )


def _join_shares(
    proportional: Blame, shares: Sequence[ReplayedShares], fitted: Sequence[FittedCollector]
) -> Blame:
    """Return the answer with bands over the shares of all collectors and the error of the counter."""

    def join(values: Iterable[float], margin: float = _MARGIN) -> ByteBand:
        return _scale_band(_widen(list(values), margin), proportional.nand)

    def join_programmed(owner: int) -> ByteBand:
        low, high = join((one.programmed[owner] for one in shares), _MOVED_MARGIN)
        return ByteBand(max(low, 0.0), high)

    owners = range(len(proportional.owners))
    return replace(
        proportional,
        owners=tuple(
            replace(
                owner,
                moved_for=join_programmed(at + 1),
                caused=join(one.caused[at] for one in shares),
                saved_without=join(one.saved_without[at] for one in shares),
            )
            for at, owner in enumerate(proportional.owners)
        ),
        moved_for_older=join_programmed(0),
        interference=tuple(
            tuple(None if by == of else join(one.interference[by][of] for one in shares) for of in owners)
            for by in owners
        ),
        collectors=tuple(one.collector.name for one in fitted),
    )


def _widen(shares: Sequence[float], margin: float) -> tuple[float, float]:
    """Return the range of the shares of all models, wide enough for drives that are none of them."""
    low, high = min(shares), max(shares)
    middle = (low + high) / 2
    half = max((high - low) / 2 + margin, _LEAST_HALF * abs(middle))
    return middle - half, middle + half


def _scale_band(shares: tuple[float, float], nand: ValueRange) -> ByteBand:
    """Return the range of bytes of a counter. A share may be negative: less is programmed with it."""
    products = [share * bytes_ for share in shares for bytes_ in (nand.low, nand.high)]
    return ByteBand(min(products), max(products))
