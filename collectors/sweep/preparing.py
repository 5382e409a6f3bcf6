"""What comes before a workload, whatever that is: a drive that is ours, well, and as if it was never used."""

from __future__ import annotations

from collections.abc import Callable

from opwatch.collectors.sweep.bench import SweepBench
from opwatch.collectors.sweep.health import read_health
from opwatch.collectors.sweep.offers import purge_as_told
from opwatch.collectors.sweep.purging import purge
from opwatch.guard.budget import Health, overdrawn
from opwatch.guard.obstacles import require_none


def require_free(bench: SweepBench) -> None:
    """RefusedError when the drive is not ours, not well, or its budget is gone."""
    bench.claim.require_ours()
    require_well(bench, read_health(bench.counting))


def require_well(bench: SweepBench, now: Health) -> None:
    budget, spent = bench.state.request.budget, bench.state.announced_bytes
    require_none(overdrawn(budget, bench.before, now, spent, bench.disk.name))


def prepare(bench: SweepBench, place: int, say: Callable[[str], None], phase: str) -> None:
    """Look whether the drive is free, and purge it. `phase` begins, and ends when it has settled."""
    say("looks whether the drive is free")
    require_free(bench)
    is_on_files = bench.state.request.place is not None
    purges = (
        "trims what is free" if is_on_files else purge_as_told(bench.disk, bench.state.request.purge).what
    )
    say(purges)
    bench.announce(place, "purge", 0)
    bench.keeper.began(phase)
    purge(bench)


def settle(bench: SweepBench, say: Callable[[str], None], phase: str) -> None:
    seconds = bench.state.request.pace.settle_s
    say(f"lets the drive erase for {seconds:g} s")
    bench.pass_time(seconds)
    bench.keeper.ended(phase)
