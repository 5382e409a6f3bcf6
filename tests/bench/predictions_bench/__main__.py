"""Predict what changes do to systems that nobody tuned on, make the changes, and compare.

    python -m tests.bench.predictions_bench [SYSTEMS [SEED]]

Each system is a drive of an unknown collector, superblock size and spare area under a workload without an
end. The prediction knows a recording of it and the WAF that the drive reported; in the second column also the
drive's flash. Fails if less than 95 % of the measured WAFs are within the first band, or less than 90 %
within the second, or if the median band is wider than a quarter of its middle.
"""

from __future__ import annotations

import random
import statistics
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

from opwatch.errors import NotEnoughData
from opwatch.sweep.history.model import HistoryModel, UnitRange, take_units
from opwatch.sweep.history.prediction import WafBand, predict_changes
from opwatch.sweep.history.replaying import ReplayedChange
from opwatch.sweep.ranges import ValueRange
from tests.bench.figure import choose_exit_status, choose_size

from .truth import UNIT, Case, LiveSystem, Outcome, Present, draw_case, make_changes, record_present

_WITHIN_RATIOS, _MAX_WIDTH = (0.95, 0.9), 0.25


@dataclass(frozen=True)
class Compared:
    """A measured WAF and its bands: with the WAF alone, and with the flash known too."""

    case: Case
    name: str
    before: float
    outcome: Outcome
    bands: tuple[WafBand, WafBand]

    def is_within(self, place: int) -> bool:
        return self.bands[place].low <= self.outcome.waf <= self.bands[place].high

    def describe(self) -> str:
        what = (
            "trim"
            if self.outcome.trims
            else f"{100 * self.outcome.op_units / self.case.units:.0f} % given up"
        )
        bands = " and ".join(f"{band.low:.2f} to {band.high:.2f}" for band in self.bands)
        settings = ", ".join(f"{key} {int(value)}" for key, value in self.case.settings.items())
        return (
            f"seed {self.case.seed}, {self.name}, {what}: {self.before:.2f} to {self.outcome.waf:.2f}, "
            f"predicted {bands} ({settings})"
        )


def compare_system(seed: int) -> list[Compared] | str:
    """Return the comparisons of a system, or the reason why nothing was predicted."""
    case = draw_case(seed)
    system = LiveSystem(case)
    present = record_present(system)
    outcomes = make_changes(system, present)
    try:
        bands = [predict_outcomes(case, present, outcomes, knows_flash=knows) for knows in (False, True)]
    except NotEnoughData as error:
        return f"seed {seed}, {system.load.name}: {error}"
    return [
        Compared(case, system.load.name, present.waf, outcome, pair)
        for outcome, pair in zip(outcomes, zip(*bands, strict=True), strict=True)
    ]


def predict_outcomes(
    case: Case, present: Present, outcomes: list[Outcome], *, knows_flash: bool
) -> tuple[WafBand, ...]:
    free = tuple(UnitRange(one.start, one.stop) for one in present.free)
    model = HistoryModel(present.units, present.changes, free)
    spare = model.list_spare()
    changes = [ReplayedChange(tuple(take_units(spare, one.op_units)), one.trims) for one in outcomes]
    flash = case.settings["physical_bytes"] // UNIT if knows_flash else None
    return predict_changes(model, changes, ValueRange(present.waf, 0.0), flash).bands


def main() -> int:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else choose_size(60, 6)
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.SystemRandom().randrange(1 << 30)
    print(f"{count} systems, seed {seed}", flush=True)
    compared: list[Compared] = []
    refused: Counter[str] = Counter()
    with ProcessPoolExecutor(2) as pool:
        for result in pool.map(compare_system, range(seed, seed + count)):
            if isinstance(result, str):
                refused[result] += 1
                print(f"refused: {result}", flush=True)
                continue
            compared.extend(result)
            for one in result:
                if not all(map(one.is_within, (0, 1))):
                    print(f"outside: {one.describe()}", flush=True)
    holds = [
        _report_bands(compared, place, name)
        for place, name in enumerate(("WAF known", "WAF and flash known"))
    ]
    print(f"{refused.total()} of {count} systems refused")
    return choose_exit_status(holds=all(holds))


def _report_bands(compared: list[Compared], place: int, name: str) -> bool:
    """Print how many are within their bands, and how wide the bands are. Return whether the bounds hold."""
    widths = [one.bands[place].width_ratio for one in compared]
    within = sum(one.is_within(place) for one in compared)
    if len(widths) < 2:
        print(f"{name}: nothing to compare")
        return False
    deciles = statistics.quantiles(widths, n=10)
    print(
        f"{name}: {within} of {len(compared)} within the band ({100 * within / len(compared):.1f} %), "
        f"relative width: median {100 * statistics.median(widths):.1f} %, "
        f"90 % of them up to {100 * deciles[8]:.0f} %"
    )
    for kind in sorted({one.case.kind for one in compared}):
        some = [one for one in compared if one.case.kind == kind]
        width = statistics.median(one.bands[place].width_ratio for one in some)
        print(
            f"  {kind}: {sum(one.is_within(place) for one in some)} of {len(some)}, "
            f"median width {100 * width:.1f} %, median change of WAF "
            f"{100 * statistics.median(one.outcome.waf / one.before - 1 for one in some):+.0f} %"
        )
    return within >= _WITHIN_RATIOS[place] * len(compared) and statistics.median(widths) <= _MAX_WIDTH


if __name__ == "__main__":
    sys.exit(main())
