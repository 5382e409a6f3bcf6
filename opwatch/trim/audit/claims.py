"""Results of other processes' FITRIM calls during a watch. Pure."""

from __future__ import annotations

import errno
from collections.abc import Iterable
from dataclasses import dataclass

from opwatch.trim.audit.flow import Stage, Trace
from opwatch.trim.stack.layers import Stack

# OW_FITRIM's special statuses, which are not errnos.
_SIGNALED, _UNREAD = 254, 255


@dataclass(frozen=True, slots=True)
class Claim:
    """Calls of a program on a filesystem with the same result. `claimed_bytes` is None if the calls
    returned no count; `error` is then an errno name or a description."""

    comm: str
    dev: str
    calls: int
    claimed_bytes: int | None
    error: str | None = None

    def __str__(self) -> str:
        said = self.error if self.claimed_bytes is None else f"{self.claimed_bytes} B trimmed"
        return f"{said}, by {self.comm}" + (f" in {self.calls} calls" if self.calls > 1 else "")


def _describe_status(status: int) -> str | None:
    if status in (_SIGNALED, _UNREAD):
        return "ended by a signal" if status == _SIGNALED else "unreadable result"
    return errno.errorcode.get(status, f"error {status}") if status else None


def find_claims(trace: Trace, stack: Stack) -> tuple[Claim, ...]:
    """Return claims on the watched filesystem or, for a device, on the filesystems that sent discards to
    it."""
    if stack.filesystem:
        devs = {stack.filesystem.dev}
    else:
        disks = {layer.device[:16] for layer in stack.layers}
        devs = {layer.dev for layer in stack.layers} | {
            flow.dev for flow in trace.flows if flow.disk in disks and flow.stage is Stage.BIO
        }
    return tuple(
        Claim(
            flow.disk,
            flow.dev,
            flow.amount.count,
            None if flow.status else flow.amount.bytes,
            _describe_status(flow.status),
        )
        for flow in trace.select(Stage.FITRIM, devs=devs)
    )


def sum_claimed_bytes(claims: Iterable[Claim]) -> int | None:
    """Return the sum of the claimed bytes; None if no claim has a count."""
    amounts = [claim.claimed_bytes for claim in claims if claim.claimed_bytes is not None]
    return sum(amounts) if amounts else None


def describe_claims(trace: Trace, claims: Iterable[Claim]) -> str:
    """Return the claims as a line of text."""
    text = "; ".join(str(claim) for claim in claims)
    if text:
        return text
    if not trace.claims_seen:
        return "unknown: this kernel cannot trace FITRIM calls"
    return "nothing: no process trimmed this filesystem during the watch"
