"""Fail-slow drives in ten fleets: who is found, and who is accused wrongly."""

from __future__ import annotations

import os
from pathlib import Path

from tests.fleet.engines import open_engine
from tests.fleet.parquet_fleet import FleetPlan, make_fleet

# Ten fleets, from this seed on.
SEED = int(os.environ.get("OPWATCH_SEED", "100"))
SEEDS = range(SEED, SEED + 10)
HOSTS, DISKS, SLOW = 500, 4, 20


def test_slow_drives_are_found_among_peers_at_the_same_load(tmp_path: Path) -> None:
    results = []
    for seed in SEEDS:
        folder = tmp_path / f"fleet{seed}"
        truth = make_fleet(folder, FleetPlan(HOSTS, DISKS, rows=96, seed=seed, slow=SLOW))
        with open_engine("duckdb", folder) as engine:
            accused = {(row["host"], row["device"]) for row in engine.ask("fail_slow")}
        found = len(accused & truth.slow.keys())
        missed = [f"{truth.slow[drive]:.2f}x" for drive in truth.slow.keys() - accused]
        results.append((seed, found, len(accused - truth.slow.keys())))
        print(f"seed {seed}: {found} of {SLOW} found, {results[-1][2]} false; missed {missed}")
    assert [result for result in results if result[1] < SLOW - 1 or result[2] > 1] == []
