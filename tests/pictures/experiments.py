"""Pictures of published experiments, each from a run made now in virtual time, at its published capacity."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

# Scenario -> the drive that it is simulated on.
_RUNS = {
    "write-saturation": "intel-520-240",
    "free-space": "fusionio-duo-320",
    "iometer-op10": "wd-blue-1tb",
    "untrimmed-cliff": "intel-545s-256",
}
# What docs/seeds shows -> the plot of the page.
_KEPT = {
    "seed-write-saturation.png": "saturation-2.png",
    "seed-free-space.png": "free-space.png",
    "seed-iometer-op10.png": "iometer.png",
    "seed-untrimmed-cliff.png": "untrimmed-cliff.png",
}


def draw_experiments(run: Callable[..., None], everything: Path, kept: Path) -> None:
    """Run each, draw all plots and the page below `everything`, and copy what is shown to `kept`."""
    folder = everything / "experiments"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    files = []
    for scenario, profile in _RUNS.items():
        files.append(str(folder / f"{scenario}.json"))
        run("sweep", "run", "--scenario", scenario, "--virtual", profile, "-o", files[-1])
    run("report", *files, "-o", str(folder / "page.html"), "--png", str(folder / "plots"))
    for name, plot in _KEPT.items():
        shutil.copy(folder / "plots" / plot, kept / name)
