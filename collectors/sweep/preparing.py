"""Prepare a drive for a workload: check that it is ours and healthy, then purge it."""

from __future__ import annotations

from collections.abc import Callable

from opwatch.collectors.sweep.bench import SweepBench
from opwatch.collectors.sweep.health import read_health
from opwatch.collectors.sweep.offers import purge_as_told
from opwatch.collectors.sweep.purging import purge
from opwatch.guard.budget import Health, overdrawn
from opwatch.guard.obstacles import require_none


def require_free(bench: SweepBench) -> None:
    """Raise RefusedError if the drive is in use or unhealthy, or the budget is exhausted."""
    bench.claim.require_ours()
    require_well(bench, read_health(bench.counting))


def require_well(bench: SweepBench, now: Health) -> None:
    budget, spent = bench.state.request.budget, bench.state.announced_bytes
    require_none(overdrawn(budget, bench.before, now, spent, bench.disk.name))


def prepare(bench: SweepBench, place: int, say: Callable[[str], None], phase: str) -> None:
    """Check that the drive is free, and purge it. Starts `phase`, which ends in settle()."""
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
