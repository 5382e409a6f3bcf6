"""Facts about a disk, collected before destroying data. Collectors do not judge."""

from __future__ import annotations

from dataclasses import dataclass, replace

from opwatch.guard.identity import DiskIdentity


@dataclass(frozen=True, slots=True)
class PartFacts:
    """The whole disk or a partition. `mounts` are mount points, `holders` the devices on top. `contents`
    describes the signature found, None if nothing is known; `unread` says why the contents could not be
    read."""

    name: str
    mounts: tuple[str, ...] = ()
    holders: tuple[str, ...] = ()
    is_swap: bool = False
    contents: str | None = None
    unread: str | None = None


@dataclass(frozen=True, slots=True)
class ForeignIo:
    """Requests counted by the kernel while opwatch was idle, and requests in flight at the end."""

    seconds: float
    reads: int
    writes: int
    in_flight: int

    @property
    def has_requests(self) -> bool:
        return bool(self.reads or self.writes or self.in_flight)


@dataclass(frozen=True, slots=True)
class LoopUser:
    """A loop device with the disk as backing device, either certainly or possibly: `unknown` is why a check
    was impossible."""

    name: str
    unknown: str | None = None


@dataclass(frozen=True, slots=True)
class GuardFacts:
    """Facts about a disk, as far as visible.

    `named` is the user's argument, and `partition` the partition if the user named one. `parts` starts with
    the disk itself. `claimed` is the result of opening the disk exclusively; None if not tried or if the
    claim is ours. `system` names this host's system mounts on the disk. `shared` lists who else can reach the
    disk's namespace. `unseen` lists places with possible users that could not be examined. `alike` are other
    local disks with the same serial number or WWID. `exports` lists targets that export the disk to other
    hosts. `loops` are loop devices on the disk, certain or possible. `uncounted` names disks without kernel
    statistics, for which `foreign` shows nothing.
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


def remove_own_part(facts: GuardFacts, name: str) -> GuardFacts:
    """Return the facts without a partition created by opwatch, unless the partition is in use by now."""
    others = tuple(
        part for part in facts.parts if part.name != name or part.mounts or part.holders or part.is_swap
    )
    return replace(facts, parts=others)
