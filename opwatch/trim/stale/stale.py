"""What is free for the file system but still data for the drive, and what that costs. Pure."""

from __future__ import annotations

from collections.abc import Callable

from opwatch import units
from opwatch.frozen import frozen
from opwatch.ftl import models
from opwatch.trim.stale.estimate import Share
from opwatch.trim.stale.sentinel import ReadsAs

# Pages of a superblock in the greedy model: from 256 on their number changes the figures by little.
SUPERBLOCK_PAGES = 256
_FOLLOWS, _IGNORES = 0.8, 0.1


@frozen
class Count:
    """The drive's own count of what it holds (NUSE), around a sentinel of `trimmed_bytes`."""

    before_bytes: int
    written_bytes: int
    after_bytes: int
    trimmed_bytes: int

    @property
    def follows(self) -> bool:
        """It fell by what was trimmed: then it can be believed."""
        return self.written_bytes - self.after_bytes >= _FOLLOWS * self.trimmed_bytes

    @property
    def ignores(self) -> bool:
        """It counted what was written, and not that it was trimmed."""
        rose = self.written_bytes - self.before_bytes >= _FOLLOWS * self.trimmed_bytes
        return rose and self.written_bytes - self.after_bytes <= _IGNORES * self.trimmed_bytes

    @property
    def words(self) -> str:
        if self.follows:
            return "it followed the sentinel's trim"
        if self.ignores:
            return "it rose when the sentinel was written and did not fall when it was trimmed"
        return "it did not follow the sentinel, so it tells nothing"


@frozen
class Mapped:
    """Free bytes that the drive holds by its own map (SCSI GET LBA STATUS), to a block. `follows`: the map
    had the sentinel, and lost it with its trim; otherwise it tells nothing."""

    held_bytes: int
    follows: bool


@frozen
class Calibration:
    """What a trimmed block of this drive reads as, and how that is known. `reads` is None, and `words` say
    why, when the drive cannot be judged by reading."""

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
    """What a sentinel proves, or else what the drive promises."""
    words = (sentinel_words, promise_words)
    if sentinel in (ReadsAs.ZEROS, ReadsAs.ONES):
        if count and count.ignores:
            doubt = "but its own count of what it holds (NUSE) did not fall: it holds what reads as trimmed"
            return Calibration(None, None, (sentinel_words, doubt), sentinel)
        return Calibration(sentinel, "sentinel", words, sentinel)
    if sentinel is ReadsAs.OTHER:
        return Calibration(None, None, words, sentinel)
    if promised:
        return Calibration(promised, "promise", words, sentinel)
    return Calibration(None, None, words, sentinel)


@frozen
class Bounds:
    """A figure with what it lies between. `value` is None where only the bounds are known."""

    value: float | None
    low: float
    high: float

    def through(self, function: Callable[[float], float]) -> Bounds:
        """The bounds of what a function makes of these; it must only grow or only fall."""
        ends = sorted((function(self.low), function(self.high)))
        return Bounds(None if self.value is None else function(self.value), ends[0], ends[1])


def stale_bytes(share: Share, free_bytes: int) -> Bounds:
    """The share as bytes of the free space."""
    value = None if share.share is None else share.share * free_bytes
    return Bounds(value, share.low * free_bytes, share.high * free_bytes)


# What a live count may be late by, of the free space and at least.
_LATE_SHARE, _LATE_BYTES = 0.02, 16 << 20


def disputed(stale: Bounds, free_bytes: int, disk_bytes: int, held_bytes: int | None) -> str | None:
    """Why the drive's own count (NUSE) rules out what was read, None where it does not. All that is not free
    could be held, and no more: the rest of the count is stale. A count of nothing or of the whole disk is the
    constant that many drives give."""
    if held_bytes is None or not 0 < held_bytes < disk_bytes:
        return None
    least = held_bytes - (disk_bytes - free_bytes)
    if least <= stale.high + max(_LATE_BYTES, _LATE_SHARE * free_bytes):
        return None
    return (
        f"by its own count (NUSE) the drive holds {units.capacity(held_bytes)}, so at least "
        f"{units.capacity(least)} of the free space, but at most {units.capacity(int(stale.high))} of it "
        "read as data: either the drive reads as trimmed what it still holds, or its count is late"
    )


@frozen
class Spare:
    """Over-provisioning as (T-U)/U and write amplification by model, as it is and after a trim."""

    physical_bytes: int
    holding: Bounds
    holding_trimmed: Bounds
    op: Bounds
    op_trimmed: Bounds
    waf: dict[str, Bounds]
    waf_trimmed: dict[str, Bounds]
    counts: str


# What U is, in words: methods that count another thing come to another figure.
_ALL_IN_USE = "all that is not free, whether it was ever written or not, and what is stale"
_BY_COUNT = "what the drive counts as held (NUSE)"
_BY_HISTORY = "what was written and not trimmed, by the history; never written space does not count"


def spare(
    physical_bytes: int, used_bytes: int, stale: Bounds, untrimmable_bytes: int, held_bytes: int | None = None
) -> Spare | str:
    """What the stale space costs, or why that cannot be said. `used_bytes`: what of the drive is not free
    space; `held_bytes`: what the drive counts itself, where that can be believed."""
    left = min(stale.high, untrimmable_bytes)
    if held_bytes is None:
        holding = stale.through(lambda part: used_bytes + part)
        trimmed = Bounds(used_bytes, used_bytes, used_bytes)
    elif held_bytes <= stale.high:
        holding = Bounds(held_bytes, held_bytes, held_bytes)
        # Nearly all that it holds is stale: the difference would be noise, so the most that it can be.
        most = used_bytes if used_bytes < held_bytes else max(0.0, held_bytes - stale.low)
        trimmed = Bounds(most, most, most)
    else:
        holding = Bounds(held_bytes, held_bytes, held_bytes)
        # Not all that is in use need hold data, but no more than that does.
        trimmed = stale.through(lambda part: min(held_bytes - part, used_bytes))
    return _spare(
        physical_bytes, holding, trimmed, stale, left, _ALL_IN_USE if held_bytes is None else _BY_COUNT
    )


def spare_by_history(
    physical_bytes: int, holding: Bounds, stale: Bounds, unknown_in_use: int, untrimmable_bytes: int
) -> Spare | str:
    """Over-provisioning and write amplification by a map of the drive: `holding` is what it holds in all.
    What is in use and was never written holds nothing, and so does not count. `unknown_in_use`: bytes in use
    that may hold data."""
    in_use = holding.low - stale.low
    trimmed = Bounds(None if unknown_in_use else in_use, in_use, in_use + unknown_in_use)
    return _spare(physical_bytes, holding, trimmed, stale, min(stale.high, untrimmable_bytes), _BY_HISTORY)


def _spare(
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
        return "the drive may hold nothing at all, as far as is known, so that nothing can be said"
    if not trimmed.low:
        return "all of the drive is free space, so that nothing can be said of writes to the rest"
    if holding.high >= physical_bytes:
        return "the drive would hold as much as its flash can: T is too small, or counts another part of it"
    return Spare(
        physical_bytes=physical_bytes,
        holding=holding,
        holding_trimmed=trimmed,
        op=holding.through(lambda part: physical_bytes / part - 1),
        op_trimmed=trimmed.through(lambda part: physical_bytes / part - 1),
        waf=_waf_now(physical_bytes, holding, stale, apart=counts == _BY_HISTORY),
        waf_trimmed={
            "fifo": trimmed.through(lambda part: models.fifo(physical_bytes / part)),
            "greedy": trimmed.through(lambda part: models.greedy(physical_bytes / part, SUPERBLOCK_PAGES)),
        },
        counts=counts,
    )


def _waf_now(physical_bytes: int, holding: Bounds, stale: Bounds, *, apart: bool) -> dict[str, Bounds]:
    """Uniform random writes to what is in use, beside stale space that nobody writes. `holding` grows with
    it, or is known: either way the bounds of the stale space bound the rest, unless each varies `apart`."""

    def amplification(total: float, part: float, *, greedy: bool) -> float:
        alpha, active = physical_bytes / total, max(1 - part / total, 1e-9)
        if greedy:
            return models.greedy_with_static(alpha, SUPERBLOCK_PAGES, active)
        return models.fifo_mixture(alpha, [(active, 1.0), (1 - active, 0.0)])

    def both(*, greedy: bool) -> Bounds:
        corners = [(holding.low, stale.low), (holding.high, stale.high)]
        if apart:
            corners += [(holding.low, min(stale.high, holding.low)), (holding.high, stale.low)]
        ends = sorted(amplification(total, part, greedy=greedy) for total, part in corners)
        middle = None
        if holding.value is not None and stale.value is not None:
            middle = amplification(holding.value, stale.value, greedy=greedy)
        return Bounds(middle, ends[0], ends[-1])

    return {"fifo": both(greedy=False), "greedy": both(greedy=True)}
