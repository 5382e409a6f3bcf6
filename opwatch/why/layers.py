"""Decompose the excess latency of slow intervals into the layers of the block stack. Pure.

Means add, quantiles do not: the mean of an interval is the sum of its layers' means, so the excess over the
usual means is the sum of the layers' excesses, exactly.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from opwatch.why.witnessed import OpSeries


class StackLayer(StrEnum):
    """Where a request spends its time, in the order of its path."""

    THROTTLE = "throttle"
    ADMISSION = "admission"
    QUEUE = "queue"
    DEVICE = "device"
    # The two parts of the device time, if the drive reports its own.
    DRIVE = "drive"
    PATH = "path"


# The layers from the issue to the completion.
DEVICE_LAYERS = (StackLayer.DEVICE, StackLayer.DRIVE, StackLayer.PATH)


@dataclass(frozen=True, slots=True)
class LayerTimes:
    """The summed time of one operation per interval and measured layer; missing layers were not measured."""

    count: array[float]
    sums: Mapping[StackLayer, array[float]]

    def compute_means(self, places: Iterable[int]) -> dict[StackLayer, float]:
        """Return the mean time per request and layer over some intervals; 0 without requests."""
        chosen = list(places)
        count = math.fsum(self.count[at] for at in chosen)
        return {
            layer: math.fsum(sums[at] for at in chosen) / count if count else 0.0
            for layer, sums in self.sums.items()
        }

    def compute_excess(
        self, places: Iterable[int], usual: Mapping[StackLayer, float]
    ) -> dict[StackLayer, float]:
        """Return the time above the usual means, in ns, per layer; negative if a layer was faster."""
        chosen = list(places)
        count = math.fsum(self.count[at] for at in chosen)
        return {
            layer: math.fsum(sums[at] for at in chosen) - count * usual[layer]
            for layer, sums in self.sums.items()
        }

    def list_means(self) -> list[float]:
        """Return the mean time of a request in each interval, all layers together; NaN without requests."""
        return [
            math.fsum(sums[at] for sums in self.sums.values()) / count if count else math.nan
            for at, count in enumerate(self.count)
        ]


def select_layers(series: OpSeries, drive_share: Sequence[float] | None = None) -> LayerTimes:
    """Return the layers that were measured. `drive_share` is the drive's own share of the device time per
    interval, None if the drive does not report it."""
    offered = {
        StackLayer.THROTTLE: series.throttle_ns,
        StackLayer.ADMISSION: series.admission_ns,
        StackLayer.QUEUE: series.queue_ns,
        StackLayer.DEVICE: series.device_ns,
    }
    sums = {
        layer: array("d", (0.0 if math.isnan(value) else value for value in values))
        for layer, values in offered.items()
        if layer is StackLayer.DEVICE or _is_measured(values)
    }
    if drive_share is not None:
        device_ns = sums.pop(StackLayer.DEVICE)
        drive_ns = array("d", (time * share for time, share in zip(device_ns, drive_share, strict=True)))
        path_ns = array("d", (time - own for time, own in zip(device_ns, drive_ns, strict=True)))
        sums |= {StackLayer.DRIVE: drive_ns, StackLayer.PATH: path_ns}
    return LayerTimes(series.count, sums)


def _is_measured(values: array[float]) -> bool:
    # An operation that comes late has zeros before, and an idle one zeros between.
    return any(value > 0 for value in values)


def find_main_layer(excess: Mapping[StackLayer, float], least: float = 0.5) -> StackLayer | None:
    """Return the layer with at least this share of the excess, or None."""
    whole = math.fsum(excess.values())
    if whole <= 0:
        return None
    layer = max(excess, key=lambda one: excess[one])
    return layer if excess[layer] >= least * whole else None


def compute_shares(excess: Mapping[StackLayer, float]) -> dict[StackLayer, float]:
    """Return each layer's share of the excess; the shares add up to 1."""
    whole = math.fsum(excess.values())
    return {layer: value / whole for layer, value in excess.items()} if whole > 0 else {}


def sum_excess(parts: Sequence[Mapping[StackLayer, float]]) -> dict[StackLayer, float]:
    """Return the sum of several excesses."""
    layers = dict.fromkeys(layer for part in parts for layer in part)
    return {layer: math.fsum(part.get(layer, 0.0) for part in parts) for layer in layers}
