"""What made requests slow, as text in 80 columns, and as one JSON document."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

from opwatch import SCHEMA, units
from opwatch.clock import format_span
from opwatch.report.slow_summary import prefix_cause
from opwatch.sinks.wrapping import wrap_text
from opwatch.why.answer import Answer, SlowOperation
from opwatch.why.before_block import WaitBefore
from opwatch.why.decision import JudgedCandidate, NamedCause
from opwatch.why.layers import compute_shares
from opwatch.why.slowness import Slowness

# Where the wall clock is known, a moment is printed by it.
Clock = Callable[[int], datetime | None]
_LABEL = 10
# A layer with less is not printed.
_MIN_SHARE = 0.005
_UNITS = {"n": " ns", "u": " µs", "m": " ms", "s": " s"}
_OPS = {"read": "reads", "write": "writes", "flush": "flushes"}
NOTHING_SLOW = "nothing was slow: no interval's device p99 or mean stood out from the rest"


def _format_latency(ns: float) -> str:
    text = units.format_ns(ns)
    return text[:-1] + _UNITS[text[-1]]


def _format_share(share: float) -> str:
    return f"{round(100 * share)} %"


def _format_span(clock: Clock, begin_ns: int, end_ns: int, origin_ns: int) -> str:
    begin, end = clock(begin_ns), clock(end_ns)
    if begin and end:
        return format_span(begin, end)
    return f"{(begin_ns - origin_ns) / 1e9:.0f} s to {(end_ns - origin_ns) / 1e9:.0f} s"


def _format_head(slow: Slowness, clock: Clock) -> str:
    disk, episodes = slow.disk, slow.episodes
    begin_ns, end_ns = disk.begins_ns[episodes[0].begin], disk.ends_ns[episodes[-1].end - 1]
    span = _format_span(clock, begin_ns, end_ns, disk.begins_ns[0])
    usual_ns, slow_ns = slow.mean_ns
    number = f"{len(episodes)} episodes, " if len(episodes) > 1 else ""
    # A wait before the device is only in the mean.
    p99 = f"{_format_latency(slow.level.value)} → {_format_latency(slow.slow_p99_ns)}"
    mean = f"{_format_latency(usual_ns)} → {_format_latency(slow_ns)}"
    return (
        f"{span}  {_OPS[slow.op]} of {disk.label}: device p99 {p99}, mean {mean}, {number}"
        f"{slow.slow_seconds:.3g} s, {_format_share(slow.request_share)} of requests"
    )


def _format_layers(slow: Slowness) -> str:
    shares = compute_shares(slow.total_excess)
    ranked = sorted(shares, key=lambda layer: -shares[layer])
    # The document has the exact shares.
    return ", ".join(
        f"{layer.value} {_format_share(shares[layer])}"
        for layer in ranked
        if abs(shares[layer]) >= _MIN_SHARE
    )


def _format_test(one: JudgedCandidate, cause: NamedCause, episodes: int) -> str:
    if one.p is None:
        return "measured"
    shown = f"{one.p:.1g}" if one.p >= 1e-4 else "below 0.0001"
    # Only the episodes of the cause's layer are compared with it.
    kind = "" if one.episodes == episodes else f"{cause.layer.value} "
    return f"in {one.matched} of {one.episodes} {kind}episodes, p {shown}"


def _format_cause(cause: NamedCause, episodes: int) -> str:
    parts = [f"{one.candidate.evidence} ({_format_test(one, cause, episodes)})" for one in cause.found]
    if cause.is_certain:
        return prefix_cause(cause.found[0].candidate.name.value, parts[0])
    names = " or ".join(one.candidate.name.value for one in cause.found)
    return f"{names}, which cannot be told apart: {'; '.join(parts)}"


def _name_causes(cause: NamedCause) -> str:
    """Return the names of a cause, and the owners that waited: io.max of /system.slice/db.service."""
    names = " or ".join(found.candidate.name.value for found in cause.found)
    owners = [name for name, _ in cause.found[0].candidate.waited]
    return f"{names} of {' and '.join(owners)}" if owners and cause.is_certain else names


def _format_shares(one: SlowOperation) -> str:
    parts = [f"{_format_share(cause.share)} {_name_causes(cause)}" for cause in one.verdict.causes]
    return "; ".join([*parts, f"{_format_share(one.verdict.unknown)} unknown"])


def format_operation(one: SlowOperation, clock: Clock) -> Iterator[str]:
    """Yield the lines about the slowness of an operation."""
    yield from wrap_text(_format_head(one.slowness, clock), indent=4)

    def format_row(label: str, text: str) -> list[str]:
        return wrap_text(text, f"  {label}".ljust(_LABEL), _LABEL)

    yield from format_row("where", _format_layers(one.slowness))
    for cause in one.verdict.causes:
        yield from format_row("cause", _format_cause(cause, len(one.slowness.episodes)))
    if not one.verdict.causes:
        yield from format_row("cause", "unknown")
    yield from format_row("share", _format_shares(one))
    for cause in one.verdict.causes:
        for found in cause.found:
            yield from format_row("check", found.candidate.check)
    for need in (*one.needs, *one.verdict.needs):
        yield from format_row("decide", need)


def format_answer(answer: Answer, clock: Clock) -> Iterator[str]:
    """Yield the answer as lines."""
    for number, one in enumerate(answer.slow):
        if number:
            yield ""
        yield from format_operation(one, clock)
    if not answer.slow and answer.examined:
        yield NOTHING_SLOW
    for wait in answer.before:
        yield ""
        yield from _format_wait(wait, clock)


def _format_wait(wait: WaitBefore, clock: Clock) -> Iterator[str]:
    span = _format_span(clock, wait.begin_ns, wait.end_ns, wait.begin_ns)
    yield from wrap_text(f"{span}  {wait.name}: {wait.evidence}", indent=4)
    yield from wrap_text(wait.check, "  check".ljust(_LABEL), _LABEL)


def _build_candidate(one: JudgedCandidate) -> dict[str, Any]:
    return {
        "cause": one.candidate.name.value,
        "score": one.score,
        "p": one.p,
        "episodes": one.episodes,
        "matched": one.matched,
        "alone": one.alone,
        "evidence": one.candidate.evidence,
        "check": one.candidate.check,
        "refused": one.refused,
        "waited": [{"owner": name, "share": share} for name, share in one.candidate.waited],
    }


def _build_moment(clock: Clock, at_ns: int) -> dict[str, Any]:
    at = clock(at_ns)
    return {"mono_ns": at_ns, "time": at.isoformat() if at else None}


def _build_wait(wait: WaitBefore, clock: Clock) -> dict[str, Any]:
    return {
        "where": wait.name,
        "begin": _build_moment(clock, wait.begin_ns),
        "end": _build_moment(clock, wait.end_ns),
        "seconds": wait.seconds,
        "waited_s": wait.waited_s,
        "evidence": wait.evidence,
        "check": wait.check,
    }


def _build_operation(one: SlowOperation, clock: Clock) -> dict[str, Any]:
    slow, disk = one.slowness, one.slowness.disk
    episodes = [
        {
            "begin": _build_moment(clock, disk.begins_ns[episode.begin]),
            "end": _build_moment(clock, disk.ends_ns[episode.end - 1]),
            "excess_ns": {layer.value: value for layer, value in excess.items()},
        }
        for episode, excess in zip(slow.episodes, slow.excess, strict=True)
    ]
    return {
        "device": disk.label,
        "op": slow.op,
        "p99_ns": slow.slow_p99_ns,
        "usual_p99_ns": slow.level.value,
        "limit_ns": slow.level.limit,
        "seconds": slow.slow_seconds,
        "request_share": slow.request_share,
        "mean_ns": slow.mean_ns[1],
        "usual_mean_ns": {layer.value: value for layer, value in slow.usual.items()},
        "excess_ns": {layer.value: value for layer, value in slow.total_excess.items()},
        "layers": {layer.value: share for layer, share in compute_shares(slow.total_excess).items()},
        "episodes": episodes,
        "causes": [
            {
                "names": [found.candidate.name.value for found in cause.found],
                "layer": cause.layer.value,
                "share": cause.share,
                "found": [_build_candidate(found) for found in cause.found],
            }
            for cause in one.verdict.causes
        ],
        "unknown": one.verdict.unknown,
        "needs": [*one.needs, *one.verdict.needs],
        "candidates": [_build_candidate(tested) for tested in one.verdict.tested],
    }


def build_why_document(answer: Answer, clock: Clock) -> dict[str, Any]:
    """Return the JSON document of an answer."""
    return {
        "schema": SCHEMA,
        "type": "why",
        "slow": [_build_operation(one, clock) for one in answer.slow],
        "before": [_build_wait(wait, clock) for wait in answer.before],
        "examined": list(answer.examined),
        "not_examined": list(answer.not_examined),
        "notes": list(answer.notes),
    }
