"""`python -m tests.bench.fleet_parquet_bench`: the history of 1,000 hosts with 8 disks in three engines.

The question is the 99.9th percentile of reads by model and firmware, in five minutes. The answers must be the
same slots. Engines that are not installed are left out. DuckDB also answers the question about reads and
writes, which are twice the rows, and that about reads from one file in the order of compact.sql.
"""

from __future__ import annotations

import importlib.util
import re
import resource
import sys
import tempfile
from pathlib import Path

import duckdb

from tests.fleet.engines import Row, compare_answers, open_engine, read_statements
from tests.fleet.parquet_fleet import FleetPlan, make_fleet

from .figure import Figure, choose_exit_status, choose_size, format_table

HOSTS, DISKS = choose_size((1000, 8), (10, 2))
READS, READS_AND_WRITES = "op = 'read'", "op IN ('read', 'write')"
MAX_CPU_S, MAX_DIFFERENCES = 1.0, 0
ENGINES = {"clickhouse": "chdb", "spark": "pyspark"}


def _read_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def ask_duckdb(folder: Path, only: str) -> tuple[list[Row], float]:
    """Return DuckDB's answer, and its CPU time in seconds."""
    with open_engine("duckdb", folder) as engine:
        engine.ask("trim_lost")  # Load what each first question loads.
        begun = _read_cpu_s()
        answer = engine.ask("latency", only)
        return answer, _read_cpu_s() - begun


def compact_fleet(folder: Path, target: Path) -> None:
    """Write all rows to one shard, in the order of compact.sql."""
    [statement] = read_statements("compact")
    [order] = re.findall(r"ORDER BY shard, (.*)", statement)
    [size] = re.findall(r"ROW_GROUP_SIZE \d+", statement)
    shard = target / "day=2026-11-29" / "shard=00"
    shard.mkdir(parents=True)
    duckdb.execute(
        f"COPY (FROM read_parquet('{folder}/*/*/*.parquet', hive_partitioning = false) ORDER BY {order}) "
        f"TO '{shard}/compacted.parquet' (FORMAT parquet, COMPRESSION zstd, {size})"
    )


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "fleet"
        make_fleet(folder, FleetPlan(HOSTS, DISKS, rows=5, row_s=60, seed=1, has_histograms=True))
        size = sum(path.stat().st_size for path in folder.rglob("*.parquet"))
        wanted, seconds = ask_duckdb(folder, READS)
        _, both_s = ask_duckdb(folder, READS_AND_WRITES)
        compact_fleet(folder, Path(name) / "compacted")
        compacted, compacted_s = ask_duckdb(Path(name) / "compacted", READS)
        rows, question = HOSTS * DISKS * 5, f"p99.9 of {HOSTS} hosts x {DISKS} disks in DuckDB"
        text = f"s of CPU; {rows} rows of reads; the fleet has {size / 1e6:.0f} MB"
        figures = [
            Figure(question, seconds, MAX_CPU_S, text),
            Figure(f"{question}, compacted", compacted_s, MAX_CPU_S, "s of CPU"),
            Figure(f"{question}, reads and writes", both_s, 2 * MAX_CPU_S, f"s of CPU; {2 * rows} rows"),
            Figure("different answers after compaction", len(compare_answers(wanted, compacted)), 0, ""),
        ]
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
