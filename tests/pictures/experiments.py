"""Draw pictures of published experiments from new runs.

The runs use virtual time at the published capacity, a small drive with real timing, and sets of drives.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from .drive_runs import ON_DRIVE, run_on_drive, run_on_sets

# Maps a scenario to the profile of the simulated drive, and more words.
_DIRECT = ("--set", "fsync_every=0", "--set", "round_s=5s", "--depth", "16")
_RUNS: Mapping[str, tuple[str, ...]] = {
    "write-saturation": ("intel-520-240",),
    "free-space": ("fusionio-duo-320",),
    "iometer-op10": ("wd-blue-1tb",),
    "untrimmed-cliff": ("intel-545s-256", *_DIRECT),
    "mixed-io": ("hard-disks",),
}
# Maps a picture in docs/seeds to a plot of the page.
_KEPT = {
    "seed-write-saturation.png": "saturation-2.png",
    "seed-free-space.png": "free-space.png",
    "seed-iometer-op10.png": "iometer.png",
    "seed-untrimmed-cliff.png": "untrimmed-cliff.png",
    "seed-mixed-io.png": "mixed.png",
}
_KEPT_OF_DRIVES = {
    "seed-write-saturation-drive.png": "saturation-2.png",
    "seed-free-space-drive.png": "free-space.png",
    "seed-iometer-op10-drive.png": "iometer.png",
    "seed-mixed-io-sets.png": "mixed.png",
}


def draw_experiments(run: Callable[..., None], everything: Path, kept: Path) -> None:
    """Run each scenario, draw all plots and pages below `everything`, and copy the published pictures to
    `kept`."""
    virtual, real = everything / "experiments", everything / "experiments-drive"
    for folder in (virtual, real):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    for scenario, words in _RUNS.items():
        run(
            "sweep",
            "run",
            "--scenario",
            scenario,
            "--virtual",
            *words,
            "-o",
            str(virtual / f"{scenario}.json"),
        )
    # Draw what a busy host cannot disturb before the runs on drives, which may not reach steady state.
    _draw(run, virtual, kept, _KEPT)
    for scenario in ON_DRIVE:
        (real / f"{scenario}.json").write_text(run_on_drive(scenario))
    (real / "mixed-io.json").write_text(run_on_sets())
    _draw(run, real, kept, _KEPT_OF_DRIVES)


def _draw(run: Callable[..., None], folder: Path, kept: Path, plots: Mapping[str, str]) -> None:
    """Draw the experiments of a folder, and copy the published pictures to `kept`."""
    documents = map(str, sorted(folder.glob("*.json")))
    run("report", *documents, "-o", str(folder / "page.html"), "--png", str(folder / "plots"))
    for name, plot in plots.items():
        shutil.copy(folder / "plots" / plot, kept / name)
