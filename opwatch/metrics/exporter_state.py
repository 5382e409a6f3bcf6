"""Metrics of the exporter itself."""

from __future__ import annotations

from dataclasses import dataclass

from opwatch.metrics.family import MetricSamples
from opwatch.metrics.table import (
    BROKER_UP,
    BUILD_INFO,
    CPU_SECONDS,
    RESIDENT_MEMORY,
    SAMPLE_AGE,
    SERIES_DROPPED,
    START_TIMESTAMP,
)


@dataclass(frozen=True, slots=True)
class ExporterState:
    """The exporter's own figures. `is_broker_up` is None without a broker, `sample_age_s` without a
    sample."""

    version: str
    started_at_s: float
    cpu_s: float
    resident_bytes: int
    sample_age_s: float | None = None
    is_broker_up: bool | None = None


def add_exporter_metrics(samples: MetricSamples, state: ExporterState) -> None:
    """Add the exporter's own metrics, except the number of dropped series, which SeriesLimit adds."""
    samples.add(BUILD_INFO, 1, state.version)
    samples.add(START_TIMESTAMP, state.started_at_s)
    samples.add(CPU_SECONDS, state.cpu_s)
    samples.add(RESIDENT_MEMORY, state.resident_bytes)
    if state.sample_age_s is not None:
        samples.add(SAMPLE_AGE, round(state.sample_age_s, 3))
    if state.is_broker_up is not None:
        samples.add(BROKER_UP, int(state.is_broker_up))


def add_dropped_series(samples: MetricSamples, dropped: int) -> None:
    """Add the number of series left out since the start."""
    samples.add(SERIES_DROPPED, dropped)
