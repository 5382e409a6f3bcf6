"""Servers store what the fleet counts: Prometheus by protobuf, VictoriaMetrics by text.

make test-fleet
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from opwatch.trace.hist import Histogram
from tests.requirements import skip_or_fail

from .drives import EXACT
from .engines import EngineMissingError, Server, find_free_port, find_program, run_prometheus, run_server
from .plan import make_fleet
from .server import FleetServer, serve_fleet

SCRAPE_S = 2
QUANTILE = 0.999


@contextmanager
def run_victoria(folder: Path, config: str) -> Iterator[Server]:
    """Run VictoriaMetrics, which scrapes by itself."""
    port = find_free_port()
    (folder / "scrape.yml").write_text(config)
    argv = [
        find_program("victoria-metrics"),
        f"-promscrape.config={folder / 'scrape.yml'}",
        f"-storageDataPath={folder / 'data'}",
        f"-httpListenAddr=127.0.0.1:{port}",
        "-search.latencyOffset=0s",
    ]
    with run_server(argv, port, folder / "victoria.log", "/health") as server:
        yield server


def wait_until_equal(server: Server, fleet: FleetServer) -> int:
    """Freeze the fleet and return its number of reads when the server has all of them."""
    fleet.freeze()
    wanted = sum(sum(host.count_exact_reads().values()) for host in fleet.hosts)
    query = (
        'sum(histogram_count(opwatch_io_duration_seconds{op="read"})) '
        'or sum(opwatch_io_duration_seconds_count{op="read"})'
    )
    if "victoria" in str(server.process.args):
        query = 'sum(opwatch_io_duration_seconds_count{op="read"})'
    stored: list[str] = []
    for _ in range(60):
        stored = [one["value"][1] for one in server.query(query)]
        if stored == [str(wanted)]:
            return wanted
        time.sleep(0.5)
    raise AssertionError(f"{wanted} reads, and the server has {stored}")


def find_true_quantile(fleet: FleetServer) -> float:
    """Return the quantile of all reads in seconds."""
    exact: Counter[int] = Counter()
    for host in fleet.hosts:
        exact.update(host.count_exact_reads())
    truth = Histogram(EXACT, [exact[slot] for slot in range(EXACT.slots)]).find_quantile(QUANTILE)
    assert truth
    return truth.value / 1e9


def require_program(name: str) -> None:
    try:
        find_program(name)
    except EngineMissingError as error:
        skip_or_fail("fleet", str(error))


@pytest.mark.parametrize("is_native", [True, False])
def test_prometheus_has_every_request_and_the_quantile(tmp_path: Path, is_native: bool) -> None:
    require_program("prometheus")
    options = ("--enable-feature=native-histograms",) if is_native else ()
    reads = 'opwatch_io_duration_seconds{op="read"}'
    merged = f"sum({reads})" if is_native else f"sum by (le) ({reads.replace('{', '_bucket{')})"
    with (
        serve_fleet(make_fleet(3, n_hosts=4, n_disks=4, begin_s=time.time())) as fleet,
        run_prometheus(tmp_path, fleet.make_scrape_config(SCRAPE_S), *options) as server,
    ):
        time.sleep(2 * SCRAPE_S)
        assert wait_until_equal(server, fleet) > 10_000
        found = float(server.query(f"histogram_quantile({QUANTILE}, {merged})")[0]["value"][1])
    # A native bucket is 9 % wide, a classic one 41 %.
    assert found == pytest.approx(find_true_quantile(fleet), rel=0.02 if is_native else 0.2)


def test_victoria_metrics_has_every_request_and_the_quantile(tmp_path: Path) -> None:
    require_program("victoria-metrics")
    merged = 'sum by (le) (opwatch_io_duration_seconds_bucket{op="read"})'
    with (
        serve_fleet(make_fleet(3, n_hosts=4, n_disks=4, begin_s=time.time())) as fleet,
        run_victoria(tmp_path, fleet.make_scrape_config(SCRAPE_S)) as server,
    ):
        time.sleep(2 * SCRAPE_S)
        assert wait_until_equal(server, fleet) > 10_000
        found = float(server.query(f"histogram_quantile({QUANTILE}, {merged})")[0]["value"][1])
    assert found == pytest.approx(find_true_quantile(fleet), rel=0.2)
