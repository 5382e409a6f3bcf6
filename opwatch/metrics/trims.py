"""Metrics of trims: the last verdict of each filesystem, what its drive still holds, and what was lost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from opwatch.metrics.family import MetricSamples
from opwatch.metrics.label_text import shorten_label
from opwatch.metrics.table import STALE_BYTES, TRIM_LOST, TRIM_TIMESTAMP, TRIM_VERDICT

# (Layer, code of the cause).
LossKey = tuple[str, str]


@dataclass(frozen=True, slots=True)
class TrimState:
    """The last check of a mounted filesystem's trim.

    `verdict` is a prediction's outlook or an audit's verdict. `stale_bytes` are bounds, None if not measured.
    `lost_bytes` are sums over all checks since the start.
    """

    mountpoint: str
    verdict: str
    checked_at_s: float
    stale_bytes: tuple[float, float] | None = None
    lost_bytes: Mapping[LossKey, int] = field(default_factory=dict)


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
