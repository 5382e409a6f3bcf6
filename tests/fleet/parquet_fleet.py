"""A simulated fleet as a Parquet data set in the columns of opwatch, made by SQL, and the truth about it.

Loads differ by host and hour. Latency grows with the load, differs from drive to drive, and has noise. A few
drives are slow, have a jump in write amplification, or lose their trims, and one firmware of one model has a
longer tail. The questions in tools/deploy/sql must find exactly these.
"""

from __future__ import annotations

import importlib
import json
import math
import random
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from opwatch.sinks.export.table import COLUMNS, SORT_COLUMNS
from opwatch.trace.abi import LATENCY

MODELS = ("ACME 1T", "ACME 2T", "Borg QLC", "Cyan Pro")
BAD_MODEL, GOOD_FIRMWARE, BAD_FIRMWARE = "Cyan Pro", "FW1", "FW2-BAD"
# 2026-11-29 00:00:00 UTC.
_BEGIN_S = 1795910400
# Counts of a request's latency, in slots relative to that of the mean: two slopes, so a median and a tail.
_SLOTS = range(-110, 175)
REASONS = ("discards fail", "discards miss the granule", "no discard arrives")


@dataclass(frozen=True)
class FleetPlan:
    """The size of a fleet, its rows, and how many of its drives have each problem."""

    hosts: int
    disks: int
    rows: int
    row_s: int = 900
    seed: int = 1
    slow: int = 0
    jumps: int = 0
    lost: int = 0
    has_histograms: bool = False
    has_bad_firmware: bool = False


@dataclass(frozen=True)
class FleetTruth:
    """The drives with a problem as (host, device), and what the problem is."""

    slow: dict[tuple[str, str], float] = field(default_factory=dict)
    jumps: set[tuple[str, str]] = field(default_factory=set)
    lost: dict[tuple[str, str], str] = field(default_factory=dict)

    def save(self, path: Path) -> None:
        """Write the truth as JSON, with lists instead of pairs."""
        whole = asdict(self)
        path.write_text(
            json.dumps(
                {
                    name: sorted([*drive, value] for drive, value in drives.items())
                    if isinstance(drives, dict)
                    else sorted(map(list, drives))
                    for name, drives in whole.items()
                }
            )
        )


def choose_truth(plan: FleetPlan) -> FleetTruth:
    """Choose drives with problems at random, none with two."""
    chance = random.Random(plan.seed)
    drives = [(f"host{host:05}", f"nvme{disk}n1") for host in range(plan.hosts) for disk in range(plan.disks)]
    chosen = chance.sample(drives, plan.slow + plan.jumps + plan.lost)
    slow, rest = chosen[: plan.slow], chosen[plan.slow :]
    return FleetTruth(
        {drive: chance.uniform(1.6, 4) for drive in slow},
        set(rest[: plan.jumps]),
        {drive: chance.choice(REASONS) for drive in rest[plan.jumps :]},
    )


def _weigh_slot(relative: int) -> float:
    return math.exp(-0.5 * (relative / 28) ** 2) + 0.004 * math.exp(-abs(relative) / 45)


# Noise: `u(k)` and `z(k)` are uniform and normal for a key. Terms: the drive, the host, the row.
_MACROS = """
CREATE MACRO u(key) AS (hash(key, {seed}) % 1000003 + 0.5) / 1000003.0;
CREATE MACRO z(key) AS sqrt(-2 * ln(u(key || 'a'))) * cos(2 * pi() * u(key || 'b'));
"""
_DRIVES = """
CREATE TABLE drives AS
SELECT printf('host%05d', h) AS host, printf('nvme%dn1', d) AS device, h, d,
  {models}[1 + CAST(hash('model' || h, {seed}) % {model_count} AS INTEGER)] AS model,
  printf('S%05d%d', h, d) AS serial, 1000000000000 AS capacity_bytes
FROM range({hosts}) AS hosts(h), range({disks}) AS disks(d);
ALTER TABLE drives ADD COLUMN firmware VARCHAR;
UPDATE drives SET firmware =
  CASE WHEN {bad} AND model = '{bad_model}' AND hash('firmware' || h, {seed}) % 3 = 0
  THEN '{bad_firmware}' ELSE '{firmware}' END;
CREATE TABLE problems (host VARCHAR, device VARCHAR, factor DOUBLE, jump BOOLEAN, lost VARCHAR);
"""
# The load law of a queue: latency rises as 1 + a u / (1 - u) with the utilization u.
_LOADS = """
CREATE TABLE loads AS
WITH shares AS (
  SELECT d.*, op, t, p.factor, coalesce(p.jump, false) AS jump, p.lost,
    greatest(0.02, least(0.93,
      0.1 + 0.5 * u('host' || h) * (1 + sin(2 * pi() * (t * {row_s} / 86400.0 + u('phase' || h))))
      + 0.06 * z('hour' || h || '-' || CAST(floor(t * {row_s} / 3600) AS BIGINT))
      + 0.03 * z('row' || h || '-' || d.d || '-' || t))) AS busy,
    CASE WHEN h % 3 = 0 THEN 8192 WHEN h % 3 = 1 THEN 65536 ELSE 262144 END AS size
  FROM drives AS d CROSS JOIN range({rows}) AS times(t)
    CROSS JOIN (VALUES ('read'), ('write')) AS ops(op)
    LEFT JOIN problems AS p ON p.host = d.host AND p.device = d.device
)
SELECT *,
  greatest(100, CAST({row_s} * busy * CASE op WHEN 'read' THEN 3000 ELSE 600 END AS BIGINT)) AS wanted,
  CASE op WHEN 'read' THEN 90000 ELSE 30000 END * (1 + 0.3 * length(model))
    * (1 + {law} * busy / (1 - busy)) * exp(0.07 * z('drive' || h || '-' || d))
    * exp(0.06 * z('noise' || h || '-' || d || '-' || t || op)) * coalesce(factor, 1) AS mean_ns
FROM shares;
"""
_HISTOGRAMS = """
CREATE TABLE measured AS
WITH placed AS (
  SELECT *, CAST(floor(log2(mean_ns)) AS INTEGER) AS octave FROM loads
), counted AS (
  SELECT *, list_filter(list_transform(range({slot_count}), lambda i: {{
      'slot': CAST((octave - 4) * 32 + CAST(floor((mean_ns / pow(2, octave) - 1) * 32) AS INTEGER)
        + {first_slot} + CAST(i AS INTEGER)
        + CASE WHEN firmware = '{bad_firmware}' AND i > 210 THEN 30 ELSE 0 END AS INTEGER),
      'count': CAST(round(wanted * {weights}[i + 1]) AS BIGINT)}}), lambda hit: hit.count > 0) AS latency
  FROM placed
)
SELECT *, CAST(list_sum(list_transform(latency, lambda hit: hit.count)) AS BIGINT) AS requests FROM counted;
"""
_PLAIN = """
CREATE TABLE measured AS
SELECT *, wanted AS requests, CAST([] AS STRUCT(slot INTEGER, count BIGINT)[]) AS latency FROM loads;
"""
# Counters in steps, from bytes so far. A jump triples the write amplification in the last third.
_COUNTED = """
CREATE TABLE counted AS
SELECT *, requests * size AS bytes,
  CASE WHEN size < 16384 THEN 3.0 WHEN size < 131072 THEN 1.8 ELSE 1.1 END
    * CASE WHEN jump AND t >= {rows} * 2 / 3 THEN 3 ELSE 1 END AS waf
FROM measured;
CREATE TABLE totals AS
SELECT host, device, t, 5e13 + sum(bytes) OVER so_far AS host_total,
  1e14 + sum(bytes * waf) OVER so_far AS media_total
FROM counted WHERE op = 'write'
WINDOW so_far AS (PARTITION BY host, device ORDER BY t);
"""
_VALUES = {
    "recording": "'flight'",
    "host": "host",
    "machine_id": "md5(host)",
    "boot_id": "md5('boot' || host)",
    "opwatch_version": "'0.1'",
    "device": "device",
    "origin": "device",
    "model": "model",
    "serial": "serial",
    "firmware": "firmware",
    "capacity_bytes": "capacity_bytes",
    "op": "op",
    "time": "make_timestamp(({begin_s} + (t + 1) * {row_s} - 1) * 1000000)",
    "end_mono_ns": "(t + 1) * {row_s} * 1000000000",
    "begin_mono_ns": "t * {row_s} * 1000000000",
    "interval_s": "{row_s}",
    "requests": "requests",
    "bytes": "bytes",
    "errors": "errors",
    "issued": "requests",
    "mean_ns": "mean_ns",
    "latency": "latency",
    "sizes": "[]",
    "whole_granule_bytes": "whole_bytes",
    "host_bytes": "CAST(floor(host_total / 512000) AS BIGINT) * 512000",
    "host_quantum_bytes": "CASE WHEN host_total IS NOT NULL THEN 512000 END",
    "media_bytes": "CAST(floor(media_total / 1048576) AS BIGINT) * 1048576",
    "media_quantum_bytes": "CASE WHEN media_total IS NOT NULL THEN 1048576 END",
    "used_percent": "CAST(floor(media_total / 1e13) AS BIGINT)",
    "unexplained": "0",
    "lacks": "[]",
}
_COPY = """
COPY (
  WITH every AS (
    SELECT c.*, 0 AS errors, CAST(NULL AS BIGINT) AS whole_bytes, n.host_total, n.media_total
    FROM counted AS c LEFT JOIN totals AS n
      ON c.op = 'write' AND n.host = c.host AND n.device = c.device AND n.t = c.t
    UNION ALL BY NAME
    SELECT host, device, h, d, model, serial, capacity_bytes, firmware, 'discard' AS op, t,
      CASE WHEN lost = 'no discard arrives' THEN 0 ELSE 20 END AS requests,
      CASE WHEN lost = 'no discard arrives' THEN 0 ELSE CAST(bytes / 10 AS BIGINT) END AS bytes,
      CASE WHEN lost = 'discards fail' THEN 3 ELSE 0 END AS errors,
      CASE lost WHEN 'no discard arrives' THEN 0
        WHEN 'discards miss the granule' THEN CAST(bytes / 50 AS BIGINT)
        ELSE CAST(bytes / 10 AS BIGINT) END AS whole_bytes,
      1e6 AS mean_ns, CAST([] AS STRUCT(slot INTEGER, count BIGINT)[]) AS latency
    FROM counted WHERE op = 'write'
  )
  SELECT {columns}, strftime({time}, '%Y-%m-%d') AS day, left(sha256(host), 2) AS shard
  FROM every ORDER BY {order}
) TO '{folder}' (
  FORMAT parquet, COMPRESSION zstd, PARTITION_BY (day, shard), ROW_GROUP_SIZE 20480, OVERWRITE_OR_IGNORE
)
"""


def make_fleet(folder: Path, plan: FleetPlan) -> FleetTruth:
    """Write a fleet below a new folder, with the truth beside it. Return the truth."""
    truth = choose_truth(plan)
    connection: Any = importlib.import_module("duckdb").connect(":memory:")
    connection.execute("SET threads = 2")
    weights = [_weigh_slot(relative) for relative in _SLOTS]
    values = {
        **asdict(plan),
        "models": list(MODELS),
        "model_count": len(MODELS),
        "bad": str(plan.has_bad_firmware).lower(),
        "bad_model": BAD_MODEL,
        "bad_firmware": BAD_FIRMWARE,
        "firmware": GOOD_FIRMWARE,
        "begin_s": _BEGIN_S,
        "law": 0.4 + 0.5 * random.Random(plan.seed).random(),
        "slot_count": len(_SLOTS),
        "first_slot": _SLOTS[0],
        "weights": "CAST(" + str([weight / sum(weights) for weight in weights]) + " AS DOUBLE[])",
        "folder": str(folder),
        "order": ", ".join(SORT_COLUMNS),
    }
    values["time"] = _VALUES["time"].format(**values)
    values["columns"] = ", ".join(
        f"CAST({_VALUES.get(name, 'NULL').format(**values)} AS {kind}) AS {name}"
        for name, kind in COLUMNS.items()
    )
    connection.execute(_MACROS.format(**values))
    connection.execute(_DRIVES.format(**values))
    for drive in {**truth.slow, **dict.fromkeys(truth.jumps), **truth.lost}:
        row = [*drive, truth.slow.get(drive, 1.0), drive in truth.jumps, truth.lost.get(drive)]
        connection.execute("INSERT INTO problems VALUES (?, ?, ?, ?, ?)", row)
    for text in (_LOADS, _HISTOGRAMS if plan.has_histograms else _PLAIN, _COUNTED, _COPY):
        connection.execute(text.format(**values))
    connection.close()
    truth.save(folder.with_name(f"{folder.name}.truth.json"))
    assert LATENCY.slots >= (_SLOTS[-1] + 30) + 32 * 20
    return truth
