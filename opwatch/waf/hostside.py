"""Host bytes written between two marks of a NAND counter: the kernel's count, the drive's count, and
whether the two agree. Pure."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from opwatch.waf.span import Span
from opwatch.waf.trail import LONGEST_NS, Mark, Track, Trail, in_step

_PAGE = re.compile(r"log [0-9A-F]{2}h|attribute|device statistics|SCSI [\w ]+")
# Counts of an endurance group, metadata included. Its host and NAND counts must be used together.
PLACEMENT = "log 22h"
_SAME = 0.02
KERNEL = "the kernel's count"

Periods = Callable[[Track], int]


@dataclass(frozen=True, slots=True)
class HostSide:
    """Growth of host bytes. `agrees` is None if no comparison was possible; `why` explains the result."""

    span: Span
    source: str
    kernel: Span
    firmware: Span | None = None
    firmware_source: str | None = None
    agrees: bool | None = None
    why: str | None = None
    # The page showed, within its step, exactly what the kernel wrote between the two polls, so it was not
    # stale.
    fresh: bool = False
    # A later poll may show more.
    waits: bool = False


def page_of(source: str) -> str:
    """Return the page of a counter. All counters of a page are from the same moment."""
    page = _PAGE.match(source)
    return page[0] if page else source


def belong_together(nand: str, host: str) -> bool:
    """Return True if both counters count the same bytes of the same group."""
    return (page_of(nand) == PLACEMENT) == (page_of(host) == PLACEMENT)


def _at(track: Track, mark: Mark, period_ns: int, *, same_page: bool) -> Span:
    """Return the bounds of the drive's count of host writes at a mark."""
    shown = track.at(mark.poll) if same_page and mark.read else None
    if shown is not None:
        return Span(shown, shown)
    before = track.look_before(mark.since)
    after = track.look_after(mark.poll, period_ns)
    low = track.values[before] if before is not None else -math.inf
    return Span(low, track.values[after] if after is not None else math.inf)


def firmware_growth(track: Track, begin: Mark, end: Mark, period_ns: int, *, same_page: bool) -> Span:
    """Return the bounds of the growth of a drive's own count, as shown by its pages."""
    first = _at(track, begin, period_ns, same_page=same_page)
    last = _at(track, end, period_ns, same_page=same_page)
    return last.minus(first).widened(track.quantum - 1)


def kernel_growth(begin: Mark, end: Mark) -> Span:
    return end.written.minus(begin.written)


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "all"


def _explain(kernel: Span, firmware: Span, source: str) -> str:
    """Return possible reasons for the difference."""
    page = page_of(source)
    if firmware.low > kernel.high:
        more = int(firmware.low - kernel.high)
        words = (
            f"{page} has at least {more} bytes ({_percent(more, kernel.high)}) more than this kernel wrote: "
            "a passthrough command, another port or controller, or a namespace that is not seen here"
        )
        if page == PLACEMENT and more <= _SAME * kernel.high:
            words += "; or metadata, which it counts"
        return words
    more = int(kernel.low - firmware.high)
    return (
        f"the kernel has at least {more} bytes ({_percent(more, kernel.low)}) more than {page}: it counts "
        "Write Zeroes and writes that failed, and drives do not; or the page is older than its period"
    )


@dataclass(frozen=True, slots=True)
class _Witness:
    """A comparison of the kernel's count with the drive's.

    `confirms` is None if the comparison is not conclusive. The kernel counted at most `more` bytes that the
    drive did not count, and the drive at most `fewer` that the kernel did not.
    """

    confirms: bool | None = None
    why: str | None = None
    more: float = math.inf
    fewer: float = math.inf


def _witness(track: Track, period_ns: int, begin: Mark, end: Mark) -> _Witness:
    """Compare the counts between the first and the last change of the drive's counter, because the
    counter's moment is known best at changes, however wide the marks of other counters are."""
    first = track.edge_after(0)
    if first is None or first == len(track.polls) - 1:
        return _Witness()
    from_, to = track.mark(first, period_ns), track.mark(len(track.polls) - 1, period_ns)
    kernel, grown = kernel_growth(from_, to), to.value.minus(from_.value).widened(track.quantum - 1)
    if not kernel.known:
        return _Witness()
    if kernel.meet(grown) is None:
        return _Witness(False, _explain(kernel, grown, track.source))
    # The comparison does not cover the kernel's writes before the first change or after the last.
    left = max(from_.written.high - begin.written.low, 0) + max(end.written.high - to.written.low, 0)
    confirms = kernel.error + grown.error + left <= _SAME * kernel.middle or None
    fewer = math.inf if left else grown.high - kernel.low
    return _Witness(confirms, None, kernel.high - grown.low + left, fewer)


def _shown(trail: Trail, track: Track, begin: Mark, end: Mark) -> Iterator[_Witness]:
    """Compare a page's values at two polls around these marks with the kernel's writes between the polls.
    If the two agree, the page was not stale: it would have to hide at one end exactly what is missing at
    the other."""
    moments, last = trail.moments, len(trail.moments) - 1
    for from_, to in itertools.product((max(begin.since, 0), begin.poll), (end.poll, last)):
        before, after = track.at(from_), track.at(to)
        if before is None or after is None:
            continue
        kernel = moments[to].written.minus(moments[from_].written)
        grown = Span(after, after).minus(Span(before, before)).widened(track.quantum - 1)
        if kernel.known and kernel.meet(grown):
            left = max(moments[from_].written.high - begin.written.low, 0)
            left += max(end.written.high - moments[to].written.low, 0)
            fewer = math.inf if left > kernel.error else grown.high - kernel.low
            yield _Witness(None, None, kernel.high - grown.low + left, fewer)


def _allowed(kernel: Span, drive: Span, witnesses: Sequence[_Witness]) -> Span:
    """Return the bounds from two counts that agree: the drive's bounds, and the kernel's count with all
    differences that the comparisons allow. The kernel counts failed writes and Write Zeroes, and does not
    see other writers."""
    more = min(witness.more for witness in witnesses)
    fewer = min(witness.fewer for witness in witnesses)
    if not drive.known:
        # Nothing is known about other writers yet; `why` reports this.
        fewer = 0
    return Span(max(drive.low, kernel.low - more), min(drive.high, kernel.high + fewer))


def _candidates(trail: Trail, nand: Track) -> Sequence[Track]:
    """Return the drive's host counts to compare with the kernel's: those of the same page first, then by
    step size."""
    page = page_of(nand.source)
    fitting = [
        track
        for track in trail.host.values()
        if not track.lost and belong_together(nand.source, track.source)
    ]
    return sorted(fitting, key=lambda track: (page_of(track.source) != page, track.quantum))


def host_growth(trail: Trail, nand: Track, begin: Mark, end: Mark, periods: Periods) -> HostSide:
    """Return the best known growth of host bytes. If kernel and drive agree, use the range that both
    allow; otherwise the drive's count, because it includes all writers."""
    kernel = kernel_growth(begin, end)
    page = page_of(nand.source)
    drive: Span | None = None
    finest: Track | None = None
    for track in _candidates(trail, nand):
        same = page_of(track.source) == page
        grown = firmware_growth(
            track, begin, end, periods(track), same_page=same or _is_in_step(nand, track, begin, end)
        )
        both = grown if drive is None else drive.meet(grown)
        if both is None:
            continue  # two counts of the drive contradict each other: the first is on the better page
        if finest is None or both != drive:
            finest = finest or track
            drive = both
    if drive is None or finest is None:
        why = "the drive's own count of host writes was not read, so other writers would not be seen"
        return HostSide(kernel, KERNEL, kernel, why=why)
    if not kernel.known and drive.known:
        moments = trail.moments
        between = moments[end.poll].written.minus(moments[begin.poll].written)
        return _witnessed(between, drive, finest)
    pending = finest.look_after(end.poll, periods(finest)) is None
    candidates = _candidates(trail, nand)
    witnesses = [_witness(candidate, periods(candidate), begin, end) for candidate in candidates]
    refuted = next((witness.why for witness in witnesses if witness.confirms is False), None)
    if refuted:
        side = _beside(kernel, drive, finest)
        return replace(side, agrees=False, why=refuted, waits=pending and not drive.known)
    compared = _compared(kernel, drive, finest, waits=pending, learned=periods(finest) < LONGEST_NS)
    if compared.agrees is False:
        return compared
    looks = [look for candidate in candidates for look in _shown(trail, candidate, begin, end)]
    compared = replace(compared, span=_allowed(kernel, drive, [*witnesses, *looks]))
    confirmed = any(witness.confirms for witness in witnesses)
    return replace(compared, agrees=True, why=None) if confirmed and compared.agrees is None else compared


def _is_in_step(nand: Track, track: Track, begin: Mark, end: Mark) -> bool:
    """Return True if two pages can be treated as one: refreshed together as far as the polls show, and
    showing the kernel's writes between these marks. Without the second condition, the first may be chance."""
    if not in_step(nand, track):
        return False
    shown = firmware_growth(track, begin, end, 0, same_page=True)
    return kernel_growth(begin, end).meet(shown) is not None


def _beside(kernel: Span, drive: Span, track: Track) -> HostSide:
    """Return the drive's count with the kernel's as a second value, without a verdict."""
    return HostSide(
        span=drive, source=track.source, kernel=kernel, firmware=drive, firmware_source=track.source
    )


def _witnessed(between: Span, drive: Span, track: Track) -> HostSide:
    """Compare the counts when the page's age is unknown. Both sides of the page are of the same moment,
    and the kernel's count between the polls shows whether writes were missed."""
    side = _beside(between, drive, track)
    if not between.known:
        return replace(side, why="the kernel's count was not read")
    if between.meet(drive):
        return replace(side, agrees=True, fresh=True)
    why = f"{_explain(between, drive, track.source)}; or the page was old when it was first read"
    return replace(side, agrees=False, why=why)


def _compared(kernel: Span, drive: Span, track: Track, *, waits: bool, learned: bool) -> HostSide:
    source = track.source
    side = _beside(kernel, drive, track)
    if kernel.meet(drive) is None:
        return replace(side, agrees=False, why=_explain(kernel, drive, source))
    if not drive.known:
        side = replace(side, source=KERNEL)
        if kernel.known and drive.low + 2 * (track.quantum - 1) >= kernel.low:
            # If the refresh period is known, wait one period to see writes by others.
            waits = waits and learned
            why = f"{page_of(source)} has it all, and may show more of others" if waits else None
            return replace(side, agrees=None if waits else True, why=why, waits=waits)
        sure = _percent(drive.low, kernel.high) if kernel.known else f"{int(drive.low)} bytes"
        why = f"{page_of(source)} is of other moments: of it, it confirms {sure} at least"
        return replace(side, why=why, waits=waits)
    side = replace(side, source=KERNEL if kernel.error <= drive.error else source)
    # Other writes can be at most as large as the tolerated difference.
    if drive.high - kernel.low <= _SAME * kernel.middle + 2 * track.quantum:
        return replace(side, agrees=True)
    return replace(side, why=f"{page_of(source)} confirms it within {drive.error} bytes only")
