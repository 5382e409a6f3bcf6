"""Compute stale space (free in the file system, but still held by the drive) and its cost. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from opwatch import units
from opwatch.ftl import models
from opwatch.trim.stale.estimate import Share
from opwatch.trim.stale.sentinel import ReadsAs

# Pages per superblock in the greedy model: above 256 the figures change little.
SUPERBLOCK_PAGES = 256
_FOLLOWS, _IGNORES = 0.8, 0.1


@dataclass(frozen=True, slots=True)
class Count:
    """The drive's own count of held bytes (NUSE), around a sentinel of `trimmed_bytes`."""

    before_bytes: int
    written_bytes: int
    after_bytes: int
    trimmed_bytes: int

    @property
    def has_followed_trim(self) -> bool:
        """True if the count fell by about the trimmed bytes: the count is then credible."""
        return self.written_bytes - self.after_bytes >= _FOLLOWS * self.trimmed_bytes

    @property
    def has_ignored_trim(self) -> bool:
        """True if the count rose by the written bytes and ignored the trim."""
        rose = self.written_bytes - self.before_bytes >= _FOLLOWS * self.trimmed_bytes
        return rose and self.written_bytes - self.after_bytes <= _IGNORES * self.trimmed_bytes

    @property
    def response_text(self) -> str:
        if self.has_followed_trim:
            return "it fell by the sentinel's trim"
        if self.has_ignored_trim:
            return "it rose when the sentinel was written and did not fall when it was trimmed"
        return "it did not follow the sentinel, so it proves nothing"


@dataclass(frozen=True, slots=True)
class MappedBytes:
    """Free bytes that the drive's own map (SCSI GET LBA STATUS) shows as held, exact to a block. `follows`:
    the map contained the sentinel, and lost it with the trim; otherwise the map is not credible."""

    held_bytes: int
    follows: bool


@dataclass(frozen=True, slots=True)
class Calibration:
    """The contents of trimmed blocks on a drive, and the evidence. `reads` is None, with the reason in
    `words`, if the drive cannot be judged by reading."""

    reads: ReadsAs | None
    by: str | None  # sentinel or promise
    words: tuple[str, ...]
    sentinel: ReadsAs | None = None


def calibrate(
    promised: ReadsAs | None,
    promise_words: str,
    sentinel: ReadsAs | None,
    sentinel_words: str,
    count: Count | None = None,
) -> Calibration:
    """Return the calibration proven by a sentinel, or else the drive's promise."""
    words = (sentinel_words, promise_words)
    if sentinel in (ReadsAs.ZEROS, ReadsAs.ONES):
        if count and count.has_ignored_trim:
            doubt = "but the drive's count (NUSE) did not fall: it still holds data that reads as trimmed"
            return Calibration(None, None, (sentinel_words, doubt), sentinel)
        return Calibration(sentinel, "sentinel", words, sentinel)
    if sentinel is ReadsAs.OTHER:
        return Calibration(None, None, words, sentinel)
    if promised:
        return Calibration(promised, "promise", words, sentinel)
    return Calibration(None, None, words, sentinel)


@dataclass(frozen=True, slots=True)
class Bounds:
    """A value with its bounds. `value` is None if only the bounds are known."""

    value: float | None
    low: float
    high: float

    def apply_function(self, function: Callable[[float], float]) -> Bounds:
        """Return the bounds after applying a monotonic function."""
        ends = sorted((function(self.low), function(self.high)))
        return Bounds(None if self.value is None else function(self.value), ends[0], ends[1])


def stale_bytes(share: Share, free_bytes: int) -> Bounds:
    """Return the share in bytes of free space."""
    value = None if share.share is None else share.share * free_bytes
    return Bounds(value, share.low * free_bytes, share.high * free_bytes)


# Tolerated lag of a live count: a share of the free space, and a minimum.
_LATE_SHARE, _LATE_BYTES = 0.02, 16 << 20


def find_contradiction(stale: Bounds, free_bytes: int, disk_bytes: int, held_bytes: int | None) -> str | None:
    """Return why the drive's own count (NUSE) contradicts the reading; None if consistent. The space in use
    can account for at most its own size: the rest of the count is stale. A count of zero or of the whole disk
    is ignored, because many drives report such a constant."""
    if held_bytes is None or not 0 < held_bytes < disk_bytes:
        return None
    least = held_bytes - (disk_bytes - free_bytes)
    if least <= stale.high + max(_LATE_BYTES, _LATE_SHARE * free_bytes):
        return None
    return (
        f"the drive counts {units.format_capacity(held_bytes)} as in use (NUSE), so at least "
        f"{units.format_capacity(least)} of the free space is stale, but at most "
        f"{units.format_capacity(int(stale.high))} of it "
        "reads as data: either data that the drive still holds reads as trimmed, or the count lags"
    )


@dataclass(frozen=True, slots=True)
class Spare:
    """Over-provisioning as (T-U)/U and modelled write amplification, now and after a trim."""

    physical_bytes: int
    holding: Bounds
    holding_trimmed: Bounds
    op: Bounds
    op_trimmed: Bounds
    waf: dict[str, Bounds]
    waf_trimmed: dict[str, Bounds]
    counts: str


# Definitions of U. Methods with different definitions give different figures.
_ALL_IN_USE = "all space that is not free, even if never written, and the stale space"
_BY_COUNT = "the space that the drive counts as in use (NUSE)"
_BY_HISTORY = "space written and not trimmed since, by the history; never written space does not count"


def estimate_spare(
    physical_bytes: int, used_bytes: int, stale: Bounds, untrimmable_bytes: int, held_bytes: int | None = None
) -> Spare | str:
    """Return the cost of the stale space, or why the cost is unknown. `used_bytes`: bytes of the drive that
    are not free space; `held_bytes`: the drive's own count, if credible."""
    left = min(stale.high, untrimmable_bytes)
    if held_bytes is None:
        holding = stale.apply_function(lambda part: used_bytes + part)
        trimmed = Bounds(used_bytes, used_bytes, used_bytes)
    elif held_bytes <= stale.high:
        holding = Bounds(held_bytes, held_bytes, held_bytes)
        # Nearly all held bytes are stale: the difference would be noise, so use its upper limit.
        most = used_bytes if used_bytes < held_bytes else max(0.0, held_bytes - stale.low)
        trimmed = Bounds(most, most, most)
    else:
        holding = Bounds(held_bytes, held_bytes, held_bytes)
        # Space in use may hold no data, but cannot hold more than its size.
        trimmed = stale.apply_function(lambda part: min(held_bytes - part, used_bytes))
    return _make_spare(
        physical_bytes, holding, trimmed, stale, left, _ALL_IN_USE if held_bytes is None else _BY_COUNT
    )


def estimate_spare_by_history(
    physical_bytes: int, holding: Bounds, stale: Bounds, unknown_in_use: int, untrimmable_bytes: int
) -> Spare | str:
    """Return over-provisioning and write amplification from a map of the drive. `holding` is everything that
    the drive holds, so space in use that was never written does not count. `unknown_in_use`: bytes in use
    that may hold data."""
    in_use = holding.low - stale.low
    trimmed = Bounds(None if unknown_in_use else in_use, in_use, in_use + unknown_in_use)
    return _make_spare(
        physical_bytes, holding, trimmed, stale, min(stale.high, untrimmable_bytes), _BY_HISTORY
    )


def _make_spare(
    physical_bytes: int,
    holding: Bounds,
    trimmed: Bounds,
    stale: Bounds,
    untrimmable_bytes: float,
    counts: str,
) -> Spare | str:
    if untrimmable_bytes:
        trimmed = Bounds(None, trimmed.low, trimmed.high + untrimmable_bytes)
    if not holding.low:
        return "the drive may hold no data at all, so no ratio can be computed"
    if not trimmed.low:
        return "the whole drive is free space, so there is no space in use to write to"
    if holding.high >= physical_bytes:
        return "the drive would hold as much as its flash capacity: T is too small, or excludes a part of it"
    return Spare(
        physical_bytes=physical_bytes,
        holding=holding,
        holding_trimmed=trimmed,
        op=holding.apply_function(lambda part: physical_bytes / part - 1),
        op_trimmed=trimmed.apply_function(lambda part: physical_bytes / part - 1),
        waf=_predict_waf_now(physical_bytes, holding, stale, apart=counts == _BY_HISTORY),
        waf_trimmed={
            "fifo": trimmed.apply_function(lambda part: models.predict_fifo(physical_bytes / part)),
            "greedy": trimmed.apply_function(
                lambda part: models.predict_greedy(physical_bytes / part, SUPERBLOCK_PAGES)
            ),
        },
        counts=counts,
    )


def _predict_waf_now(
    physical_bytes: int, holding: Bounds, stale: Bounds, *, apart: bool
) -> dict[str, Bounds]:
    """Return the write amplification of uniform random writes to the space in use, next to stale space
    without writes. `holding` is known or grows with `stale`: then the bounds of `stale` give the bounds of
    the result. If both vary independently (`apart`), the mixed corners count too."""

    def predict_amplification(total: float, part: float, *, greedy: bool) -> float:
        alpha, active = physical_bytes / total, max(1 - part / total, 1e-9)
        if greedy:
            return models.predict_greedy_with_static(alpha, SUPERBLOCK_PAGES, active)
        return models.predict_fifo_mixture(alpha, [(active, 1.0), (1 - active, 0.0)])

    def compute_bounds(*, greedy: bool) -> Bounds:
        corners = [(holding.low, stale.low), (holding.high, stale.high)]
        if apart:
            corners += [(holding.low, min(stale.high, holding.low)), (holding.high, stale.low)]
        ends = sorted(predict_amplification(total, part, greedy=greedy) for total, part in corners)
        middle = None
        if holding.value is not None and stale.value is not None:
            middle = predict_amplification(holding.value, stale.value, greedy=greedy)
        return Bounds(middle, ends[0], ends[-1])

    return {"fifo": compute_bounds(greedy=False), "greedy": compute_bounds(greedy=True)}
