"""The samples of a simulated host's answer, by the table of metrics that the exporter uses."""

from __future__ import annotations

import time
from collections.abc import Iterable

from opwatch import __version__
from opwatch.metrics import table
from opwatch.metrics.buckets import count_durations, count_without_buckets
from opwatch.metrics.family import MetricSamples
from opwatch.trace.abi import LATENCY
from opwatch.trace.hist import Histogram

from .drives import ROUNDED_SHARE, SimulatedDrive

# Codes of causes and reasons, as the exporter writes them.
LOST_LAYER, LOST_REASON = "crypt", "crypt-no-discards"
CONTAINER = "0123456789abcdef" * 4
NEVER_PROVEN = "the unit of the counter is not proven for this model"
NO_LONGER_PROVEN = "the counter went backwards by N"


def build_samples(drives: Iterable[SimulatedDrive]) -> MetricSamples:
    """Return the samples of the drives of one host."""
    samples = MetricSamples()
    for drive in drives:
        _add_requests(samples, drive)
        _add_firmware(samples, drive)
        _add_health(samples, drive)
        _add_trim(samples, drive)
    return samples


def _add_requests(samples: MetricSamples, drive: SimulatedDrive) -> None:
    device = drive.device
    for op, count in drive.operations.items():
        counts = (
            count_durations(Histogram(LATENCY, count.slots), round(count.sum_ns))
            if drive.has_histograms
            else count_without_buckets(count.requests, round(count.sum_ns))
        )
        samples.add(table.IO_DURATION, counts, device, op)
        samples.add(table.IO_BYTES, count.n_bytes, device, op)
        samples.add(table.IO_ERRORS, 0, device, op)
    samples.add(table.IO_IN_FLIGHT, 0, device)
    samples.add(table.UNEXPLAINED, drive.unexplained, device)
    samples.add(table.UNTRACED, 0, device)
    samples.add(table.WATCHED, 1, device)


def _add_firmware(samples: MetricSamples, drive: SimulatedDrive) -> None:
    plan, model, page = drive.plan, drive.plan.model, drive.page
    assert page
    drive_labels = drive.device, plan.serial
    samples.add(table.HOST_WRITTEN, page.host_bytes, *drive_labels, "firmware")
    samples.add(table.HOST_WRITTEN, drive.kernel_written, *drive_labels, "kernel")
    samples.add(table.HOST_READ, page.host_read_bytes, *drive_labels, "firmware")
    samples.add(table.HOST_READ, drive.kernel_read, *drive_labels, "kernel")
    samples.add(table.QUANTUM, model.host_quantum_bytes, *drive_labels, "host")
    if drive.is_media_refused:
        is_old = model.media_quantum_bytes is None
        samples.add(table.REFUSED, 1, *drive_labels, "media", NEVER_PROVEN if is_old else NO_LONGER_PROVEN)
    elif page.media_bytes is not None and model.media_quantum_bytes is not None:
        samples.add(table.MEDIA_WRITTEN, page.media_bytes, *drive_labels)
        samples.add(table.QUANTUM, model.media_quantum_bytes, *drive_labels, "media")
    samples.add(table.READ_TIMESTAMP, page.at_s, *drive_labels)
    for reason, times in drive.failures.items():
        samples.add(table.READ_FAILURES, times, *drive_labels, reason)
    samples.add(table.ASLEEP, int(drive.is_asleep), *drive_labels)


def _add_health(samples: MetricSamples, drive: SimulatedDrive) -> None:
    plan, model, page = drive.plan, drive.plan.model, drive.page
    assert page
    drive_labels = drive.device, plan.serial
    samples.add(table.SPARE, page.spare_ratio, *drive_labels)
    samples.add(table.SPARE_THRESHOLD, model.spare_threshold, *drive_labels)
    samples.add(table.ENDURANCE_USED, page.used_percent / 100, *drive_labels)
    early_s, late_s = drive.find_endurance_bounds()
    samples.add(table.ENDURANCE_END, early_s, *drive_labels, "early")
    if page.used_percent:
        samples.add(table.ENDURANCE_END, late_s, *drive_labels, "late")
    samples.add(table.TEMPERATURE, 38.0, *drive_labels)
    samples.add(table.MEDIA_ERRORS, 0, *drive_labels)
    samples.add(table.POWER_ON, page.power_on_s, *drive_labels)
    samples.add(table.POWER_CYCLES, 12, *drive_labels)
    is_spare_low = page.spare_ratio < model.spare_threshold
    for kind in table.WARNING_KINDS:
        samples.add(table.CRITICAL_WARNING, int(is_spare_low and kind == "spare"), *drive_labels, kind)
    identity = (model.name, model.firmware, f"eui.{plan.seed:016x}", "nvme", "ssd")
    samples.add(table.DRIVE_INFO, 1, *drive_labels, *identity)
    samples.add(table.DRIVE_CAPACITY, model.capacity_bytes, *drive_labels)


def _add_trim(samples: MetricSamples, drive: SimulatedDrive) -> None:
    """Add the filesystem of the drive, which is mounted below its serial number."""
    mountpoint = f"/data/{drive.plan.serial}"
    share = drive.lost_share
    verdict = "nothing" if share == 1 else "part" if share > ROUNDED_SHARE else "reaches"
    samples.add(table.TRIM_VERDICT, 1, mountpoint, verdict)
    samples.add(table.TRIM_TIMESTAMP, drive.now_s // 3600 * 3600, mountpoint)
    samples.add(table.STALE_BYTES, drive.trim_lost_shown, mountpoint, "low")
    samples.add(table.STALE_BYTES, drive.trim_lost_shown + (1 << 20), mountpoint, "high")
    if drive.trim_lost_shown:
        samples.add(table.TRIM_LOST, drive.trim_lost_shown, mountpoint, LOST_LAYER, LOST_REASON)


def add_owners(samples: MetricSamples, drives: Iterable[SimulatedDrive]) -> None:
    """Add the requests by control group: a pod has two thirds of each count, and `other` has the rest."""
    for drive in drives:
        pod = f"00000000-0000-4000-8000-{drive.host.seed:012x}"
        path = f"kubepods.slice/kubepods-pod{pod.replace('-', '_')}.slice/cri-containerd-{CONTAINER}.scope"
        for op, count in drive.operations.items():
            n_bytes, requests = count.n_bytes * 2 // 3, count.requests * 2 // 3
            for labels, shares in (
                ((path, pod, CONTAINER), (n_bytes, requests, count.sum_ns * 2 / 3e9)),
                (("other", "", ""), (count.n_bytes - n_bytes, count.requests - requests, count.sum_ns / 3e9)),
            ):
                owner_labels = (drive.device, op, *labels)
                samples.add(table.OWNER_BYTES, shares[0], *owner_labels)
                samples.add(table.OWNER_REQUESTS, shares[1], *owner_labels)
                samples.add(table.OWNER_SECONDS, shares[2], *owner_labels)


def add_exporter(samples: MetricSamples, begin_s: float) -> None:
    """Add the families about an exporter that started at `begin_s`."""
    samples.add(table.BUILD_INFO, 1, __version__)
    samples.add(table.START_TIMESTAMP, begin_s)
    samples.add(table.CPU_SECONDS, time.process_time())
    samples.add(table.RESIDENT_MEMORY, 20_000_000)
    samples.add(table.SAMPLE_AGE, 0.0)
    samples.add(table.SERIES_DROPPED, 0)
    samples.add(table.BROKER_UP, 1)
