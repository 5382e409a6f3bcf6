"""Compare a drive's own counters with its completed discards. A counter is evidence only if both agree
exactly. Pure."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass

from opwatch.trim.audit.flow import Amount, Stage, Trace, sum_flows


class CounterMeaning(enum.StrEnum):
    """Meaning of a drive counter."""

    TRIMMED = "trimmed"  # rises by the trimmed bytes
    COMMANDS = "commands"  # rises by the number of discard commands
    HELD = "held"  # falls by the trimmed bytes, if mapped before


class CounterEvidence(enum.StrEnum):
    """Evidence from a counter about the trim."""

    PROVES = "proves"  # counted exactly the completed bytes
    CONFIRMS = "confirms"  # counted exactly the issued commands
    SILENT = "tells nothing"


@dataclass(frozen=True, slots=True)
class Account:
    """A drive counter before and after the trim, in steps of `unit_bytes` (1 for commands). `after` is None
    if the second read failed."""

    device: str
    source: str
    counts: CounterMeaning
    unit_bytes: int
    before: int
    after: int | None

    @property
    def amount_moved(self) -> int | None:
        """The change in bytes or commands; a decrease of HELD is positive. None if `after` is missing."""
        if self.after is None:
            return None
        steps = self.after - self.before
        return (-steps if self.counts is CounterMeaning.HELD else steps) * self.unit_bytes


@dataclass(frozen=True, slots=True)
class JudgedAccount:
    """An account with the judged evidence and an explanation."""

    account: Account
    bearing: CounterEvidence
    words: str


def _sum_completed(trace: Trace, disk: str) -> Amount:
    """Return all senders' successful discards on a disk, because the drive's counters include all senders."""
    requests = sum_flows(trace.select(Stage.DONE, disk=disk))
    return sum_flows(
        flow
        for flow in trace.select(Stage.DONE if requests.count else Stage.BIO_DONE, disk=disk)
        if not flow.status
    )


def _count_commands(trace: Trace, disk: str) -> int:
    issued, requeued = (
        sum_flows(trace.select(stage, disk=disk)).count for stage in (Stage.ISSUED, Stage.REQUEUED)
    )
    return issued - requeued


def judge_accounts(accounts: Iterable[Account], trace: Trace) -> tuple[JudgedAccount, ...]:
    """Judge each account."""
    return tuple(judge_account(account, trace) for account in accounts)


def judge_account(account: Account, trace: Trace) -> JudgedAccount:
    """Judge whether a counter moved by the amount completed on the drive, or by the amount in whole
    granules."""
    moved, disk = account.amount_moved, account.device[:16]
    done = _sum_completed(trace, disk)
    unit = "commands" if account.counts is CounterMeaning.COMMANDS else "B"
    if moved is None:
        return JudgedAccount(account, CounterEvidence.SILENT, "it could not be read again")
    wanted = _count_commands(trace, disk) if account.counts is CounterMeaning.COMMANDS else done.bytes
    fits = moved == wanted or (account.counts is not CounterMeaning.COMMANDS and moved == done.granule_bytes)
    if not wanted:
        return JudgedAccount(account, CounterEvidence.SILENT, "no discards completed that it could count")
    if fits and account.counts is CounterMeaning.COMMANDS:
        return JudgedAccount(
            account, CounterEvidence.CONFIRMS, f"it rose by {moved}, the number of commands sent to the drive"
        )
    if fits:
        went = "fell" if account.counts is CounterMeaning.HELD else "rose"
        return JudgedAccount(account, CounterEvidence.PROVES, f"it {went} by {moved} B, the completed amount")
    if moved < 0:
        return JudgedAccount(
            account, CounterEvidence.SILENT, f"it moved in the wrong direction, by {-moved} {unit}"
        )
    if not moved:
        return JudgedAccount(
            account, CounterEvidence.SILENT, "it did not move: it lags, or counts something else"
        )
    if account.counts is CounterMeaning.HELD and moved < done.bytes:
        why = "the rest was not in use before, or still is"
        return JudgedAccount(
            account, CounterEvidence.SILENT, f"it fell by {moved} B while {done.bytes} B completed: {why}"
        )
    return JudgedAccount(
        account,
        CounterEvidence.SILENT,
        f"it moved by {moved} {unit} while {wanted} {unit} completed: it counts something else as well",
    )
