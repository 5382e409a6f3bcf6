"""What to change about owners that share a drive: only statements that their interference proves. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from opwatch import units
from opwatch.blame.answer import Blame
from opwatch.writes.advice import WriteAdvice, WriteAdviceKind

# Interference below this share of all NAND bytes is not worth a change.
MIN_INTERFERENCE = 0.05


def advise_tenants(blame: Blame) -> Iterator[WriteAdvice]:
    """Yield advice for each pair of owners whose interference is certain to be large."""
    for by, row in zip(blame.owners, blame.interference, strict=bool(blame.interference)):
        for of, band in zip(blame.owners, row, strict=True):
            if band is None or band.low < MIN_INTERFERENCE * blame.nand.value:
                continue
            low, high = (units.format_capacity(round(size)) for size in band)
            yield WriteAdvice(
                WriteAdviceKind.TENANTS,
                f"writes of {by.name} add {low} to {high} of NAND writes to data of {of.name}, if these two "
                "share the drive",
                "put them on different drives, or into different reclaim units of an FDP drive, and measure "
                "again",
            )
