"""What a drive counts around a trim, held against what completed: believed only where it fits. Pure."""

from __future__ import annotations

import enum
from collections.abc import Iterable

from opwatch.frozen import frozen
from opwatch.trim.audit.flow import Amount, Stage, Trace, total


class Counts(enum.StrEnum):
    """What a counter counts."""

    TRIMMED = "trimmed"  # rises by the bytes of a trim
    COMMANDS = "commands"  # rises by its commands
    HELD = "held"  # falls by what was held of it


class Bearing(enum.StrEnum):
    """What it tells of this trim."""

    PROVES = "proves"  # the drive counts as trimmed what completed, to the byte
    CONFIRMS = "confirms"  # it got the commands
    SILENT = "tells nothing"


@frozen
class Account:
    """A counter of a drive before and after, in steps of `unit_bytes` (1 for commands). `after` is None where
    it could not be read again."""

    device: str
    source: str
    counts: Counts
    unit_bytes: int
    before: int
    after: int | None

    @property
    def moved(self) -> int | None:
        """Bytes or commands since before; of what is held, those that it lost."""
        if self.after is None:
            return None
        steps = self.after - self.before
        return (-steps if self.counts is Counts.HELD else steps) * self.unit_bytes


@frozen
class JudgedAccount:
    """An account, and what to think of it."""

    account: Account
    bearing: Bearing
    words: str


def _done(trace: Trace, disk: str) -> Amount:
    """What ended well on a disk, of all senders: its counters do not tell them apart."""
    requests = total(trace.select(Stage.DONE, disk=disk))
    return total(
        flow
        for flow in trace.select(Stage.DONE if requests.count else Stage.BIO_DONE, disk=disk)
        if not flow.status
    )


def _commands(trace: Trace, disk: str) -> int:
    issued, requeued = (
        total(trace.select(stage, disk=disk)).count for stage in (Stage.ISSUED, Stage.REQUEUED)
    )
    return issued - requeued


def judge_all(accounts: Iterable[Account], trace: Trace) -> tuple[JudgedAccount, ...]:
    """What to think of each."""
    return tuple(judge(account, trace) for account in accounts)


def judge(account: Account, trace: Trace) -> JudgedAccount:
    """Whether a counter moved by what completed on its drive."""
    moved, disk = account.moved, account.device[:16]
    done = _done(trace, disk)
    unit = "commands" if account.counts is Counts.COMMANDS else "B"
    if moved is None:
        return JudgedAccount(account, Bearing.SILENT, "it could not be read again")
    wanted = _commands(trace, disk) if account.counts is Counts.COMMANDS else done.bytes
    fits = moved == wanted or (account.counts is not Counts.COMMANDS and moved == done.granule_bytes)
    if not wanted:
        return JudgedAccount(account, Bearing.SILENT, "nothing completed that it could count")
    if fits and account.counts is Counts.COMMANDS:
        return JudgedAccount(account, Bearing.CONFIRMS, f"it rose by {moved}, as many as the drive was given")
    if fits:
        went = "fell" if account.counts is Counts.HELD else "rose"
        return JudgedAccount(account, Bearing.PROVES, f"it {went} by {moved} B, which is what completed")
    if moved < 0:
        return JudgedAccount(account, Bearing.SILENT, f"it went the wrong way, by {-moved} {unit}")
    if not moved:
        return JudgedAccount(account, Bearing.SILENT, "it did not move: it is late, or counts something else")
    if account.counts is Counts.HELD and moved < done.bytes:
        why = "the rest was not held before, or still is"
        return JudgedAccount(
            account, Bearing.SILENT, f"it fell by {moved} B where {done.bytes} B completed: {why}"
        )
    return JudgedAccount(
        account,
        Bearing.SILENT,
        f"it moved by {moved} {unit} where {wanted} {unit} completed: it counts others, or something else",
    )
