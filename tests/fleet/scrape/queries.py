"""PromQL expressions of the dashboards.

Quantiles prefer native histograms, and use classic buckets where a server has none.
"""

from __future__ import annotations

IO = "opwatch_io_duration_seconds"
OF_HOST = 'instance="$host"'
READS = 'op="read"'
BY_FIRMWARE = 'source="firmware"'
ANY = 'job=~".+"'
OF_DRIVE = 'instance="$host",device="$device"'
# Devices of the selected models, and those whose model is unknown, such as virtual disks.
OF_MODEL = 'unless on (job, instance, device) opwatch_drive_info{model!~"$model"}'
MODEL_OF = "* on (job, instance, device) group_left (model) opwatch_drive_info"


def query_quantile(ratio: float, selector: str, by: str = "", extra: str = "") -> str:
    """Return a quantile of latency, from native histograms or else from classic buckets."""
    native = f"sum by ({by}) (rate({IO}{{{selector}}}[$__rate_interval]) {extra})"
    classic_by = f"le, {by}" if by else "le"
    classic = f"sum by ({classic_by}) (rate({IO}_bucket{{{selector}}}[$__rate_interval]) {extra})"
    return f"histogram_quantile({ratio}, {native}) or histogram_quantile({ratio}, {classic})"


def query_heat(selector: str, extra: str = "") -> str:
    """Return the histogram of latency over time."""
    return (
        f"sum(rate({IO}{{{selector}}}[$__rate_interval]) {extra}) "
        f"or sum by (le) (rate({IO}_bucket{{{selector}}}[$__rate_interval]) {extra})"
    )


def query_requests(selector: str, by: str, window: str = "$__rate_interval") -> str:
    """Return the requests per second."""
    return (
        f"sum by ({by}) (histogram_count(rate({IO}{{{selector}}}[{window}])) "
        f"or rate({IO}_count{{{selector}}}[{window}]))"
    )


def query_queue_depth(selector: str, by: str) -> str:
    """Return the mean number of requests in progress, as their summed latency per second."""
    return (
        f"sum by ({by}) (histogram_sum(rate({IO}{{{selector}}}[$__rate_interval])) "
        f"or rate({IO}_sum{{{selector}}}[$__rate_interval]))"
    )


def query_difference(metric: str, selector: str) -> str:
    """Return the exact difference of a drive's counter within the window, by serial."""
    series = f"{metric}{{{selector}}}[$waf_window]"
    return f"max without (device, source) (max_over_time({series}) - min_over_time({series}))"


def query_step(counter: str, selector: str) -> str:
    """Return the step of a drive's counter, by serial."""
    series = f'opwatch_firmware_quantum_bytes{{{selector},counter="{counter}"}}'
    return f"max without (device, counter) ({series})"


def query_waf(selector: str, bound: int = 0) -> str:
    """Return write amplification where both differences are a hundred steps, or its bound below or above."""
    host = query_difference("opwatch_host_written_bytes_total", f'{selector},source="firmware"')
    media = query_difference("opwatch_media_written_bytes_total", selector)
    host_step, media_step = query_step("host", selector), query_step("media", selector)
    sign, opposite = ("-", "+") if bound < 0 else ("+", "-")
    above = f"({media} >= 100 * {media_step})"
    below = f"({host} >= 100 * {host_step})"
    if bound:
        above, below = f"({above} {sign} {media_step})", f"({below} {opposite} {host_step})"
    return f"{above} / {below}"


def query_owners(selector: str) -> str:
    """Return the bytes per second of each control group."""
    return f"sum by (cgroup) (rate(opwatch_owner_io_bytes_total{{{selector}}}[$__rate_interval]))"
