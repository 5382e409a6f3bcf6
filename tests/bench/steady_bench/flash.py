"""Series of the second flash translation layer, ftl.c: skewed and uniform writes, four collectors."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from opwatch.steady.coverage import WriteSpread
from opwatch.steady.rounds import Round
from opwatch.steady.skew import UNIFORM, WritePart, merge_parts
from opwatch.steady.strict import VerdictInputs

from .series import MadeSeries

_UNIT, _IOPS = 4096, 1e5
_SOURCE = Path(__file__).with_name("ftl.c")
LOADS = ("uniform", "zipf", "hot 80/20", "hot 99/1")


@dataclass(frozen=True)
class FlashCase:
    """One drive and one workload. `drive_writes` include the part from which the true mean is computed."""

    load: str
    policy: str
    frontier: str
    spare_ratio: float
    is_scattered: bool
    theta: float
    round_ratio: float
    drive_writes: float
    seed: int
    units: int = 1 << 15
    pages: int = 64

    @property
    def name(self) -> str:
        zipf = f" {self.theta:.2f}" if self.load == "zipf" else ""
        where = " scattered" if self.is_scattered else ""
        return (
            f"{self.load}{zipf}{where}, {self.policy}, {self.frontier} frontier, "
            f"{100 * self.spare_ratio:.0f} % spare"
        )


def draw_case(seed: int) -> FlashCase:
    draw = random.Random(f"flash {seed}")
    load = LOADS[seed % len(LOADS)]
    return FlashCase(
        load=load,
        policy=draw.choice(("greedy", "fifo")),
        frontier=draw.choice(("common", "separate")),
        spare_ratio=draw.choice((0.07, 0.1, 0.15, 0.2, 0.28, 0.5)),
        is_scattered=draw.random() < 0.5,
        theta=draw.choice((0.5, 0.8, 0.99, 1.1, 1.3)),
        round_ratio=draw.choice((0.1, 0.25)),
        drive_writes={"uniform": 20.0, "hot 80/20": 40.0}.get(load, 120.0),
        seed=seed,
    )


def build_ftl(folder: Path) -> Path:
    """Compile the FTL, and return the path of the program."""
    target = folder / "steady-ftl"
    if not target.exists() or target.stat().st_mtime < _SOURCE.stat().st_mtime:
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(["cc", "-O2", "-Wall", "-Wextra", "-o", target, _SOURCE, "-lm"], check=True)
    return target


def run_case(program: Path, case: FlashCase) -> list[int]:
    """Return the pages programmed in each round."""
    kind, _, shares = case.load.partition(" ")
    hot, space = (float(share) / 100 for share in shares.split("/")) if shares else (case.theta, 0.0)
    words = [case.units, case.pages, case.spare_ratio, case.policy, case.frontier, kind, hot, space]
    words += ["scattered" if case.is_scattered else "ordered", case.round_ratio]
    words += [round(case.drive_writes / case.round_ratio), case.seed]
    done = subprocess.run([program, *map(str, words)], check=True, capture_output=True, text=True)
    return [int(line) for line in done.stdout.split()]


def find_parts(case: FlashCase) -> tuple[WritePart, ...]:
    """Return the shares of space and writes of a case, from its definition."""
    kind, _, shares = case.load.partition(" ")
    if kind == "zipf":
        weights = [rank**-case.theta for rank in range(1, case.units + 1)]
        return merge_parts(WritePart(1 / case.units, weight) for weight in weights)
    if not shares:
        return UNIFORM
    writes, space = (float(share) / 100 for share in shares.split("/"))
    return merge_parts((WritePart(space, writes), WritePart(1 - space, 1 - writes)))


def make_flash_series(case: FlashCase, pages: Sequence[int]) -> MadeSeries:
    """Return the rounds, with IOPS inversely proportional to WAF. The last third is the truth."""
    writes = round(case.units * case.round_ratio)
    draw = random.Random(case.seed)
    rounds = tuple(
        Round(
            writes * _UNIT, count / _IOPS * draw.gauss(1, 0.002), writes, count / writes * 1e5, count * _UNIT
        )
        for count in pages
    )
    spread = WriteSpread(1.0, 0.0 if case.load == "uniform" else None, "by definition", find_parts(case))
    ground = VerdictInputs(case.units * _UNIT, round(case.units * case.spare_ratio) * _UNIT, spread)
    last = rounds[-len(rounds) // 3 :]
    waf = sum(one.nand_bytes or 0 for one in last) / sum(one.host_bytes for one in last)
    return MadeSeries(case.load, case.name, rounds, ground, waf, _IOPS / waf)
