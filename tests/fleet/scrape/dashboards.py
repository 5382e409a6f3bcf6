"""Write the Grafana dashboards into tools/deploy/grafana.

python -m tests.fleet.scrape.dashboards --write
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from .panels import WIDTH, Json, Panel, Query, build_dashboard, build_variable
from .queries import (
    ANY,
    BY_FIRMWARE,
    MODEL_OF,
    OF_DRIVE,
    OF_HOST,
    OF_MODEL,
    READS,
    query_difference,
    query_heat,
    query_owners,
    query_quantile,
    query_queue_depth,
    query_requests,
    query_waf,
)

FOLDER = Path(__file__).parents[3] / "tools" / "deploy" / "grafana"
_WINDOW: Json = {
    "name": "waf_window",
    "label": "WAF over",
    "type": "custom",
    "query": "1h,6h,1d,7d",
    "current": {"selected": True, "text": "6h", "value": "6h"},
    "options": [
        {"selected": window == "6h", "text": window, "value": window} for window in ("1h", "6h", "1d", "7d")
    ],
}
# One is enough for attention.
_BAD = ((1.0, "orange"),)
_WAF_NOTE = (
    "NAND bytes per host byte over the chosen window. Missing where either counter moved by fewer than a "
    "hundred of its steps, or is refused."
)


def make_untrusted(selector: str) -> Panel:
    """Return the panel that names the numbers without proof, and the reasons."""
    refused = f"opwatch_firmware_refused{{{selector}}}"
    unexplained = f"increase(opwatch_unexplained_requests_total{{{selector}}}[$__range]) > 0"
    unwatched = f"opwatch_watch_refused_info{{{selector}}}"
    reason = "the kernel counted other requests"
    labelled = f'label_replace({unexplained}, "reason", "{reason}", "", "")'
    return Panel(
        "table",
        "Cannot be trusted because",
        (Query(f"{refused} or {labelled} or {unwatched}"),),
        description="Refused counters, requests that cannot be explained, and devices that are not watched.",
        width=12,
        hidden=("Value",),
    )


def make_stat(
    title: str, expression: str, unit: str = "short", steps: tuple[tuple[float, str], ...] = ()
) -> Panel:
    """Return a single value."""
    return Panel("stat", title, (Query(expression),), unit, width=4, height=4, steps=steps)


def _list_fleet_latency() -> list[Panel]:
    """Return the panels about latency and load."""
    return [
        Panel(
            "timeseries",
            "Read latency of the selected models",
            tuple(
                Query(query_quantile(q, 'op="read"', extra=OF_MODEL), name)
                for q, name in ((0.5, "p50"), (0.99, "p99"), (0.999, "p99.9"))
            ),
            "s",
            "Quantiles of the merged histograms. Disks without a model are always included.",
            12,
        ),
        Panel("heatmap", "Read latencies", (Query(query_heat('op="read"', OF_MODEL)),), "s", width=12),
        Panel(
            "table",
            "Highest p99 of reads",
            (Query(f"topk(20, {query_quantile(0.99, READS, 'instance, device', OF_MODEL)})"),),
            "s",
            "A drive under load is slow too: the fail-slow query compares drives at the same load.",
        ),
        Panel(
            "timeseries",
            "Bytes per second",
            (Query("sum by (op) (rate(opwatch_io_bytes_total[$__rate_interval]))", "{{op}}"),),
            "Bps",
        ),
        Panel("timeseries", "Requests per second", (Query(query_requests("", "op"), "{{op}}"),), "iops"),
    ]


def _list_fleet_wear() -> list[Panel]:
    """Return the panels about write amplification and endurance."""
    return [
        Panel(
            "timeseries",
            "Write amplification by model",
            (
                Query(
                    "sum by (model) ("
                    f"{query_difference('opwatch_media_written_bytes_total', '')}"
                    " * on (job, instance, serial) group_left (model) opwatch_drive_info) / sum by (model) (("
                    f"{query_difference('opwatch_host_written_bytes_total', BY_FIRMWARE)}"
                    " and on (job, instance, serial) opwatch_media_written_bytes_total)"
                    " * on (job, instance, serial) group_left (model) opwatch_drive_info)",
                    "{{model}}",
                ),
            ),
            description="Sums of the counters of all drives that count their NAND writes.",
        ),
        Panel(
            "table",
            "Highest write amplification",
            (Query(f"topk(20, {query_waf(ANY)})"),),
            description=_WAF_NOTE,
        ),
        Panel(
            "table",
            "Earliest end of rated endurance",
            (
                Query(
                    'bottomk(20, 1000 * (opwatch_endurance_end_timestamp_seconds{bound="early"} '
                    "and ignoring (bound) opwatch_endurance_used_ratio >= 0.05))"
                ),
            ),
            "dateTimeFromNow",
            "The early bound at the average pace of the drive's life. Drives below 5 % used are left out.",
            hidden=("bound",),
        ),
    ]


def _list_fleet_trust() -> list[Panel]:
    """Return the panels about trims and trust."""
    return [
        Panel(
            "timeseries",
            "Trims lost per hour",
            (
                Query(
                    "sum by (layer, reason) (increase(opwatch_trim_lost_bytes_total[1h]))",
                    "{{layer}}: {{reason}}",
                ),
            ),
            "bytes",
            width=12,
        ),
        make_untrusted(ANY),
        Panel(
            "timeseries",
            "Failed reads of drives per hour",
            (Query("sum by (reason) (increase(opwatch_firmware_read_failures_total[1h]))", "{{reason}}"),),
        ),
        Panel(
            "table",
            "Refused counters by model",
            (Query(f"count by (model, counter, reason) (opwatch_firmware_refused {MODEL_OF})"),),
        ),
        Panel(
            "timeseries",
            "Series left out by --series-limit",
            (
                Query(
                    "sum by (instance) (increase(opwatch_exporter_series_dropped_total[1h]))", "{{instance}}"
                ),
            ),
        ),
    ]


def _list_fleet_stats() -> list[Panel]:
    """Return single values about the fleet."""
    return [
        make_stat("Hosts", "count(count by (instance) (opwatch_watched))"),
        make_stat("Drives", 'count(opwatch_drive_info{model=~"$model"})'),
        make_stat(
            "Drives with refused counters",
            "count(count by (instance, serial) (opwatch_firmware_refused)) or vector(0)",
            steps=_BAD,
        ),
        make_stat(
            "Not read for six hours",
            "count(time() - opwatch_firmware_read_timestamp_seconds > 6 * 3600) or vector(0)",
            steps=_BAD,
        ),
        make_stat(
            "Spare below threshold",
            "count(opwatch_spare_ratio < opwatch_spare_threshold_ratio) or vector(0)",
            steps=((1.0, "red"),),
        ),
        make_stat(
            "Alerts firing",
            'count(ALERTS{alertname=~"Opwatch.+",alertstate="firing"}) or vector(0)',
            steps=_BAD,
        ),
    ]


def build_fleet() -> Json:
    """Return the overview of a fleet."""
    return build_dashboard(
        "opwatch-fleet",
        "opwatch: fleet",
        [build_variable("model", "Model", "label_values(opwatch_drive_info, model)", many=True), _WINDOW],
        [
            ("Fleet", _list_fleet_stats()),
            ("Latency", _list_fleet_latency()),
            ("Wear", _list_fleet_wear()),
            ("Trims and trust", _list_fleet_trust()),
        ],
    )


def _list_host_requests() -> list[Panel]:
    """Return the panels about requests."""
    return [
        Panel(
            "timeseries",
            "Requests per second",
            (Query(query_requests(OF_HOST, "device, op"), "{{device}} {{op}}"),),
            "iops",
        ),
        Panel(
            "timeseries",
            "Bytes per second",
            (
                Query(
                    f"sum by (device, op) (rate(opwatch_io_bytes_total{{{OF_HOST}}}[$__rate_interval]))",
                    "{{device}} {{op}}",
                ),
            ),
            "Bps",
        ),
        Panel("timeseries", "Queue depth", (Query(query_queue_depth(OF_HOST, "device"), "{{device}}"),)),
        Panel(
            "timeseries",
            "p99 of reads",
            (Query(query_quantile(0.99, f'{OF_HOST},op="read"', "device"), "{{device}}"),),
            "s",
        ),
        Panel(
            "timeseries",
            "p99 of writes",
            (Query(query_quantile(0.99, f'{OF_HOST},op="write"', "device"), "{{device}}"),),
            "s",
        ),
        Panel(
            "timeseries",
            "Errors per hour",
            (
                Query(
                    f"sum by (device, op) (increase(opwatch_io_errors_total{{{OF_HOST}}}[1h]))",
                    "{{device}} {{op}}",
                ),
            ),
        ),
    ]


def _list_host_owners() -> list[Panel]:
    """Return the panels about control groups."""
    return [
        Panel(
            "timeseries",
            "Bytes per second by control group",
            (Query(f"topk(10, {query_owners(OF_HOST)})", "{{cgroup}}"),),
            "Bps",
            "Needs --by cgroup. Join pod_uid with kube_pod_info for names of pods.",
            12,
        ),
        Panel(
            "table",
            "Pods and containers",
            (
                Query(
                    "sum by (cgroup, pod_uid, container_id) "
                    f"(increase(opwatch_owner_io_bytes_total{{{OF_HOST}}}[$__range]))"
                ),
            ),
            "bytes",
            width=12,
        ),
    ]


def _list_host_drives() -> list[Panel]:
    """Return the panels about drives and trims."""
    return [
        Panel(
            "timeseries",
            "Write amplification",
            (Query(query_waf(OF_HOST), "{{serial}}"),),
            description=_WAF_NOTE,
        ),
        Panel(
            "timeseries",
            "Temperature",
            (Query(f"opwatch_temperature_celsius{{{OF_HOST}}}", "{{device}}"),),
            "celsius",
        ),
        Panel(
            "table",
            "Drives",
            (Query(f"opwatch_drive_info{{{OF_HOST}}}"),),
            hidden=("Value", "wwid", "instance"),
        ),
        Panel(
            "table",
            "Last trim checks",
            (Query(f"opwatch_trim_verdict{{{OF_HOST}}}"),),
            hidden=("Value", "instance"),
        ),
        Panel(
            "timeseries",
            "Free space that drives hold as data",
            (Query(f"opwatch_stale_bytes{{{OF_HOST}}}", "{{mountpoint}} {{bound}}"),),
            "bytes",
        ),
        make_untrusted(OF_HOST),
    ]


def _list_host_exporter() -> list[Panel]:
    """Return the panels about the exporter."""
    return [
        make_stat("Age of the sample", f"opwatch_exporter_sample_age_seconds{{{OF_HOST}}}", "s"),
        make_stat("Resident memory", f"opwatch_exporter_resident_memory_bytes{{{OF_HOST}}}", "bytes"),
        make_stat(
            "CPU", f"rate(opwatch_exporter_cpu_seconds_total{{{OF_HOST}}}[$__rate_interval])", "percentunit"
        ),
        make_stat("Up for", f"time() - opwatch_exporter_start_timestamp_seconds{{{OF_HOST}}}", "s"),
        Panel(
            "stat",
            "Version",
            (Query(f"opwatch_exporter_build_info{{{OF_HOST}}}", "{{version}}"),),
            width=4,
            height=4,
            text="name",
        ),
        Panel(
            "stat",
            "Broker answers",
            (Query(f"opwatch_exporter_broker_up{{{OF_HOST}}}"),),
            "bool_yes_no",
            width=4,
            height=4,
            nothing="not used",
        ),
    ]


def build_host() -> Json:
    """Return the dashboard of one host."""
    host = build_variable("host", "Host", "label_values(opwatch_watched, instance)")
    rows = [
        ("Requests", _list_host_requests()),
        ("Owners", _list_host_owners()),
        ("Drives and trims", _list_host_drives()),
        ("Exporter", _list_host_exporter()),
    ]
    return build_dashboard("opwatch-host", "opwatch: host", [host, _WINDOW], rows)


def _list_drive_latency() -> list[Panel]:
    """Return the panels about latency."""
    latency = [
        Panel("heatmap", f"Latencies of {op}s", (Query(query_heat(f'{OF_DRIVE},op="{op}"')),), "s", width=12)
        for op in ("read", "write")
    ]
    latency += [
        Panel(
            "timeseries",
            f"Quantiles of {op}s",
            tuple(
                Query(query_quantile(q, f'{OF_DRIVE},op="{op}"'), name)
                for q, name in ((0.5, "p50"), (0.99, "p99"), (0.999, "p99.9"))
            ),
            "s",
        )
        for op in ("read", "write")
    ]
    latency.append(Panel("timeseries", "Queue depth", (Query(query_queue_depth(OF_DRIVE, "op"), "{{op}}"),)))
    return latency


def _list_drive_health() -> list[Panel]:
    """Return single values about endurance, spare and health."""
    end = f"1000 * opwatch_endurance_end_timestamp_seconds{{{OF_DRIVE}}}"
    return [
        Panel(
            "stat",
            "Rated endurance ends",
            (Query(end, "{{bound}}"),),
            "dateTimeFromNow",
            width=6,
            height=4,
            description="Not before the early and not after the late bound, at the average pace of its life.",
        ),
        Panel(
            "stat",
            "Endurance used",
            (Query(f"opwatch_endurance_used_ratio{{{OF_DRIVE}}}"),),
            "percentunit",
            width=3,
            height=4,
            steps=((1.0, "orange"),),
        ),
        Panel(
            "stat",
            "Spare and its threshold",
            (
                Query(f"opwatch_spare_ratio{{{OF_DRIVE}}}", "spare"),
                Query(f"opwatch_spare_threshold_ratio{{{OF_DRIVE}}}", "threshold"),
            ),
            "percentunit",
            width=6,
            height=4,
        ),
        Panel(
            "stat",
            "Temperature",
            (Query(f"opwatch_temperature_celsius{{{OF_DRIVE}}}"),),
            "celsius",
            width=3,
            height=4,
        ),
        Panel(
            "stat",
            "Media errors",
            (Query(f"opwatch_media_errors_total{{{OF_DRIVE}}}"),),
            width=3,
            height=4,
            steps=((1.0, "red"),),
        ),
        Panel(
            "stat",
            "Counters read",
            (Query(f"time() - opwatch_firmware_read_timestamp_seconds{{{OF_DRIVE}}}"),),
            "s",
            "Age of the drive's counters.",
            3,
            4,
        ),
    ]


def _list_drive_wear() -> list[Panel]:
    """Return the panels about write amplification and wear."""
    return [
        Panel(
            "timeseries",
            "Write amplification with its error",
            (
                Query(query_waf(OF_DRIVE, -1), "at least"),
                Query(query_waf(OF_DRIVE), "ratio"),
                Query(query_waf(OF_DRIVE, 1), "at most"),
            ),
            description=f"{_WAF_NOTE} The bounds come from the steps of both counters.",
            width=12,
        ),
        Panel(
            "timeseries",
            "Bytes of host and NAND per second",
            (
                Query(
                    f"rate(opwatch_host_written_bytes_total{{{OF_DRIVE}}}[$waf_window])", "host, {{source}}"
                ),
                Query(f"rate(opwatch_media_written_bytes_total{{{OF_DRIVE}}}[$waf_window])", "NAND"),
            ),
            "Bps",
            width=12,
        ),
        *_list_drive_health(),
    ]


def _list_drive_trust() -> list[Panel]:
    """Return the panels about trust, owners and trims."""
    return [
        make_untrusted(OF_DRIVE),
        Panel(
            "table",
            "Critical warnings",
            (Query(f"opwatch_critical_warning{{{OF_DRIVE}}}"),),
            hidden=("instance", "device", "serial"),
        ),
        Panel(
            "timeseries",
            "Bytes per second by control group",
            (Query(query_owners(OF_DRIVE), "{{cgroup}}"),),
            "Bps",
            "Needs --by cgroup.",
            12,
        ),
        Panel(
            "timeseries",
            "Trims lost per hour, all filesystems of the host",
            (
                Query(
                    f"sum by (mountpoint, reason) (increase(opwatch_trim_lost_bytes_total{{{OF_HOST}}}[1h]))",
                    "{{mountpoint}}: {{reason}}",
                ),
            ),
            "bytes",
            width=12,
        ),
        Panel(
            "table",
            "Drive",
            (Query(f"opwatch_drive_info{{{OF_DRIVE}}}"),),
            hidden=("Value", "instance"),
            width=WIDTH,
            height=4,
        ),
    ]


def build_drive() -> Json:
    """Return the dashboard of one drive."""
    return build_dashboard(
        "opwatch-drive",
        "opwatch: drive",
        [
            build_variable("host", "Host", "label_values(opwatch_watched, instance)"),
            build_variable("device", "Device", 'label_values(opwatch_watched{instance="$host"}, device)'),
            _WINDOW,
        ],
        [
            ("Latency", _list_drive_latency()),
            ("Wear", _list_drive_wear()),
            ("Trust, owners, trims", _list_drive_trust()),
        ],
    )


def build_all() -> dict[str, str]:
    """Return the text of each file by its name."""
    built = (build_fleet(), build_host(), build_drive())
    return {f"{dashboard['uid']}.json": json.dumps(dashboard, indent=1) + "\n" for dashboard in built}


def main() -> int:
    stale = [name for name, text in build_all().items() if _read(name) != text]
    if "--write" in sys.argv[1:]:
        FOLDER.mkdir(parents=True, exist_ok=True)
        for name, text in build_all().items():
            (FOLDER / name).write_text(text)
        return 0
    print(*(f"{name} is out of date: run with --write" for name in stale), sep="\n")
    return int(bool(stale))


def _read(name: str) -> str | None:
    path = FOLDER / name
    return path.read_text() if path.exists() else None


if __name__ == "__main__":
    sys.exit(main())
