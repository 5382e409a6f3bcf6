"""Every expression of the dashboards returns data from a Prometheus that scrapes the simulated fleet.

make test-fleet
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from tests.requirements import skip_or_fail

from .alerts import RULES
from .dashboards import FOLDER
from .engines import EngineMissingError, Server, find_program, run_prometheus
from .expressions import insert_variables, list_queries
from .plan import HOUR_S, MODELS, DrivePlan, FaultKind, FleetPlan, make_fleet
from .server import serve_fleet

SCRAPE_S = 2
# Long enough for ten scrapes in each rate, and for many page reads.
SETTLE_S = 60
# Lost trims are counted once per hour.
PAST_S = 3 * HOUR_S


@pytest.fixture(scope="module", params=["native", "classic"])
def scraped(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Server, FleetPlan]]:
    """A Prometheus that has scraped a fleet for a minute, with native histograms or classic buckets."""
    try:
        find_program("prometheus")
    except EngineMissingError as error:
        skip_or_fail("fleet", str(error))
    plan = make_fleet_with_lossy_drive()
    folder = tmp_path_factory.mktemp("prometheus")
    options = ("--enable-feature=native-histograms",) if request.param == "native" else ()
    with serve_fleet(plan, page_every_s=3, past_s=PAST_S) as fleet:
        config = f"rule_files: [{RULES}]\n" + fleet.make_scrape_config(SCRAPE_S)
        with run_prometheus(folder, config, *options) as server:
            time.sleep(SETTLE_S)
            yield server, plan


def find_lossy_drive(plan: FleetPlan) -> DrivePlan | None:
    """Return a busy drive that loses trims and counts NAND writes in small steps, or None."""
    drives = plan.list_faulty(FaultKind.LOST_TRIMS)
    return next((drive for drive in drives if drive.model is MODELS[0] and drive.share > 0.5), None)


def make_fleet_with_lossy_drive() -> FleetPlan:
    """Return the first fleet with a drive for every panel."""
    # Each fault has begun an hour after this moment.
    begin_s = time.time() - PAST_S
    plans = (make_fleet(seed, n_hosts=6, n_disks=3, begin_s=begin_s, faulty=1) for seed in count())
    return next(plan for plan in plans if find_lossy_drive(plan))


def list_drives_to_show(plan: FleetPlan) -> list[DrivePlan]:
    """Return the drive that loses trims, and one whose counter is refused: each query is for one of them."""
    drive = find_lossy_drive(plan)
    assert drive
    return [drive, *plan.list_faulty(FaultKind.UNTRUSTED)]


def build_values(drive: DrivePlan) -> dict[str, str]:
    """Return values of the variables of dashboards."""
    return {
        "host": drive.host,
        "device": drive.device,
        "model": ".*",
        "waf_window": "30s",
        "__rate_interval": "20s",
        "__range": "40s",
    }


@pytest.mark.parametrize("name", ["opwatch-fleet", "opwatch-host", "opwatch-drive"])
def test_every_expression_returns_data(scraped: tuple[Server, FleetPlan], name: str) -> None:
    server, plan = scraped
    dashboard: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    empty = [
        (title, expression)
        for title, expression, is_instant in list_queries(dashboard)
        if not any(
            run_query(server, insert_variables(expression, build_values(drive)), is_instant=is_instant)
            for drive in list_drives_to_show(plan)
        )
    ]
    assert empty == [], f"{len(empty)} of {len(list(list_queries(dashboard)))} without data"


def run_query(server: Server, query: str, *, is_instant: bool) -> list[dict[str, Any]]:
    """Return the series of a query, now or over the last ten seconds."""
    now_s = time.time()
    return server.query(query) if is_instant else server.query_range(query, now_s - 10, now_s, 5)
