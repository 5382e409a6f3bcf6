"""Write amplification during a watch, from the latest interval with a small enough error. Pure."""

from __future__ import annotations

from bisect import bisect_right

from opwatch.waf.live import CurrentWaf, make_failed
from opwatch.waf.measure import (
    MeasuredInterval,
    Measurement,
    explain_stalled_page,
    make_period_function,
    rank_counters,
)
from opwatch.waf.span import NO_HOST_WRITES
from opwatch.waf.trail import Moment, Track, Trail

# Windows to try, the shortest first, before all polls are used.
_WINDOWS_S = (60, 600)
_GOOD = 0.05


def _estimate_rate(track: Track, moments: list[Moment], begin: int) -> tuple[float, float] | None:
    """Return NAND bytes per second since the first change after a poll, and the error. None if unknown
    yet."""
    period = make_period_function(None)(track)
    first = track.find_change_after(begin)
    if first is None:
        first = track.find_value_after(begin, period)
    if first is None or first == len(track.polls) - 1:
        return None
    start, end = track.make_mark(first, period), track.make_mark(len(track.polls) - 1, period)
    if start.since < 0 or end.since < 0:
        return None
    shortest = (moments[end.since].begin_ns - moments[start.poll].end_ns) / 1e9
    longest = (moments[end.poll].end_ns - moments[start.since].begin_ns) / 1e9
    if shortest <= 0:
        return None
    nand = end.value.subtract(start.value).widen(track.quantum - 1)
    low, high = nand.low / longest, nand.high / shortest
    return (low + high) / 2, (high - low) / 2


def _find_begin(moments: list[Moment], seconds: float) -> int | None:
    """Return the last poll that is at least this old, or None if all are younger."""
    since = moments[-1].end_ns - int(seconds * 1e9)
    place = bisect_right(moments, since, key=lambda moment: moment.end_ns) - 1
    return place if place >= 0 else None


def compute_current_waf(trail: Trail) -> CurrentWaf:
    """Return the current write amplification."""
    newest = len(trail.moments) - 1
    begins = [_find_begin(trail.moments, seconds) for seconds in _WINDOWS_S]
    for begin in (*begins, 0):
        if begin is None:
            continue
        measured = Measurement(trail, begin, newest).find_best_interval()
        error = measured.amplification.relative_error if measured else 1.0
        if error <= _GOOD or begin == 0:
            return _make_current_waf(trail, measured, begin)
    return _make_current_waf(trail, None, 0)


def _explain_missing(trail: Trail) -> str:
    lost = trail.lost or next((track.lost for track in rank_counters(trail) if track.lost), None)
    return lost or "the drive's counters were read only once so far; two polls are needed"


def is_stale(trail: Trail) -> bool:
    """Return True if the newest poll read none of the NAND counters that earlier polls read."""
    newest = len(trail.moments) - 1
    tracks = trail.nand.values()
    return bool(tracks) and all(
        track.polls[-1] != newest and not track.lost for track in tracks if track.polls
    )


def _make_current_waf(trail: Trail, stretch: MeasuredInterval | None, begin: int) -> CurrentWaf:
    moments = trail.moments
    now = moments[-1].end_ns
    window = (now - moments[begin].end_ns) / 1e9
    if stretch is None:
        return make_failed(_explain_missing(trail), now, window)
    rate, rate_error = _estimate_rate(stretch.track, moments, begin) or (None, None)
    waf = stretch.amplification
    source = f"{stretch.track.source} / {stretch.host.source}"
    reason = waf.reason
    if waf.waf is None:
        reason = explain_stalled_page(trail, stretch.track, begin) or reason
    if reason == NO_HOST_WRITES:
        # A watch shows this beside intervals that are newer than the poll.
        reason = f"no host writes in the {window:.0f} s before the last poll of the drive's counters"
    return CurrentWaf(
        waf=waf.waf,
        waf_error=waf.error,
        reason=reason,
        window_s=window,
        nand_bytes_per_s=rate,
        nand_error_bytes_per_s=rate_error,
        source=source,
        mono_ns=now,
    )
