"""Metrics of trims: the last verdict of each filesystem, what its drive still holds, and what was lost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from opwatch.metrics.family import MetricSamples
from opwatch.metrics.label_text import shorten_label
from opwatch.metrics.table import STALE_BYTES, TRIM_LOST, TRIM_TIMESTAMP, TRIM_VERDICT
from opwatch.trim.stack.causes import Effect, Reason

# (Kind of layer, code of the cause).
LossKey = tuple[str, str]
_LOSING = (Effect.STOPS, Effect.SKIPS, Effect.SHORTENS)


@dataclass(frozen=True, slots=True)
class TrimState:
    """The last check of a mounted filesystem's trim.

    `verdict` is a prediction's outlook or an audit's verdict. `stale_bytes` are bounds, None if not measured.
    `lost_bytes` are the counters of a LostBytesCounter.
    """

    mountpoint: str
    verdict: str
    checked_at_s: float
    stale_bytes: tuple[float, float] | None = None
    lost_bytes: Mapping[LossKey, int] = field(default_factory=dict)


def find_lost_bytes(reasons: Iterable[Reason], free_bytes: int | None) -> dict[LossKey, int]:
    """Return the bytes that a check or an audit reports as lost. The first cause that stops the whole trim
    loses the free space, if that is known."""
    lost: dict[LossKey, int] = {}
    is_stopped = False
    for reason in reasons:
        count = reason.lost_bytes
        if count is None and reason.cause.effect is Effect.STOPS and not is_stopped:
            count, is_stopped = free_bytes, True
        if count and reason.cause.effect in _LOSING:
            key = reason.cause.layer, reason.code
            lost[key] = lost.get(key, 0) + count
    return lost


class LostBytesCounter:
    """Counts the lost bytes of one filesystem over its checks.

    A check reports all free space that a trim does not free now, most of which the check before has
    reported. So a counter grows by what a check reports beyond the one before."""

    def __init__(self) -> None:
        self._last: Mapping[LossKey, int] = {}
        self._sums: dict[LossKey, int] = {}

    def add_check(self, lost: Mapping[LossKey, int]) -> dict[LossKey, int]:
        """Return the counters after another check."""
        for key, count in lost.items():
            growth = max(count - self._last.get(key, 0), 0)
            self._sums[key] = self._sums.get(key, 0) + growth
        self._last = dict(lost)
        return dict(self._sums)


def add_trim_metrics(samples: MetricSamples, state: TrimState) -> None:
    """Add the metrics of a filesystem."""
    mountpoint = shorten_label(state.mountpoint)
    samples.add(TRIM_VERDICT, 1, mountpoint, normalize_verdict(state.verdict))
    samples.add(TRIM_TIMESTAMP, state.checked_at_s, mountpoint)
    if state.stale_bytes is not None:
        for bound, value in zip(("low", "high"), state.stale_bytes, strict=True):
            samples.add(STALE_BYTES, round(value), mountpoint, bound)
    for (layer, reason), lost in sorted(state.lost_bytes.items()):
        samples.add(TRIM_LOST, lost, mountpoint, shorten_label(layer), reason)


def normalize_verdict(verdict: str) -> str:
    """Return a verdict as a label value, such as not_sent."""
    return verdict.lower().replace(" ", "_")
