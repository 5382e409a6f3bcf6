"""NVMe drives, and the heads of native NVMe multipath. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from opwatch.trim.layers.base import LayerTrim, RetentionCause
from opwatch.trim.layers.disk import Disk, DiskFacts
from opwatch.trim.stack.causes import Reason, make_reason
from opwatch.trim.stack.facts import Unread
from opwatch.trim.stack.layers import Layer
from opwatch.units import format_size

PREFIX = "nvme"
_NOT_SUPPORTED, _RESERVATION_CONFLICT = 1, 6


class Nvme(Disk):
    """An NVMe namespace."""

    def find_granule(self, layer: Layer) -> tuple[int, int] | None:
        return layer.limits.find_granule(layer.facts_as(DiskFacts).deallocate_bytes)

    def find_lock(self, layer: Layer) -> Reason | None:
        return find_lock(layer)

    def explain_no_support(self, layer: Layer, observed: str) -> Reason:
        if layer.facts_as(DiskFacts).dataset_management is True:
            return super().explain_no_support(layer, observed)
        return make_reason("nvme-no-dsm", layer.device, observed, device=layer.device)

    def find_drive_hints(self, layer: Layer) -> Iterator[Reason]:
        unit, granularity = layer.facts_as(DiskFacts).deallocate_bytes, layer.limits.granularity
        if unit and granularity and unit > granularity:
            observed = f"NPDG is {format_size(unit)}, discard_granularity {format_size(granularity)}"
            yield make_reason("nvme-granularity-hidden", layer.device, observed, device=layer.device)

    def find_doubts(self, layer: Layer) -> Iterator[str]:
        yield from super().find_doubts(layer)
        if Unread.DEALLOCATE_BYTES in layer.unknown and layer.limits.can_discard:
            why = layer.unknown[Unread.DEALLOCATE_BYTES]
            yield f"the unit in which {layer.device} deallocates: {why}"

    def explain_failure(
        self, trim: LayerTrim, status: int, observed: str, kept: Sequence[RetentionCause]
    ) -> Iterator[Reason]:
        # nvme_error_status() in the kernel has one status for all errors of its default case, write
        # protection and sanitize included.
        code, at = "nvme-failed", trim.layer.device
        if status == _NOT_SUPPORTED:
            code = "nvme-refused"
        elif status == _RESERVATION_CONFLICT or trim.layer.read_only:
            code = "nvme-locked"
        yield make_reason(code, at, observed, trim.arrived_bytes, device=at)

    def hides_granule(self, layer: Layer) -> bool:
        return (layer.facts_as(DiskFacts).deallocate_bytes or 0) > (layer.limits.granularity or 0)


class MultipathHead(Nvme):
    """The head of native NVMe multipath, above hidden paths."""

    has_hidden_paths = True


def find_lock(layer: Layer) -> Reason | None:
    """Return why an NVMe namespace, or its partition, refuses every change; None if it does not."""
    if not layer.read_only or not layer.device.startswith(PREFIX):
        return None
    return make_reason("nvme-locked", layer.device, f"{layer.device} is read-only", device=layer.device)
