"""Share the NAND bytes of drives whose collector no model knows, and compare with the truth.

    python -m tests.bench.blame_bench [DRIVES [SEED]]

Each drive is shared by 2 to 4 owners with workloads of their own. The true share of an owner is its Shapley
value by separate runs of all coalitions on the same drive, with the data of absent owners in place. Fails if
less than 90 % of the drives, or of the owners, have their true shares within the bands, or if the median band
is wider than a quarter of its middle.
"""

from __future__ import annotations

import random
import statistics
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

from opwatch.blame.answer import Blame, ByteBand, blame_owners
from opwatch.errors import NotEnoughData
from tests.bench.figure import choose_exit_status, choose_size

from .tenants import OwnersTruth, draw_drive, measure_truth, record_history

_WITHIN, _MAX_WIDTH = 0.9, 0.25


@dataclass(frozen=True)
class Judged:
    """An owner's true NAND bytes and their band."""

    drive: int
    what: str
    name: str
    truth: float
    band: ByteBand
    nand: float

    @property
    def is_within(self) -> bool:
        return self.band.low <= self.truth <= self.band.high

    @property
    def width_ratio(self) -> float:
        return 2 * (self.band.high - self.band.low) / abs(self.band.high + self.band.low)

    def describe(self) -> str:
        """Return the truth and the band as shares of all NAND bytes."""
        low, truth, high = (one / self.nand for one in (self.band.low, self.truth, self.band.high))
        return f"{self.what} {self.name}: {truth:.3f}, band {low:.3f} to {high:.3f}"


def judge_drive(seed: int) -> list[Judged] | str:
    """Return the comparisons of a drive, or the reason why nothing is known."""
    case = draw_drive(seed)
    try:
        history, nand = record_history(case)
        blame = blame_owners(history, nand)
    except NotEnoughData as error:
        return f"{case.describe()}: {error}"
    if blame.refusal:
        return f"{case.describe()}: {blame.refusal}"
    truth = measure_truth(case, history.system.model.find_written())
    return list(compare_shares(seed, case.names, blame, truth))


def compare_shares(seed: int, names: list[str], blame: Blame, truth: OwnersTruth) -> list[Judged]:
    judged, nand = [], blame.nand.value
    for owner in blame.owners:
        at = names.index(owner.name)
        for what, share, band in (
            ("caused", truth.caused[at], owner.caused),
            ("moved for", truth.moved_for[at], owner.moved_for),
        ):
            assert band
            judged.append(Judged(seed, what, owner.name, share * nand, band, nand))
    return judged


def main() -> int:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else choose_size(40, 1)
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.SystemRandom().randrange(1 << 30)
    print(f"{count} drives, seed {seed}", flush=True)
    judged, refused = list[Judged](), 0
    with ProcessPoolExecutor(2) as pool:
        for number, result in zip(
            range(seed, seed + count), pool.map(judge_drive, range(seed, seed + count)), strict=True
        ):
            if isinstance(result, str):
                refused += 1
                print(f"refused: {result}", flush=True)
                continue
            judged += result
            outside = [one.describe() for one in result if not one.is_within]
            if outside:
                print(f"outside: {draw_drive(number).describe()}: {'; '.join(outside)}", flush=True)
    holds = [report(judged, what) for what in ("caused", "moved for")]
    print(f"{refused} of {count} drives refused")
    return choose_exit_status(holds=all(holds))


def report(judged: list[Judged], what: str) -> bool:
    """Print how many are within their bands, and how wide the bands are. Return whether the bounds hold."""
    some = [one for one in judged if one.what == what]
    drives = {one.drive for one in some}
    if not drives:
        print(f"{what}: nothing to compare")
        return False
    within = sum(one.is_within for one in some)
    whole = len(drives - {one.drive for one in some if not one.is_within})
    width = statistics.median(one.width_ratio for one in some)
    print(
        f"{what}: {within} of {len(some)} owners within the band ({100 * within / len(some):.1f} %), all "
        f"owners of {whole} of {len(drives)} drives ({100 * whole / len(drives):.1f} %), relative width: "
        f"median {100 * width:.1f} %"
    )
    return min(within / len(some), whole / len(drives)) >= _WITHIN and width <= _MAX_WIDTH


if __name__ == "__main__":
    sys.exit(main())
