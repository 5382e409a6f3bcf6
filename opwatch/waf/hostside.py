"""What the host wrote between two marks of a NAND counter: by the kernel, by the drive, and whether they
agree. Pure."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator, Sequence

from opwatch.frozen import frozen, replace
from opwatch.waf.span import Span
from opwatch.waf.trail import LONGEST_NS, Mark, Track, Trail, in_step

_PAGE = re.compile(r"log [0-9A-F]{2}h|attribute|device statistics|SCSI [\w ]+")
# Counts with metadata, of one endurance group: its two sides belong together.
PLACEMENT = "log 22h"
_SAME = 0.02
KERNEL = "the kernel's count"

Periods = Callable[[Track], int]


@frozen
class HostSide:
    """Growth of host bytes. `agrees` is None when nothing could be compared; `why` explains."""

    span: Span
    source: str
    kernel: Span
    firmware: Span | None = None
    firmware_source: str | None = None
    agrees: bool | None = None
    why: str | None = None
    # The page has shown, within its step, just what the kernel wrote between the two polls: it was not old.
    fresh: bool = False
    # A later poll may show more.
    waits: bool = False


def page_of(source: str) -> str:
    """The page that a counter is on: counters of one page are of one moment."""
    page = _PAGE.match(source)
    return page[0] if page else source


def belong_together(nand: str, host: str) -> bool:
    """Whether these two count the same bytes of the same group."""
    return (page_of(nand) == PLACEMENT) == (page_of(host) == PLACEMENT)


def _at(track: Track, mark: Mark, period_ns: int, *, same_page: bool) -> Span:
    """A drive's count of host writes at a mark, as far as it was shown."""
    shown = track.at(mark.poll) if same_page and mark.read else None
    if shown is not None:
        return Span(shown, shown)
    before = track.look_before(mark.since)
    after = track.look_after(mark.poll, period_ns)
    low = track.values[before] if before is not None else -math.inf
    return Span(low, track.values[after] if after is not None else math.inf)


def firmware_growth(track: Track, begin: Mark, end: Mark, period_ns: int, *, same_page: bool) -> Span:
    """What a drive's own count grew by, as far as its pages have shown it."""
    first = _at(track, begin, period_ns, same_page=same_page)
    last = _at(track, end, period_ns, same_page=same_page)
    return last.minus(first).widened(track.quantum - 1)


def kernel_growth(begin: Mark, end: Mark) -> Span:
    return end.written.minus(begin.written)


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "all"


def _explain(kernel: Span, firmware: Span, source: str) -> str:
    """Why the two may differ."""
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


@frozen
class _Witness:
    """The kernel's count held against the drive's own. `confirms` is None where it cannot be told well; the
    kernel counted at most `more` that the drive did not, and `fewer` that it did."""

    confirms: bool | None = None
    why: str | None = None
    more: float = math.inf
    fewer: float = math.inf


def _witness(track: Track, period_ns: int, begin: Mark, end: Mark) -> _Witness:
    """Between these marks, by the changes of the drive's own counter from the first to the last of all: there
    it is exact, however wide the marks of others are."""
    first = track.edge_after(0)
    if first is None or first == len(track.polls) - 1:
        return _Witness()
    from_, to = track.mark(first, period_ns), track.mark(len(track.polls) - 1, period_ns)
    kernel, grown = kernel_growth(from_, to), to.value.minus(from_.value).widened(track.quantum - 1)
    if not kernel.known:
        return _Witness()
    if kernel.meet(grown) is None:
        return _Witness(False, _explain(kernel, grown, track.source))
    # What the kernel wrote before the first of these changes or after the last is not in the comparison.
    left = max(from_.written.high - begin.written.low, 0) + max(end.written.high - to.written.low, 0)
    confirms = kernel.error + grown.error + left <= _SAME * kernel.middle or None
    fewer = math.inf if left else grown.high - kernel.low
    return _Witness(confirms, None, kernel.high - grown.low + left, fewer)


def _shown(trail: Trail, track: Track, begin: Mark, end: Mark) -> Iterator[_Witness]:
    """What a page showed at two looks around these marks, held against what the kernel wrote between them.
    Where the two agree the page was not old: it would have to hide at one end what it lacks at the other."""
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
    """The bounds by two counts that agree: what the drive allows, and the kernel's count with all by which
    the two may have differed in the whole time: it counts writes that failed and Write Zeroes, and does not
    see other writers."""
    more = min(witness.more for witness in witnesses)
    fewer = min(witness.fewer for witness in witnesses)
    if not drive.known:
        # Nothing is known yet of other writers, and that is said.
        fewer = 0
    return Span(max(drive.low, kernel.low - more), min(drive.high, kernel.high + fewer))


def _candidates(trail: Trail, nand: Track) -> Sequence[Track]:
    """Counts of host writes to hold against the kernel's, those of the same page first, then the finest."""
    page = page_of(nand.source)
    fitting = [
        track
        for track in trail.host.values()
        if not track.lost and belong_together(nand.source, track.source)
    ]
    return sorted(fitting, key=lambda track: (page_of(track.source) != page, track.quantum))


def host_growth(trail: Trail, nand: Track, begin: Mark, end: Mark, periods: Periods) -> HostSide:
    """The best that is known. What the kernel and the drive both allow, where they agree; else the drive's:
    it counts what goes to its NAND, whoever wrote it."""
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
            continue  # two counts of the drive contradict each other: the first is of the better page
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
    """Whether two pages may be taken for one: refreshed together as far as that shows, and with what the
    kernel wrote between these marks in them. Without that it was chance."""
    if not in_step(nand, track):
        return False
    shown = firmware_growth(track, begin, end, 0, same_page=True)
    return kernel_growth(begin, end).meet(shown) is not None


def _beside(kernel: Span, drive: Span, track: Track) -> HostSide:
    """What the drive counts, with what the kernel counts beside it; nothing is said yet of the two."""
    return HostSide(
        span=drive, source=track.source, kernel=kernel, firmware=drive, firmware_source=track.source
    )


def _witnessed(between: Span, drive: Span, track: Track) -> HostSide:
    """Nobody knows how old the page was, but its two sides are of one moment, and the kernel's count between
    the polls shows whether anything was missing."""
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
            # Whether somebody else wrote meanwhile is worth a period, where that is known.
            waits = waits and learned
            why = f"{page_of(source)} has it all, and may show more of others" if waits else None
            return replace(side, agrees=None if waits else True, why=why, waits=waits)
        sure = _percent(drive.low, kernel.high) if kernel.known else f"{int(drive.low)} bytes"
        why = f"{page_of(source)} is of other moments: of it, it confirms {sure} at least"
        return replace(side, why=why, waits=waits)
    side = replace(side, source=KERNEL if kernel.error <= drive.error else source)
    # The drive allows for no more than what may be overlooked.
    if drive.high - kernel.low <= _SAME * kernel.middle + 2 * track.quantum:
        return replace(side, agrees=True)
    return replace(side, why=f"{page_of(source)} confirms it within {drive.error} bytes only")
