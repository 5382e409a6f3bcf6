"""Lost requests between two samples of a disk."""

from __future__ import annotations

from opwatch.samples.sample import DiskSample
from opwatch.trace.account.losses import Loss, Tally, list_losses, tally_losses
from opwatch.trace.trust import LossAccount, account_losses


def tally_losses_since(first: DiskSample, now: DiskSample) -> Tally:
    """Return the tally of a run's losses from the first sample to `now`."""
    return tally_losses(account_interval(first, now), now.disk.in_flight, now.disk.flush_queues)


def list_losses_between(
    then: DiskSample, now: DiskSample, lost: Tally | None = None, *, is_blind: bool
) -> tuple[Loss, ...]:
    """Return the losses between two samples.

    `lost` is the growth of the run's tally in an interval; without `lost`, the losses cover the whole run.
    `is_blind`: the kernel skips programs while PID 1 is current.
    """
    is_whole = lost is None
    grown = tally_losses_since(then, now) if lost is None else lost
    return list_losses(grown, account_interval(then, now), is_blind=is_blind, is_whole=is_whole)


def account_interval(then: DiskSample, now: DiskSample) -> LossAccount:
    return account_losses(then.reading, now.reading, _count_growth(then.misses, now.misses))


def _count_growth(then: int | None, now: int | None) -> int | None:
    return None if then is None or now is None else now - then
