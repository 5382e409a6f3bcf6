"""`python -m tests.bench.fleet_parquet_bench`: the history of 1,000 hosts with 8 disks in three engines.

The question is the 99.9th percentile of reads by model and firmware, in five minutes. The answers must be the
same slots. Engines that are not installed are left out.
"""

from __future__ import annotations

import importlib.util
import resource
import sys
import tempfile
from pathlib import Path

from tests.fleet.engines import compare_answers, open_engine
from tests.fleet.parquet_fleet import FleetPlan, make_fleet

from .figure import Figure, choose_exit_status, choose_size, format_table

HOSTS, DISKS = choose_size((1000, 8), (10, 2))
READS = "op = 'read'"
MAX_CPU_S, MAX_DIFFERENCES = 1.0, 0
ENGINES = {"clickhouse": "chdb", "spark": "pyspark"}


def _read_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "fleet"
        make_fleet(folder, FleetPlan(HOSTS, DISKS, rows=5, row_s=60, seed=1, has_histograms=True))
        size = sum(path.stat().st_size for path in folder.rglob("*.parquet"))
        with open_engine("duckdb", folder) as engine:
            engine.ask("trim_lost")  # Load what each first question loads.
            begun = _read_cpu_s()
            wanted = engine.ask("latency", READS)
            seconds = _read_cpu_s() - begun
        rows = HOSTS * DISKS * 5
        text = f"s of CPU; {rows} rows of reads; the fleet has {size / 1e6:.0f} MB"
        figures = [Figure(f"p99.9 of {HOSTS} hosts x {DISKS} disks in DuckDB", seconds, MAX_CPU_S, text)]
        for engine_name, module in ENGINES.items():
            if importlib.util.find_spec(module):
                with open_engine(engine_name, folder) as engine:
                    different = len(compare_answers(wanted, engine.ask("latency", READS)))
                text = f"of {len(wanted)} rows, compared with DuckDB"
                figures.append(
                    Figure(f"different answers in {engine_name}", different, MAX_DIFFERENCES, text)
                )
    print("\n".join(format_table(figures)))
    return choose_exit_status(holds=all(figure.is_within_bound for figure in figures))


if __name__ == "__main__":
    sys.exit(main())
