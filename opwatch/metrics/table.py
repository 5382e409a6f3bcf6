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
    "Time of completed requests from their first issue.",
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
    "Requests in the driver.",
    ("device",),
    absent="the source of the counts does not see the issue of requests",
)
UNEXPLAINED = MetricFamily(
    "opwatch_unexplained_requests_total",
    _COUNTER,
    "",
    "Unexplained difference from the kernel's count.",
    ("device",),
    note="If it grows, do not trust the device's other counts of that time.",
    absent="the kernel has no statistics of the device to compare with",
)
UNTRACED = MetricFamily(
    "opwatch_untraced_requests_total",
    _COUNTER,
    "",
    "Requests not traced for a known reason.",
    ("device",),
    absent="the kernel has no statistics of the device to compare with",
    note="The table of requests in flight was full, or the kernel skipped a run of the program.",
)
WATCHED = MetricFamily(
    "opwatch_watched",
    _GAUGE,
    "",
    "1 if requests are counted, else 0.",
    ("device",),
)
WATCH_REFUSED = MetricFamily(
    "opwatch_watch_refused_info",
    _GAUGE,
    "",
    "Why requests are not counted.",
    ("device", "reason"),
    absent="the device is watched",
    note="The value is always 1.",
)
QUEUE_DURATION = MetricFamily(
    "opwatch_queue_duration_seconds",
    _HISTOGRAM,
    "seconds",
    "Time of requests before their first issue.",
    ("device", "op"),
    source="--queue",
)
THROTTLE_DURATION = MetricFamily(
    "opwatch_throttle_duration_seconds",
    _HISTOGRAM,
    "seconds",
    "Time for which io.max held requests back, 0 included.",
    ("device", "op"),
    source="--queue",
    absent="the kernel refuses programs at function exits",
    note="It has only the count and the sum.",
)
ADMISSION_DURATION = MetricFamily(
    "opwatch_admission_duration_seconds",
    _HISTOGRAM,
    "seconds",
    "Time of requests between their submission and the queue: wbt, iocost, io.latency, no free tag.",
    ("device", "op"),
    source="--queue",
    note="It has only the count and the sum.",
)

# Bytes, from the drive's firmware and beside them from the kernel.
HOST_WRITTEN = MetricFamily(
    "opwatch_host_written_bytes_total",
    _COUNTER,
    "bytes",
    "Bytes that the host wrote.",
    (*_DRIVE, "source"),
    absent="source=firmware: the counter is refused, see opwatch_firmware_refused",
    note="The kernel's counter starts at 0 at boot.",
)
HOST_READ = MetricFamily(
    "opwatch_host_read_bytes_total",
    _COUNTER,
    "bytes",
    "Bytes that the host read.",
    (*_DRIVE, "source"),
    absent="source=firmware: the counter is refused, or the drive has none",
    note="The kernel's counter starts at 0 at boot.",
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
    "Step of the drive's byte counter.",
    (*_DRIVE, "counter"),
    absent="the counter is refused",
    note="Differences below a hundred steps are inaccurate.",
)
REFUSED = MetricFamily(
    "opwatch_firmware_refused",
    _GAUGE,
    "",
    "Why a byte counter of the drive is not exported.",
    (*_DRIVE, "counter", "reason"),
    absent="the counter is served",
    note="The value is always 1. Numbers in the reason are replaced by N, so that it stays the same.",
)
READ_TIMESTAMP = MetricFamily(
    "opwatch_firmware_read_timestamp_seconds",
    _GAUGE,
    "seconds",
    "Unix time of the last reading of the drive.",
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
    "1 if the drive was in standby, else 0.",
    _DRIVE,
    note="A drive in standby is not read.",
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
    "Spare capacity below which the drive warns.",
    _DRIVE,
    absent=_UNREPORTED,
)
ENDURANCE_USED = MetricFamily(
    "opwatch_endurance_used_ratio",
    _GAUGE,
    "ratio",
    "Share of the rated endurance used.",
    _DRIVE,
    absent=_UNREPORTED,
    note="It may exceed 1.",
)
ENDURANCE_END = MetricFamily(
    "opwatch_endurance_end_timestamp_seconds",
    _GAUGE,
    "seconds",
    "Unix time when the rated endurance is used up.",
    (*_DRIVE, "bound"),
    note="At the average pace of the drive's life, if it stays powered on: not before bound=early, not after "
    "bound=late.",
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
    "1 if the drive raises this warning, else 0.",
    (*_DRIVE, "kind"),
    absent=_UNREPORTED,
)
DRIVE_INFO = MetricFamily(
    "opwatch_drive_info",
    _GAUGE,
    "",
    "Identity of the drive.",
    (*_DRIVE, "model", "firmware", "wwid", "transport", "class"),
    note="The value is always 1.",
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
    "Verdict on the filesystem's trims.",
    ("mountpoint", "verdict"),
    source="--trim",
    note="The value is always 1. The verdict is that of the last check.",
)
TRIM_TIMESTAMP = MetricFamily(
    "opwatch_trim_timestamp_seconds",
    _GAUGE,
    "seconds",
    "Unix time of the last trim check.",
    ("mountpoint",),
    source="--trim",
)
STALE_BYTES = MetricFamily(
    "opwatch_stale_bytes",
    _GAUGE,
    "bytes",
    "Free space that the drive still holds as data.",
    ("mountpoint", "bound"),
    note="At least bound=low, at most bound=high.",
    source="--trim",
    absent="stale space was not measured",
)
TRIM_LOST = MetricFamily(
    "opwatch_trim_lost_bytes_total",
    _COUNTER,
    "bytes",
    "Free bytes that a trim does not free on the drive.",
    ("mountpoint", "layer", "reason"),
    source="--trim",
    note="It grows by what a check finds beyond the check before.",
    absent="nothing was lost, or the number of bytes is unknown",
)

# Requests by control group.
OWNER_BYTES = MetricFamily(
    "opwatch_owner_io_bytes_total",
    _COUNTER,
    "bytes",
    "Bytes of completed requests by control group.",
    _OWNER,
    source="--by cgroup",
    note="Write-back belongs to the control group that wrote the pages.",
)
OWNER_REQUESTS = MetricFamily(
    "opwatch_owner_io_requests_total",
    _COUNTER,
    "",
    "Completed requests by control group.",
    _OWNER,
    source="--by cgroup",
)
OWNER_SECONDS = MetricFamily(
    "opwatch_owner_io_seconds_total",
    _COUNTER,
    "seconds",
    "Summed time of completed requests by control group.",
    _OWNER,
    source="--by cgroup",
)
OWNER_DEPARTED = MetricFamily(
    "opwatch_owner_departed_bytes",
    _GAUGE,
    "bytes",
    "Bytes of control groups that left the ten busiest.",
    ("device", "op"),
    note="With them, the bytes of all owners add up to the device's.",
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

# Where written bytes are amplified, in recordings only.
WRITES_BYTES = MetricFamily(
    "opwatch_writes_bytes",
    _GAUGE,
    "bytes",
    "Bytes that a step of opwatch writes has added since the start.",
    ("subject", "step", "row"),
    source="dump -O openmetrics",
    absent="the step has no number in some interval",
    note="The page cache may keep more than it adds, so the value can decrease.",
)

# The exporter itself.
BUILD_INFO = MetricFamily(
    "opwatch_exporter_build_info",
    _GAUGE,
    "",
    "Version of opwatch.",
    ("version",),
    note="The value is always 1.",
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
    THROTTLE_DURATION,
    ADMISSION_DURATION,
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
    WRITES_BYTES,
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
    THROTTLE_DURATION,
    ADMISSION_DURATION,
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
    "layer": "the kind of layer that loses the bytes, such as filesystem, crypt, md or nvme",
    "cgroup": "the path of a control group, shortened in the middle to 256 characters; or other",
    "pod_uid": "the UID of the control group's Kubernetes pod, as in kube_pod_info; or empty",
    "container_id": "the ID of the control group's container; or empty",
    "mode": "user, system, irq or steal",
    "subject": "the mount point or device that is measured",
    "step": "of written bytes: application, page cache, data, journal, metadata, device, layer, drives, NAND",
    "row": "the name of the step's row, such as ext4 journal or md0 raid1",
    "version": "of opwatch",
}
