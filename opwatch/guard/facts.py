"""What is seen of a disk before anything is destroyed on it. Whoever collects it judges nothing."""

from __future__ import annotations

from opwatch.frozen import frozen, replace
from opwatch.guard.identity import DiskIdentity


@frozen
class PartFacts:
    """The whole disk or one of its partitions. `mounts` says where it is mounted, `holders` what stands
    on it. `contents` is what its bytes say it is, None for nothing known; `unread` why that is not known."""

    name: str
    mounts: tuple[str, ...] = ()
    holders: tuple[str, ...] = ()
    is_swap: bool = False
    contents: str | None = None
    unread: str | None = None


@frozen
class ForeignIo:
    """Requests that the kernel counted while we did nothing, and those under way at the end of it."""

    seconds: float
    reads: int
    writes: int
    in_flight: int

    @property
    def is_any(self) -> bool:
        return bool(self.reads or self.writes or self.in_flight)


@frozen
class LoopUser:
    """A loop device that is backed by the disk, or may be: `unknown` is why that could not be determined."""

    name: str
    unknown: str | None = None


@frozen
class GuardFacts:
    """One disk, as far as it could be looked at.

    `named` is what the user typed, `partition` its partition when that is what was named. `parts` has the
    disk itself first. `claimed` is what the kernel says to an exclusive opening, None when it was not asked
    or is our own claim. `system` names mounts of this host that stand on it. `shared` says who else can
    reach its namespace. `unseen` is where users of it may be that could not be looked at. `alike` are other
    disks here that tell its serial number or its worldwide name; `exports` says who lends it to other hosts.
    `loops` are backed by it, or may be.
    `uncounted` names what the kernel keeps no statistics of, so that `foreign` tells nothing.
    """

    identity: DiskIdentity
    named: str
    kind: str
    is_virtual: bool
    parts: tuple[PartFacts, ...]
    partition: str | None = None
    is_read_only: bool = False
    claimed: bool | None = None
    claim_unknown: str | None = None
    system: tuple[str, ...] = ()
    below: tuple[str, ...] = ()
    loops: tuple[LoopUser, ...] = ()
    openers: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    foreign: ForeignIo | None = None
    unseen: tuple[str, ...] = ()
    alike: tuple[DiskIdentity, ...] = ()
    exports: tuple[str, ...] = ()
    uncounted: tuple[str, ...] = ()


def without_part(facts: GuardFacts, name: str) -> GuardFacts:
    """The facts without a partition that we have made ourselves, unless somebody uses it by now."""
    others = tuple(
        part for part in facts.parts if part.name != name or part.mounts or part.holders or part.is_swap
    )
    return replace(facts, parts=others)
