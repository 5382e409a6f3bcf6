"""A possible cause of slow intervals, as one rule reports it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

# Probability of a coincidence, after Holm's correction, above which a cause is not named.
CHANCE = 0.01
# The same for a witness that delays requests by its nature, whenever it acts.
DIRECT_CHANCE = 0.05


class CauseName(StrEnum):
    """The causes that opwatch can name; docs/method-why.md describes the evidence for each."""

    IO_MAX = "io.max"
    IO_COST = "iocost"
    IO_LATENCY = "io.latency"
    WRITE_BACK_THROTTLING = "write-back throttling (wbt)"
    TAGS = "no free tag"
    SCHEDULER = "I/O scheduler"
    TIMEOUT = "timeouts"
    ERRORS = "errors and requeues"
    FLUSHES = "flushes"
    KERNEL_WORK = "write-back and commits of the kernel"
    DISCARDS = "discards"
    GARBAGE_COLLECTION = "garbage collection"
    SLC_CACHE = "pseudo-SLC cache full"
    THERMAL = "thermal throttling"
    HOUSEKEEPING = "housekeeping of the drive by time"
    POLLING = "polls of the drive's log pages"
    READ_BEHIND_WRITE = "reads behind writes"
    LARGE_REQUESTS = "large requests among small ones"
    SATURATION = "saturation by load"
    NEIGHBOUR = "another owner's I/O"
    PATH = "delay between host and drive"
    HOST_CPU = "busy CPUs or interrupts of the host"
    SLEEP = "wake-up from a sleep state"
    SLOW_MEMBER = "slow member of an array"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A possible cause: the intervals in which it acted, and its evidence.

    `is_direct`: the time was measured on its own, so that no test of coincidence is needed. `excluded` is the
    reason why it is not the cause, although it may coincide. `explains` are causes of which this one is the
    origin; they are not rivals. `chance` is the probability of a coincidence above which it is not named.
    `waited` are the owners whose requests waited, with their shares of the wait, if that is known.
    """

    name: CauseName
    flags: Sequence[bool]
    evidence: str
    check: str
    is_direct: bool = False
    excluded: str | None = None
    explains: tuple[CauseName, ...] = ()
    chance: float = CHANCE
    waited: tuple[tuple[str, float], ...] = ()
