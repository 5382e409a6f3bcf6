"""Turn a trace's loss counters into a short list of losses with causes. No other module does this.

A missed request shows up in several counters: the kernel counted the request and its bytes, its entry among
the requests in flight stays in use, or its completion has no issue. This is still one loss. A loss is
reported without an alarm if its cause explains the number; the rest is unexplained.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from opwatch.trace.contexts import BLIND_CONTEXT
from opwatch.trace.trust import GROUPS, Drift, LossAccount

# Kinds of a tally, each by group of the kernel's statistics if the group is known.
_MISSED, _MISSED_BYTES = "missed", "missed bytes"
_EXTRA, _EXTRA_BYTES = "extra", "extra bytes"
_UNMATCHED, _UNREMEMBERED, _SKIPPED, _CLOCK_BACK = "unmatched", "unremembered", "skipped", "clock back"
_ANY = ""
_AGREES = Drift(0, 0)
_NAMES = {
    "read": ("read", "reads"),
    "write": ("write", "writes"),
    "flush": ("flush", "flushes"),
    "discard": ("discard", "discards"),
    _ANY: ("request", "requests"),
}

Tally = Counter[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Loss:
    """A loss of a trace: `words` is a sentence for people, `brief` a short form for tables.

    `is_explained` is true if the cause is known and explains the number.
    """

    words: str
    brief: str
    is_explained: bool


def tally_losses(whole: LossAccount, in_flight_at_start: int, flush_queues: int = 0) -> Tally:
    """Return the minimum losses of a run so far, from its account since attach.

    Losses can only be counted for the whole run. A completion without an issue is not a loss if the request
    may have been in flight at attach, and such requests may complete at any time. The kernel's count of
    requests in flight excludes flushes, of which each hardware queue has at most one in flight. An entry left
    by a missed completion is found later.
    """
    tally: Tally = Counter()
    for group, drift in whole.drift.items():
        tally[_MISSED if drift.drift > 0 else _EXTRA, group] = abs(drift.drift)
    for group, drift in whole.byte_drift.items():
        # Bytes are a separate loss only if the requests agree exactly: part of a request was missed.
        if whole.drift.get(group, _AGREES) == _AGREES:
            tally[_MISSED_BYTES if drift.drift > 0 else _EXTRA_BYTES, group] = abs(drift.drift)
    by_kernel = sum(max(drift.drift, 0) + drift.slack for drift in whole.drift.values())
    tally[_MISSED, _ANY] = max(whole.overwritten - by_kernel, 0)
    excused = in_flight_at_start + min(whole.unmatched_flushes, flush_queues) + whole.map_full
    tally[_UNMATCHED, _ANY] = max(whole.unmatched - excused, 0)
    tally[_UNREMEMBERED, _ANY] = whole.map_full
    tally[_SKIPPED, _ANY] = whole.misses or 0
    tally[_CLOCK_BACK, _ANY] = whole.clock_back
    return +tally


@dataclass(frozen=True, slots=True)
class LostRequests:
    """The minimum numbers of a run's lost requests, with a known cause and without."""

    explained: int
    unexplained: int


def count_lost_requests(tally: Tally, *, is_blind: bool) -> LostRequests:
    """Return the numbers of lost requests in a run's tally, each request once.

    Missing bytes of a group count as one request. `is_blind`: the kernel is known to skip programs while
    PID 1 is current.
    """
    untraced = tally[_UNMATCHED, _ANY]
    untraced += sum(tally[_MISSED, group] + bool(tally[_MISSED_BYTES, group]) for group in _NAMES)
    explained = untraced if is_blind else min(untraced, tally[_SKIPPED, _ANY])
    extra = sum(tally[_EXTRA, group] + bool(tally[_EXTRA_BYTES, group]) for group in GROUPS)
    return LostRequests(
        explained=explained + tally[_UNREMEMBERED, _ANY],
        unexplained=untraced - explained + extra + tally[_CLOCK_BACK, _ANY],
    )


def list_losses(tally: Tally, trust: LossAccount, *, is_blind: bool, is_whole: bool) -> tuple[Loss, ...]:
    """Return the losses of an interval.

    `tally` is the growth of the run's tally, `trust` the interval's account. `is_blind`: the kernel is known
    to skip programs while PID 1 is current.
    """
    losses = []
    if remembered := tally[_UNREMEMBERED, _ANY]:
        what = _format_count(remembered, _ANY)
        losses.append(_explained_loss(what, "the table of requests in flight was full", "table full"))
    losses += _list_untraced(tally, trust, is_blind=is_blind)
    if what := _format_amounts(tally, trust, _EXTRA, _EXTRA_BYTES):
        losses.append(_unexplained_loss(f"traced but not counted by the kernel: {what}"))
    if back := tally[_CLOCK_BACK, _ANY]:
        losses.append(
            _unexplained_loss(
                f"{_format_count(back, _ANY)} with a completion time before the issue time, counted as 0 ns"
            )
        )
    if trust.no_drift:
        losses.append(_unexplained_loss(f"drift unknown: {trust.no_drift}"))
    if is_whole and is_blind and not trust.drift:
        losses.append(_explained_loss("an unknown number of requests", BLIND_CONTEXT, "PID 1"))
    return tuple(losses)


def _list_untraced(tally: Tally, trust: LossAccount, *, is_blind: bool) -> list[Loss]:
    """Return the requests whose issue or completion was missed, each once, with the cause if known."""
    parts = [_format_amounts(tally, trust, _MISSED, _MISSED_BYTES)]
    if unmatched := tally[_UNMATCHED, _ANY]:
        parts.append(f"the issue of {_format_count(unmatched, _ANY)}")
    what, skipped = " and ".join(part for part in parts if part), tally[_SKIPPED, _ANY]
    cause = f"the kernel skipped {skipped} program runs, counted for all disks together"
    if not what:
        # If the kernel counts the requests of this disk, the skipped runs were for other disks.
        if skipped and not trust.drift:
            return [_explained_loss(f"up to {_format_count(skipped, _ANY)}", cause, "runs skipped")]
        return []
    if is_blind:
        return [_explained_loss(what, BLIND_CONTEXT, "PID 1")]
    lost = unmatched + sum(tally[_MISSED, group] for group in _NAMES)
    if skipped >= max(lost, 1):
        return [_explained_loss(what, cause, "runs skipped")]
    if skipped:
        rest = f"not traced: {_format_count(lost - skipped, _ANY)} more, cause unknown"
        return [_explained_loss(f"{skipped} of {what}", cause, "runs skipped"), _unexplained_loss(rest)]
    return [_unexplained_loss(f"not traced: {what}, cause unknown")]


def _format_amounts(tally: Tally, trust: LossAccount, of_requests: str, of_bytes: str) -> str:
    """Return the requests and bytes of each group in words, or an empty string."""
    groups = [group for group in _NAMES if tally[of_requests, group]]
    drifts = {group: trust.drift.get(group, _AGREES) for group in groups}
    counts = [_format_count(tally[of_requests, group], group, drifts[group].slack) for group in groups]
    size = sum(abs(trust.byte_drift.get(group, _AGREES).drift) for group in groups)
    words = [", ".join(counts) + (f" ({size} bytes)" if size else "")] if counts else []
    words += [
        f"{tally[of_bytes, group]} bytes of {_NAMES[group][1]}" for group in GROUPS if tally[of_bytes, group]
    ]
    return ", ".join(words)


def _format_count(count: int, group: str, slack: int = 0) -> str:
    most = f" to {count + slack}" if slack else ""
    return f"{count}{most} {_NAMES[group][count + slack != 1]}"


def _explained_loss(what: str, cause: str, brief: str) -> Loss:
    return Loss(f"not traced: {what}, because {cause}", f"not traced: {what} ({brief})", is_explained=True)


def _unexplained_loss(words: str) -> Loss:
    return Loss(words, words, is_explained=False)
