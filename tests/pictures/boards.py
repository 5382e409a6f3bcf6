"""Draw the dashboards of tools/deploy/grafana with the plots of reports.

    python -m tests.pictures.boards

A day of a fleet is simulated in virtual time and imported into a real Prometheus, which answers every panel's
queries. The pages go to build/pictures, the pictures also to docs/pictures.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from itertools import count
from pathlib import Path
from typing import TextIO

from opwatch.metrics.text import TextEncoder
from opwatch.tools.pictures.browser import Browser, find_browser
from tests.fleet.scrape.alerts import import_text
from tests.fleet.scrape.answers import add_exporter, add_owners, build_samples
from tests.fleet.scrape.dashboards import FOLDER
from tests.fleet.scrape.engines import run_prometheus
from tests.fleet.scrape.plan import DAY_S, HOUR_S, MODELS, DrivePlan, FaultKind, FleetPlan, make_fleet
from tests.fleet.scrape.replay import HostReplay
from tests.tracked import ROOT

from .board_page import Board, render_board

KEPT, ALL = ROOT / "docs" / "pictures", ROOT / "build" / "pictures"
# Before the day, so that differences over six hours exist from its start.
_WARM_UP_S, _STEP_S = 6 * HOUR_S, 600
_BEGIN_S = 20_000 * DAY_S
_OPTIONS = ("--query.lookback-delta=12m",)
_WIDTH = 1240


def make_plan() -> FleetPlan:
    """Return the first fleet with a drive for the third dashboard."""
    plans = (
        make_fleet(
            seed,
            n_hosts=6,
            n_disks=3,
            begin_s=_BEGIN_S,
            days=1,
            faulty=1,
            fault_begin_s=_BEGIN_S + 8 * HOUR_S,
        )
        for seed in count()
    )
    return next(plan for plan in plans if find_drive(plan))


def find_drive(plan: FleetPlan) -> DrivePlan | None:
    """Return a busy drive with a jump of its write amplification and small steps of its counters, or None."""
    drives = plan.list_faulty(FaultKind.WAF_JUMP)
    return next((drive for drive in drives if drive.model is MODELS[0] and drive.share > 0.3), None)


def write_day(plan: FleetPlan, file: TextIO) -> None:
    """Write the answers to all scrapes as OpenMetrics text with timestamps, series by series."""
    for host_plan in plan.hosts:
        host = HostReplay(host_plan, _BEGIN_S - _WARM_UP_S, has_histograms=True)
        encoder = TextEncoder(is_openmetrics=False)
        series = dict[str, list[str]]()
        for now_s in range(_BEGIN_S - _WARM_UP_S, _BEGIN_S + DAY_S + 1, _STEP_S):
            if not host.advance(now_s):
                continue
            samples = build_samples(host.drives)
            add_owners(samples, host.drives)
            add_exporter(samples, _BEGIN_S)
            for line in encoder.encode(samples).decode().splitlines():
                if not line.startswith("#"):
                    name, _, value = line.rpartition(" ")
                    series.setdefault(name, []).append(f"{value} {now_s}\n")
        for name, values in series.items():
            stem, _, labels = name.rstrip("}").partition("{")
            whole = f'{stem}{{job="opwatch",instance="{host_plan.name}"{"," if labels else ""}{labels}}} '
            file.writelines(whole + value for value in values)
    file.write("# EOF\n")


def draw_boards(chromium: Browser, everything: Path, kept: Path) -> None:
    """Draw every dashboard of the simulated day."""
    plan = make_plan()
    drive = find_drive(plan)
    assert drive
    values = {
        "host": drive.host,
        "device": drive.device,
        "model": ".*",
        "waf_window": "6h",
        "__rate_interval": f"{4 * _STEP_S}s",
        "__range": "24h",
    }
    with tempfile.TemporaryDirectory(prefix="opwatch-") as name:
        folder = Path(name)
        with (folder / "day.txt").open("w") as file:
            write_day(plan, file)
        import_text(folder / "day.txt", folder / "data")
        with run_prometheus(folder, "scrape_configs: []\n", *_OPTIONS) as server:
            for path in sorted(FOLDER.glob("*.json")):
                board = Board(
                    json.loads(path.read_text()), server, values, _BEGIN_S, _BEGIN_S + DAY_S, _STEP_S
                )
                page = everything / f"{path.stem}.html"
                page.write_text(render_board(board))
                picture = everything / f"{path.stem}.png"
                chromium.write_picture(page, picture, _WIDTH, None)
                shutil.copy(picture, kept / picture.name)


if __name__ == "__main__":
    ALL.mkdir(parents=True, exist_ok=True)
    draw_boards(find_browser(), ALL, KEPT)
