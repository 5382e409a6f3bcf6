"""The table of metric families: the only definition of names, types, units, help texts and labels."""

from __future__ import annotations

from opwatch.metrics.family import MetricFamily, MetricKind

_COUNTER, _GAUGE, _HISTOGRAM = MetricKind.COUNTER, MetricKind.GAUGE, MetricKind.HISTOGRAM
_DRIVE = ("device", "serial")
_OWNER = ("device", "op", "cgroup", "pod_uid", "container_id")
_UNREPORTED = "the drive does not report it"

# Requests, from the kernel.
IO_DURATION = MetricFamily(
    "opwatch_io_duration_seconds",
    _HISTOGRAM,
    "seconds",
    "Time from the first issue of a request to its completion.",
    ("device", "op"),
)
IO_BYTES = MetricFamily(
    "opwatch_io_bytes_total",
    _COUNTER,
    "bytes",
    "Bytes of completed requests.",
    ("device", "op"),
)
IO_ERRORS = MetricFamily(
    "opwatch_io_errors_total",
    _COUNTER,
    "",
    "Requests that completed with an error.",
    ("device", "op"),
    absent="the source of the counts has no errors",
)
IO_IN_FLIGHT = MetricFamily(
    "opwatch_io_in_flight",
    _GAUGE,
    "",
    "Requests issued to the driver and not completed.",
    ("device",),
    absent="the source of the counts does not see the issue of requests",
)
UNEXPLAINED = MetricFamily(
    "opwatch_unexplained_requests_total",
    _COUNTER,
    "",
    "Difference from the kernel's request counts without a known reason. If it grows, do not trust other "
    "counts of that time.",
    ("device",),
    absent="the kernel has no statistics of the device to compare with",
)
UNTRACED = MetricFamily(
    "opwatch_untraced_requests_total",
    _COUNTER,
    "",
    "Requests not traced for a known reason.",
    ("device",),
    absent="the kernel has no statistics of the device to compare with",
)
WATCHED = MetricFamily(
    "opwatch_watched",
    _GAUGE,
    "",
    "1 if the device's requests are counted, else 0.",
    ("device",),
)
WATCH_REFUSED = MetricFamily(
    "opwatch_watch_refused_info",
    _GAUGE,
    "",
    "Why the device's requests are not counted; always 1.",
    ("device", "reason"),
    absent="the device is watched",
)
QUEUE_DURATION = MetricFamily(
    "opwatch_queue_duration_seconds",
    _HISTOGRAM,
    "seconds",
    "Time of requests in the queue before their first issue.",
    ("device", "op"),
    source="--queue",
)

# Bytes, from the drive's firmware and beside them from the kernel.
HOST_WRITTEN = MetricFamily(
    "opwatch_host_written_bytes_total",
    _COUNTER,
    "bytes",
    "Bytes that the host wrote: by the drive's counter, and by the kernel's since boot.",
    (*_DRIVE, "source"),
    absent="source=firmware: the counter is refused, see opwatch_firmware_refused",
)
HOST_READ = MetricFamily(
    "opwatch_host_read_bytes_total",
    _COUNTER,
    "bytes",
    "Bytes that the host read: by the drive's counter, and by the kernel's since boot.",
    (*_DRIVE, "source"),
    absent="source=firmware: the counter is refused, or the drive has none",
)
MEDIA_WRITTEN = MetricFamily(
    "opwatch_media_written_bytes_total",
    _COUNTER,
    "bytes",
    "Bytes that the drive wrote to its NAND.",
    _DRIVE,
    absent="the counter's unit is not proven, see opwatch_firmware_refused",
)
QUANTUM = MetricFamily(
    "opwatch_firmware_quantum_bytes",
    _GAUGE,
    "bytes",
    "Step of the drive's counter; differences below 100 steps are inaccurate.",
    (*_DRIVE, "counter"),
    absent="the counter is refused",
)
REFUSED = MetricFamily(
    "opwatch_firmware_refused",
    _GAUGE,
    "",
    "Why a byte counter of the drive is not exported, with N in place of numbers; always 1.",
    (*_DRIVE, "counter", "reason"),
    absent="the counter is served",
)
READ_TIMESTAMP = MetricFamily(
    "opwatch_firmware_read_timestamp_seconds",
    _GAUGE,
    "seconds",
    "Unix time of the last successful reading of the drive.",
    _DRIVE,
    absent="the drive was never read",
)
READ_FAILURES = MetricFamily(
    "opwatch_firmware_read_failures_total",
    _COUNTER,
    "",
    "Failed readings of the drive.",
    (*_DRIVE, "reason"),
)

# State of the drive, from its firmware.
ASLEEP = MetricFamily(
    "opwatch_drive_asleep",
    _GAUGE,
    "",
    "1 if the drive was in standby and was not read, else 0.",
    _DRIVE,
)
SPARE = MetricFamily(
    "opwatch_spare_ratio",
    _GAUGE,
    "ratio",
    "Share of the spare capacity left.",
    _DRIVE,
    absent=_UNREPORTED,
)
SPARE_THRESHOLD = MetricFamily(
    "opwatch_spare_threshold_ratio",
    _GAUGE,
    "ratio",
    "Share of the spare capacity below which the drive warns.",
    _DRIVE,
    absent=_UNREPORTED,
)
ENDURANCE_USED = MetricFamily(
    "opwatch_endurance_used_ratio",
    _GAUGE,
    "ratio",
    "Share of the rated endurance used; may exceed 1.",
    _DRIVE,
    absent=_UNREPORTED,
)
ENDURANCE_END = MetricFamily(
    "opwatch_endurance_end_timestamp_seconds",
    _GAUGE,
    "seconds",
    "Unix time when the rated endurance is used up at the drive's average pace: not before early, not after "
    "late.",
    (*_DRIVE, "bound"),
    absent="the drive reports no wear or power-on time; bound=late: no wear yet",
)
TEMPERATURE = MetricFamily(
    "opwatch_temperature_celsius",
    _GAUGE,
    "celsius",
    "The drive's composite temperature.",
    _DRIVE,
    absent=_UNREPORTED,
)
MEDIA_ERRORS = MetricFamily(
    "opwatch_media_errors_total",
    _COUNTER,
    "",
    "Unrecovered media and data errors.",
    _DRIVE,
    absent=_UNREPORTED,
)
POWER_ON = MetricFamily(
    "opwatch_power_on_seconds_total",
    _COUNTER,
    "seconds",
    "Power-on time in steps of an hour.",
    _DRIVE,
    absent=_UNREPORTED,
)
POWER_CYCLES = MetricFamily(
    "opwatch_power_cycles_total",
    _COUNTER,
    "",
    "Power cycles.",
    _DRIVE,
    absent=_UNREPORTED,
)
CRITICAL_WARNING = MetricFamily(
    "opwatch_critical_warning",
    _GAUGE,
    "",
    "1 if the drive raises this critical warning, else 0.",
    (*_DRIVE, "kind"),
    absent=_UNREPORTED,
)
DRIVE_INFO = MetricFamily(
    "opwatch_drive_info",
    _GAUGE,
    "",
    "The drive's identity; always 1.",
    (*_DRIVE, "model", "firmware", "wwid", "transport", "class"),
)
DRIVE_CAPACITY = MetricFamily(
    "opwatch_drive_capacity_bytes",
    _GAUGE,
    "bytes",
    "Capacity of the drive.",
    _DRIVE,
    absent="the capacity is unknown",
)

# Trims, hourly at most.
TRIM_VERDICT = MetricFamily(
    "opwatch_trim_verdict",
    _GAUGE,
    "",
    "Verdict of the filesystem's last trim check; always 1.",
    ("mountpoint", "verdict"),
    source="--trim",
)
TRIM_TIMESTAMP = MetricFamily(
    "opwatch_trim_timestamp_seconds",
    _GAUGE,
    "seconds",
    "Unix time of the last check.",
    ("mountpoint",),
    source="--trim",
)
STALE_BYTES = MetricFamily(
    "opwatch_stale_bytes",
    _GAUGE,
    "bytes",
    "Free space of the filesystem that the drive still holds as data: at least `low`, at most `high`.",
    ("mountpoint", "bound"),
    source="--trim",
    absent="stale space was not measured",
)
TRIM_LOST = MetricFamily(
    "opwatch_trim_lost_bytes_total",
    _COUNTER,
    "bytes",
    "Bytes of trims that did not reach the drive, summed over the checks, by the layer that lost them and by "
    "the code of the cause.",
    ("mountpoint", "layer", "reason"),
    source="--trim",
    absent="nothing was lost, or the number of bytes is unknown",
)

# Requests by control group.
OWNER_BYTES = MetricFamily(
    "opwatch_owner_io_bytes_total",
    _COUNTER,
    "bytes",
    "Bytes of completed requests by the control group that issued them, write-back included.",
    _OWNER,
    source="--by cgroup",
)
OWNER_REQUESTS = MetricFamily(
    "opwatch_owner_io_requests_total",
    _COUNTER,
    "",
    "Completed requests by the control group that issued them.",
    _OWNER,
    source="--by cgroup",
)
OWNER_SECONDS = MetricFamily(
    "opwatch_owner_io_seconds_total",
    _COUNTER,
    "seconds",
    "Summed durations of completed requests by the control group that issued them.",
    _OWNER,
    source="--by cgroup",
)
OWNER_DEPARTED = MetricFamily(
    "opwatch_owner_departed_bytes",
    _GAUGE,
    "bytes",
    "Bytes of control groups that left the ten busiest. With them, the owners add up to the device's bytes.",
    ("device", "op"),
    source="--by cgroup",
    absent="no control group has left",
)

# The machine, in recordings only: a server has it from other exporters.
MACHINE_CPU = MetricFamily(
    "opwatch_cpu_seconds_total",
    _COUNTER,
    "seconds",
    "CPU time of the machine during the intervals of a device.",
    ("device", "mode"),
    source="dump -O openmetrics",
    absent="the recording has no CPU times",
)

# The exporter itself.
BUILD_INFO = MetricFamily(
    "opwatch_exporter_build_info", _GAUGE, "", "Version of opwatch; always 1.", ("version",)
)
START_TIMESTAMP = MetricFamily(
    "opwatch_exporter_start_timestamp_seconds", _GAUGE, "seconds", "Unix time at which the exporter started."
)
CPU_SECONDS = MetricFamily(
    "opwatch_exporter_cpu_seconds_total",
    _COUNTER,
    "seconds",
    "CPU time of the exporter and its broker.",
)
RESIDENT_MEMORY = MetricFamily(
    "opwatch_exporter_resident_memory_bytes", _GAUGE, "bytes", "Resident memory of the exporter."
)
SAMPLE_AGE = MetricFamily(
    "opwatch_exporter_sample_age_seconds",
    _GAUGE,
    "seconds",
    "Age of the kernel's counters in this answer.",
)
SERIES_DROPPED = MetricFamily(
    "opwatch_exporter_series_dropped_total",
    _COUNTER,
    "",
    "Series left out of answers by --series-limit.",
)
BROKER_UP = MetricFamily(
    "opwatch_exporter_broker_up",
    _GAUGE,
    "",
    "1 if the broker answers, else 0.",
    absent="the exporter runs without the broker",
)

FAMILIES = (
    IO_DURATION,
    IO_BYTES,
    IO_ERRORS,
    IO_IN_FLIGHT,
    UNEXPLAINED,
    UNTRACED,
    WATCHED,
    WATCH_REFUSED,
    QUEUE_DURATION,
    HOST_WRITTEN,
    HOST_READ,
    MEDIA_WRITTEN,
    QUANTUM,
    REFUSED,
    READ_TIMESTAMP,
    READ_FAILURES,
    ASLEEP,
    SPARE,
    SPARE_THRESHOLD,
    ENDURANCE_USED,
    ENDURANCE_END,
    TEMPERATURE,
    MEDIA_ERRORS,
    POWER_ON,
    POWER_CYCLES,
    CRITICAL_WARNING,
    DRIVE_INFO,
    DRIVE_CAPACITY,
    TRIM_VERDICT,
    TRIM_TIMESTAMP,
    STALE_BYTES,
    TRIM_LOST,
    OWNER_BYTES,
    OWNER_REQUESTS,
    OWNER_SECONDS,
    OWNER_DEPARTED,
    MACHINE_CPU,
    BUILD_INFO,
    START_TIMESTAMP,
    CPU_SECONDS,
    RESIDENT_MEMORY,
    SAMPLE_AGE,
    SERIES_DROPPED,
    BROKER_UP,
)

# If an answer has more series than --series-limit, whole families are left out in this order. Families that
# are not listed say whether the others can be trusted, and are always served.
DROP_ORDER = (
    OWNER_DEPARTED,
    OWNER_SECONDS,
    OWNER_REQUESTS,
    OWNER_BYTES,
    QUEUE_DURATION,
    TRIM_LOST,
    POWER_CYCLES,
    POWER_ON,
    TEMPERATURE,
    CRITICAL_WARNING,
    HOST_READ,
    DRIVE_CAPACITY,
    ENDURANCE_END,
    IO_DURATION,
    IO_IN_FLIGHT,
    MEDIA_ERRORS,
    STALE_BYTES,
    TRIM_TIMESTAMP,
    SPARE_THRESHOLD,
    SPARE,
    ENDURANCE_USED,
    IO_ERRORS,
    MEDIA_WRITTEN,
    HOST_WRITTEN,
    QUANTUM,
    UNTRACED,
    ASLEEP,
    READ_FAILURES,
    READ_TIMESTAMP,
    DRIVE_INFO,
    IO_BYTES,
)
# Values of labels that come from a fixed set.
WARNING_KINDS = ("spare", "temperature", "reliability", "read_only", "backup")
# Labels, and their values.
LABELS = {
    "device": "the kernel's name of the disk or partition",
    "op": "read, write, flush, discard, write_zeroes, secure_erase, other; of owners: read, write, discard",
    "serial": "the drive's serial number: a drive that gets another name keeps it",
    "source": "firmware: the drive's own counter; kernel: the kernel's counter, from 0 at boot",
    "counter": "host, host_read or media: bytes written by the host, read by the host, and written to NAND",
    "reason": "a sentence; of failed readings: timeout, refused, permission; of trims: a code of the audit",
    "model": "the drive's model",
    "firmware": "the version of the drive's firmware",
    "wwid": "the drive's worldwide identifier",
    "transport": "nvme, ata or scsi",
    "class": "ssd or hdd",
    "kind": "spare, temperature, reliability, read_only, backup",
    "bound": "of the end of endurance: early, late; of stale bytes: low, high",
    "mountpoint": "where the filesystem is mounted",
    "verdict": "of a check: reaches, part, nothing, unknown; of an audit: such as proven, partial, not_sent",
    "layer": "the block device or filesystem that lost the bytes",
    "cgroup": "the path of a control group, shortened in the middle to 256 characters; or other",
    "pod_uid": "the UID of the control group's Kubernetes pod, as in kube_pod_info; or empty",
    "container_id": "the ID of the control group's container; or empty",
    "mode": "user, system, irq or steal",
    "version": "of opwatch",
}
