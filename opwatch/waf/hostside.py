"""Host bytes written between two marks of a NAND counter: the kernel's count, the drive's count, and
whether the two agree. Pure."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from opwatch.waf.span import Span
from opwatch.waf.trail import LONGEST_NS, Mark, Track, Trail, is_synchronous

_PAGE = re.compile(r"log [0-9A-F]{2}h|attribute|device statistics|SCSI [\w ]+")
# Counts of an endurance group, metadata included. Its host and NAND counts must be used together.
PLACEMENT = "log 22h"
_MAX_DIFFERENCE = 0.02
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


def find_page(source: str) -> str:
    """Return the page of a counter. All counters of a page are from the same moment."""
    page = _PAGE.match(source)
    return page[0] if page else source


def is_counterpart(nand: str, host: str) -> bool:
    """Return True if both counters count the same bytes of the same group."""
    return (find_page(nand) == PLACEMENT) == (find_page(host) == PLACEMENT)


def _bound_at_mark(track: Track, mark: Mark, period_ns: int, *, same_page: bool) -> Span:
    """Return the bounds of the drive's count of host writes at a mark."""
    shown = track.find_value(mark.poll) if same_page and mark.read else None
    if shown is not None:
        return Span(shown, shown)
    before = track.find_value_before(mark.since)
    after = track.find_value_after(mark.poll, period_ns)
    low = track.values[before] if before is not None else -math.inf
    return Span(low, track.values[after] if after is not None else math.inf)


def bound_firmware_growth(track: Track, begin: Mark, end: Mark, period_ns: int, *, same_page: bool) -> Span:
    """Return the bounds of the growth of a drive's own count, as shown by its pages."""
    first = _bound_at_mark(track, begin, period_ns, same_page=same_page)
    last = _bound_at_mark(track, end, period_ns, same_page=same_page)
    return last.subtract(first).widen(track.quantum - 1)


def bound_kernel_growth(begin: Mark, end: Mark) -> Span:
    return end.written.subtract(begin.written)


def _format_percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "all"


def _explain_difference(kernel: Span, firmware: Span, source: str) -> str:
    """Return possible reasons for the difference."""
    page = find_page(source)
    if firmware.low > kernel.high:
        more = int(firmware.low - kernel.high)
        words = (
            f"{page} has at least {more} bytes ({_format_percent(more, kernel.high)}) more than "
            "this kernel wrote: "
            "passthrough commands, another port or controller, or a namespace that this host does not see"
        )
        if page == PLACEMENT and more <= _MAX_DIFFERENCE * kernel.high:
            words += "; or metadata, which the page includes"
        return words
    more = int(kernel.low - firmware.high)
    return (
        f"the kernel has at least {more} bytes ({_format_percent(more, kernel.low)}) more than "
        f"{page}: it counts Write Zeroes and failed writes, which drives do not count; "
        "or the page is older than its refresh period"
    )


@dataclass(frozen=True, slots=True)
class _CountComparison:
    """A comparison of the kernel's count with the drive's.

    `confirms` is None if the comparison is not conclusive. The kernel counted at most `more` bytes that the
    drive did not count, and the drive at most `fewer` that the kernel did not.
    """

    confirms: bool | None = None
    why: str | None = None
    more: float = math.inf
    fewer: float = math.inf


def _compare_counts(track: Track, period_ns: int, begin: Mark, end: Mark) -> _CountComparison:
    """Compare the counts between the first and the last change of the drive's counter, because the
    counter's moment is known best at changes, however wide the marks of other counters are."""
    first = track.find_change_after(0)
    if first is None or first == len(track.polls) - 1:
        return _CountComparison()
    from_, to = track.make_mark(first, period_ns), track.make_mark(len(track.polls) - 1, period_ns)
    kernel, grown = bound_kernel_growth(from_, to), to.value.subtract(from_.value).widen(track.quantum - 1)
    if not kernel.is_known:
        return _CountComparison()
    if kernel.intersect(grown) is None:
        return _CountComparison(False, _explain_difference(kernel, grown, track.source))
    # The comparison does not cover the kernel's writes before the first change or after the last.
    left = max(from_.written.high - begin.written.low, 0) + max(end.written.high - to.written.low, 0)
    confirms = kernel.error + grown.error + left <= _MAX_DIFFERENCE * kernel.best_estimate or None
    fewer = math.inf if left else grown.high - kernel.low
    return _CountComparison(confirms, None, kernel.high - grown.low + left, fewer)


def _compare_polls(trail: Trail, track: Track, begin: Mark, end: Mark) -> Iterator[_CountComparison]:
    """Compare a page's values at two polls around these marks with the kernel's writes between the polls.
    If the two agree, the page was not stale: it would have to hide at one end exactly what is missing at
    the other."""
    moments, last = trail.moments, len(trail.moments) - 1
    for from_, to in itertools.product((max(begin.since, 0), begin.poll), (end.poll, last)):
        before, after = track.find_value(from_), track.find_value(to)
        if before is None or after is None:
            continue
        kernel = moments[to].written_bounds.subtract(moments[from_].written_bounds)
        grown = Span(after, after).subtract(Span(before, before)).widen(track.quantum - 1)
        if kernel.is_known and kernel.intersect(grown):
            left = max(moments[from_].written_bounds.high - begin.written.low, 0)
            left += max(end.written.high - moments[to].written_bounds.low, 0)
            fewer = math.inf if left > kernel.error else grown.high - kernel.low
            yield _CountComparison(None, None, kernel.high - grown.low + left, fewer)


def _bound_agreed(kernel: Span, drive: Span, witnesses: Sequence[_CountComparison]) -> Span:
    """Return the bounds from two counts that agree: the drive's bounds, and the kernel's count with all
    differences that the comparisons allow. The kernel counts failed writes and Write Zeroes, and does not
    see other writers."""
    more = min(witness.more for witness in witnesses)
    fewer = min(witness.fewer for witness in witnesses)
    if not drive.is_known:
        # Nothing is known about other writers yet; `why` reports this.
        fewer = 0
    return Span(max(drive.low, kernel.low - more), min(drive.high, kernel.high + fewer))


def _rank_candidates(trail: Trail, nand: Track) -> Sequence[Track]:
    """Return the drive's host counts to compare with the kernel's: those of the same page first, then by
    step size."""
    page = find_page(nand.source)
    fitting = [
        track for track in trail.host.values() if not track.lost and is_counterpart(nand.source, track.source)
    ]
    return sorted(fitting, key=lambda track: (find_page(track.source) != page, track.quantum))


def measure_host_growth(trail: Trail, nand: Track, begin: Mark, end: Mark, periods: Periods) -> HostSide:
    """Return the best known growth of host bytes. If kernel and drive agree, use the range that both
    allow; otherwise the drive's count, because it includes all writers."""
    kernel = bound_kernel_growth(begin, end)
    page = find_page(nand.source)
    drive: Span | None = None
    finest: Track | None = None
    for track in _rank_candidates(trail, nand):
        same = find_page(track.source) == page
        grown = bound_firmware_growth(
            track, begin, end, periods(track), same_page=same or _is_same_page(nand, track, begin, end)
        )
        both = grown if drive is None else drive.intersect(grown)
        if both is None:
            continue  # two counts of the drive contradict each other: the first is on the better page
        if finest is None or both != drive:
            finest = finest or track
            drive = both
    if drive is None or finest is None:
        why = "the drive's own count of host writes was not read, so writes by others would go unnoticed"
        return HostSide(kernel, KERNEL, kernel, why=why)
    if not kernel.is_known and drive.is_known:
        moments = trail.moments
        between = moments[end.poll].written_bounds.subtract(moments[begin.poll].written_bounds)
        return _judge_by_polls(between, drive, finest)
    pending = finest.find_value_after(end.poll, periods(finest)) is None
    candidates = _rank_candidates(trail, nand)
    witnesses = [_compare_counts(candidate, periods(candidate), begin, end) for candidate in candidates]
    refuted = next((witness.why for witness in witnesses if witness.confirms is False), None)
    if refuted:
        side = _make_unjudged(kernel, drive, finest)
        return replace(side, agrees=False, why=refuted, waits=pending and not drive.is_known)
    compared = _judge_by_bounds(kernel, drive, finest, waits=pending, learned=periods(finest) < LONGEST_NS)
    if compared.agrees is False:
        return compared
    looks = [look for candidate in candidates for look in _compare_polls(trail, candidate, begin, end)]
    compared = replace(compared, span=_bound_agreed(kernel, drive, [*witnesses, *looks]))
    confirmed = any(witness.confirms for witness in witnesses)
    return replace(compared, agrees=True, why=None) if confirmed and compared.agrees is None else compared


def _is_same_page(nand: Track, track: Track, begin: Mark, end: Mark) -> bool:
    """Return True if two pages can be treated as one: refreshed together as far as the polls show, and
    showing the kernel's writes between these marks. Without the second condition, the first may be chance."""
    if not is_synchronous(nand, track):
        return False
    shown = bound_firmware_growth(track, begin, end, 0, same_page=True)
    return bound_kernel_growth(begin, end).intersect(shown) is not None


def _make_unjudged(kernel: Span, drive: Span, track: Track) -> HostSide:
    """Return the drive's count with the kernel's as a second value, without a verdict."""
    return HostSide(
        span=drive, source=track.source, kernel=kernel, firmware=drive, firmware_source=track.source
    )


def _judge_by_polls(between: Span, drive: Span, track: Track) -> HostSide:
    """Compare the counts when the page's age is unknown. Both sides of the page are of the same moment,
    and the kernel's count between the polls shows whether writes were missed."""
    side = _make_unjudged(between, drive, track)
    if not between.is_known:
        return replace(side, why="the kernel's count was not read")
    if between.intersect(drive):
        return replace(side, agrees=True, fresh=True)
    why = f"{_explain_difference(between, drive, track.source)}; or the page was outdated at the first poll"
    return replace(side, agrees=False, why=why)


def _judge_by_bounds(kernel: Span, drive: Span, track: Track, *, waits: bool, learned: bool) -> HostSide:
    source = track.source
    side = _make_unjudged(kernel, drive, track)
    if kernel.intersect(drive) is None:
        return replace(side, agrees=False, why=_explain_difference(kernel, drive, source))
    if not drive.is_known:
        side = replace(side, source=KERNEL)
        if kernel.is_known and drive.low + 2 * (track.quantum - 1) >= kernel.low:
            # If the refresh period is known, wait one period to see writes by others.
            waits = waits and learned
            why = (
                f"{find_page(source)} shows all of it, and may still show writes by others" if waits else None
            )
            return replace(side, agrees=None if waits else True, why=why, waits=waits)
        sure = _format_percent(drive.low, kernel.high) if kernel.is_known else f"{int(drive.low)} bytes"
        why = f"{find_page(source)} was refreshed at other times: it confirms at least {sure}"
        return replace(side, why=why, waits=waits)
    side = replace(side, source=KERNEL if kernel.error <= drive.error else source)
    # Other writes can be at most as large as the tolerated difference.
    if drive.high - kernel.low <= _MAX_DIFFERENCE * kernel.best_estimate + 2 * track.quantum:
        return replace(side, agrees=True)
    return replace(side, why=f"{find_page(source)} confirms it only within {drive.error} bytes")
