"""Prepare a drive for a workload: check that it is ours and healthy, then purge it."""

from __future__ import annotations

from collections.abc import Callable

from opwatch.guard.budget import Health, find_overruns
from opwatch.guard.obstacles import require_no_obstacles
from opwatch.tools.acting.sweep.bench import SweepBench
from opwatch.tools.acting.sweep.health import read_health
from opwatch.tools.acting.sweep.offers import describe_purge
from opwatch.tools.acting.sweep.purging import purge_drive


def require_free(bench: SweepBench) -> None:
    """Raise RefusedError if the drive is in use or unhealthy, or the budget is exhausted."""
    bench.claim.require_ours()
    require_healthy(bench, read_health(bench.counting))


def require_healthy(bench: SweepBench, now: Health) -> None:
    budget, spent = bench.state.request.budget, bench.state.announced_bytes
    overruns = find_overruns(budget, bench.before, now, spent, bench.disk.name)
    require_no_obstacles(overruns, is_begun=spent > 0)


def prepare_drive(bench: SweepBench, place: int, say: Callable[[str], None], phase: str) -> None:
    """Check that the drive is free, and purge it. Starts `phase`, which ends in settle()."""
    say("checking that the drive is free")
    require_free(bench)
    is_on_files = bench.state.request.place is not None
    purges = (
        "trimming free space" if is_on_files else describe_purge(bench.disk, bench.state.request.purge).what
    )
    say(purges)
    bench.announce_step(place, "purge", 0)
    bench.keeper.record_start(phase)
    purge_drive(bench)


def wait_to_settle(bench: SweepBench, say: Callable[[str], None], phase: str) -> None:
    seconds = bench.state.request.pace.settle_s
    say(f"waiting {seconds:g} s for the drive to erase")
    bench.wait_unless_stopped(seconds)
    bench.keeper.record_end(phase)
