"""Latency pages of a drive: Amazon's counts, the OCP latency monitor, or the reason for neither."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from opwatch.counters.decode import amazon, monitor, ocp
from opwatch.counters.decode.amazon import AmazonLog
from opwatch.counters.decode.identify import Controller
from opwatch.counters.decode.monitor import MonitorLog
from opwatch.counters.evidence import Evidence
from opwatch.counters.reading import DriveFacts
from opwatch.errors import BadInput, OpwatchError

AMAZON_VENDOR = 0x1D0F
_INSTANCE_STORAGE = "Amazon EC2 NVMe Instance Storage"
NO_PAGE = "no latency log that opwatch knows (log D0h of Amazon's volumes, C3h of the OCP specification)"


@dataclass(frozen=True, slots=True)
class DriveLatency:
    """Latency counted by a drive. Missing pages are None; `failures` lists pages that failed."""

    drive: DriveFacts
    amazon: AmazonLog | None = None
    monitor: MonitorLog | None = None
    failures: tuple[str, ...] = ()

    @property
    def has_pages(self) -> bool:
        return self.amazon is not None or self.monitor is not None


@dataclass(frozen=True, slots=True)
class LatencyPages:
    """Latency pages to read, with their lengths. Other vendors' pages with the same numbers are not read."""

    amazon_bytes: int | None
    has_monitor: bool


_T = TypeVar("_T")


def select_pages(controller: Controller, cloud_log: bytes | None) -> LatencyPages:
    """Return the pages that a real drive has.

    Amazon's page is expected by vendor id, the monitor if log C0h carries the OCP GUID.
    """
    length = None
    if controller.vendor_id == AMAZON_VENDOR:
        detailed = (controller.model or "").startswith(_INSTANCE_STORAGE)
        length = amazon.DETAILED_LENGTH if detailed else amazon.LENGTH
    return LatencyPages(length, bool(cloud_log and cloud_log[496:512] == ocp.CLOUD_GUID))


def try_decode(
    decode: Callable[[bytes], _T], read: Callable[[], bytes] | None, failures: list[str]
) -> _T | None:
    """Return the decoded page, or None after adding the reason to `failures`."""
    try:
        return decode(read()) if read else None
    except OpwatchError as error:
        failures.append(str(error))
        return None


def decode_latency(evidence: Evidence) -> DriveLatency:
    """Return the latency in recorded files, or raise BadInput if they contain neither page."""
    failures = list(evidence.failures)
    raws = {page.lid: page.raw for page in evidence.vendor if page.raw is not None}

    def find_page(lid: int) -> Callable[[], bytes] | None:
        return (lambda: raws[lid]) if lid in raws else None

    drive_latency = DriveLatency(
        evidence.drive,
        try_decode(amazon.decode_amazon, find_page(amazon.LID), failures),
        try_decode(monitor.decode_monitor, find_page(monitor.LID), failures),
        tuple(failures),
    )
    if not drive_latency.has_pages:
        raise BadInput("; ".join(failures) or "these files contain no latency log of a drive")
    return drive_latency
