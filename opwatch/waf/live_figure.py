"""Write amplification during a watch, from the latest interval with a small enough error. Pure."""

from __future__ import annotations

from bisect import bisect_right

from opwatch.waf.live import Live, failed
from opwatch.waf.measure import Measurement, Stretch, ladder, periods_of, standing
from opwatch.waf.trail import Moment, Track, Trail

# Windows to try, the shortest first, before all polls are used.
_WINDOWS_S = (60, 600)
_GOOD = 0.05


def _rate(track: Track, moments: list[Moment], begin: int) -> tuple[float, float] | None:
    """Return NAND bytes per second since the first change after a poll, and the error. None if unknown
    yet."""
    period = periods_of(None)(track)
    first = track.edge_after(begin)
    if first is None:
        first = track.look_after(begin, period)
    if first is None or first == len(track.polls) - 1:
        return None
    start, end = track.mark(first, period), track.mark(len(track.polls) - 1, period)
    if start.since < 0 or end.since < 0:
        return None
    shortest = (moments[end.since].begin_ns - moments[start.poll].end_ns) / 1e9
    longest = (moments[end.poll].end_ns - moments[start.since].begin_ns) / 1e9
    if shortest <= 0:
        return None
    nand = end.value.minus(start.value).widened(track.quantum - 1)
    low, high = nand.low / longest, nand.high / shortest
    return (low + high) / 2, (high - low) / 2


def _begin_of(moments: list[Moment], seconds: float) -> int | None:
    """Return the last poll that is at least this old, or None if all are younger."""
    since = moments[-1].end_ns - int(seconds * 1e9)
    place = bisect_right(moments, since, key=lambda moment: moment.end_ns) - 1
    return place if place >= 0 else None


def live(trail: Trail) -> Live:
    """Return the current write amplification."""
    newest = len(trail.moments) - 1
    begins = [_begin_of(trail.moments, seconds) for seconds in _WINDOWS_S]
    for begin in (*begins, 0):
        if begin is None:
            continue
        measured = Measurement(trail, begin, newest).brief()
        error = measured.amplification.relative_error if measured else 1.0
        if error <= _GOOD or begin == 0:
            return _view(trail, measured, begin)
    return _view(trail, None, 0)


def _why_nothing(trail: Trail) -> str:
    lost = trail.lost or next((track.lost for track in ladder(trail) if track.lost), None)
    return lost or "the drive's counters were read once so far; it takes two looks"


def stale(trail: Trail) -> bool:
    """Return True if the newest poll read none of the NAND counters that earlier polls read."""
    newest = len(trail.moments) - 1
    tracks = trail.nand.values()
    return bool(tracks) and all(
        track.polls[-1] != newest and not track.lost for track in tracks if track.polls
    )


def _view(trail: Trail, stretch: Stretch | None, begin: int) -> Live:
    moments = trail.moments
    now = moments[-1].end_ns
    window = (now - moments[begin].end_ns) / 1e9
    if stretch is None:
        return failed(_why_nothing(trail), now, window)
    rate, rate_error = _rate(stretch.track, moments, begin) or (None, None)
    waf = stretch.amplification
    source = f"{stretch.track.source} / {stretch.host.source}"
    reason = waf.reason
    if waf.waf is None:
        reason = standing(trail, stretch.track, begin) or reason
    return Live(
        waf=waf.waf,
        waf_error=waf.error,
        reason=reason,
        window_s=window,
        nand_bytes_per_s=rate,
        nand_error_bytes_per_s=rate_error,
        source=source,
        mono_ns=now,
    )
