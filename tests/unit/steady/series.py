"""Rounds of the simulated drive, with a steady state known from theory."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass

from opwatch.ftl import models
from opwatch.ftl.drive import Drive, Policy, Workload
from opwatch.steady.coverage import WriteSpread
from opwatch.steady.rounds import Round
from opwatch.steady.strict import VerdictInputs

_PAGE, _PAGES, _SUPERBLOCK = 4096, 1 << 17, 256
_IOPS = 1000.0


@dataclass(frozen=True)
class Series:
    """Random writes to a drive that was filled sequentially, or to a new drive. IOPS are those of a drive
    that only programs pages: inversely proportional to WAF. `noise` is the relative error of a tenth of the
    drive on a busy host."""

    op_ratio: float
    is_filled: bool
    round_ratio: float
    policy: Policy = Policy.GREEDY
    noise: float = 0.0

    @property
    def true_waf(self) -> float:
        alpha = 1 + self.op_ratio
        return (
            models.predict_greedy(alpha, _SUPERBLOCK)
            if self.policy is Policy.GREEDY
            else models.predict_fifo(alpha)
        )

    @property
    def true_iops(self) -> float:
        return _IOPS / self.true_waf

    def iter_rounds(self, drive_writes: float) -> Iterator[tuple[list[Round], VerdictInputs]]:
        """Yield all rounds so far and the basis of a verdict, after each round."""
        drive = Drive(
            {
                "user_bytes": _PAGES * _PAGE,
                "physical_bytes": round(_PAGES * (1 + self.op_ratio)) * _PAGE,
                "superblock_bytes": _SUPERBLOCK * _PAGE,
                "iu_bytes": _PAGE,
                "policy": self.policy,
                "gc_frontier": 0,
                "seed": 1,
            }
        )
        if self.is_filled:
            drive.fill_drive()
        pages = round(_PAGES * self.round_ratio)
        load, rounds, before = Workload(rng=1), list[Round](), drive.read_counters()
        draw, spread_of_time = random.Random(1), self.noise * math.sqrt(0.1 / self.round_ratio)
        while len(rounds) * self.round_ratio < drive_writes:
            drive.run_load(load, pages)
            now = drive.read_counters()
            nand = now["nand_write_bytes"] - before["nand_write_bytes"]
            waf = nand / (pages * _PAGE)
            slower = max(draw.gauss(1, spread_of_time), 0.1)
            rounds.append(Round(pages * _PAGE, slower * pages * waf / _IOPS, pages, waf * 1e5, nand))
            before = now
            spread = WriteSpread(now["valid_bytes"] / now["user_bytes"], 0.0, "model")
            yield rounds, VerdictInputs(_PAGES * _PAGE, now["physical_bytes"] - now["user_bytes"], spread)
