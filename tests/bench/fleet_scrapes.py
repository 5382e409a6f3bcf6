"""Measure one Prometheus that scrapes a simulated fleet, for docs/fleet-alerts.md.

    python -m tests.bench.fleet_scrapes [PROMETHEUS]

200 hosts with 8 disks are scraped every 10 seconds for 5 minutes: no scrape may be lost. At the end the fleet
stands still, and the 99.9th percentile of all reads is compared with the exact counts. PROMETHEUS is a server
to use instead of the one on PATH, for example a newer one.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from opwatch.trace.hist import Histogram
from tests.fleet.scrape.drives import EXACT
from tests.fleet.scrape.engines import Server, find_program, run_prometheus
from tests.fleet.scrape.plan import make_fleet
from tests.fleet.scrape.server import FleetServer, serve_fleet
from tests.section import Section

from .figure import Figure, choose_exit_status, choose_size, format_table

SECTION = Section("fleet-alerts.md", "scrapes")
HOSTS = choose_size(200, 2)
DISKS = 8
EVERY_S = choose_size(10, 2)
SPAN_S = choose_size(300, 10)
RATIO = 0.999
READS = 'opwatch_io_duration_seconds{op="read"}'


def measure_lost_scrapes(server: Server, begin_s: float, end_s: float) -> Figure:
    """Return the scrapes that failed or are missing, of all targets."""
    span_s = int(end_s - begin_s)
    series = server.query(f"sum_over_time(up[{span_s}s])", end_s)
    # A window contains at least this number of scrapes, whatever their phase.
    least = span_s // EVERY_S - 1
    failed = server.query(f"sum(count_over_time(up[{span_s}s]) - sum_over_time(up[{span_s}s]))", end_s)
    missing = sum(max(0, least - round(float(one["value"][1]))) for one in series)
    lost = max(round(float(failed[0]["value"][1])), missing) + least * (HOSTS - len(series))
    slowest = float(server.query("max(scrape_duration_seconds)", end_s)[0]["value"][1])
    return Figure(
        f"scrapes lost, {HOSTS} hosts with {DISKS} disks every {EVERY_S} s for {span_s} s",
        lost,
        0,
        f"slowest of the last round {slowest:.2f} s",
    )


def measure_memory(server: Server) -> Figure:
    """Return the resident memory of the server per series."""
    n_series = server.get("/api/v1/status/tsdb")["headStats"]["numSeries"]
    rss = server.read_rss_bytes()
    return Figure(
        "resident memory of Prometheus per series, KB",
        rss / n_series / 1000,
        6,
        f"{rss / 1e6:.0f} MB, {n_series:,} series, {n_series / HOSTS / DISKS:.0f} per disk",
    )


def measure_quantile(server: Server, fleet: FleetServer) -> Figure:
    """Return the error of the fleet's 99.9th percentile. The fleet must stand still."""
    found = float(server.query(f"histogram_quantile({RATIO}, sum({READS}))")[0]["value"][1])
    exact: Counter[int] = Counter()
    for host in fleet.hosts:
        exact.update(host.count_exact_reads())
    truth = Histogram(EXACT, [exact[slot] for slot in range(EXACT.slots)]).find_quantile(RATIO)
    assert truth
    error = abs(found * 1e9 / truth.value - 1)
    return Figure(
        f"error of p99.9 of {HOSTS * DISKS:,} disks, %",
        100 * error,
        2,
        f"{found * 1e3:.3f} ms, true {truth.value / 1e6:.3f} ms of {sum(exact.values()):,} reads",
    )


def read_version(program: str) -> str:
    """Return the version of a Prometheus, or "of an unknown version" if it was built without one."""
    done = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    version = re.search(r"version (\d\S*)", done.stdout + done.stderr)
    return version[1] if version else "of an unknown version"


def measure_server(program: str) -> list[Figure]:
    """Return the figures of one server."""
    is_old = read_version(program).startswith("2.")
    options = ("--enable-feature=native-histograms",) if is_old else ()
    extra = "" if is_old else "    scrape_native_histograms: true\n"
    plan = make_fleet(1, n_hosts=HOSTS, n_disks=DISKS, begin_s=time.time() - 1800)
    with tempfile.TemporaryDirectory() as folder, serve_fleet(plan) as fleet:
        config = fleet.make_scrape_config(EVERY_S, extra=extra)
        with run_prometheus(Path(folder), config, *options, program=program) as server:
            time.sleep(2 * EVERY_S)
            begin_s = time.time()
            time.sleep(SPAN_S)
            end_s = time.time()
            fleet.freeze()
            time.sleep(2.5 * EVERY_S)
            return [
                measure_lost_scrapes(server, begin_s, end_s),
                measure_memory(server),
                measure_quantile(server, fleet),
            ]


def main(arguments: list[str]) -> int:
    program = arguments[0] if arguments else find_program("prometheus")
    figures = measure_server(program)
    lines = [
        f"Measured by `make bench-fleet` with Prometheus {read_version(program)}.",
        "",
        *format_table(figures),
    ]
    print("\n".join(lines))
    if not arguments:
        SECTION.write_body("\n".join(lines))
    return choose_exit_status(holds=all(figure.is_within_bound for figure in figures))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
