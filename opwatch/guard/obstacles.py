"""Find all obstacles to destroying a disk's contents, with remedies. Pure: takes facts and consent.

The only way past an obstacle is to remove the cause: this module never asks, waits or offers an override.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from opwatch.errors import RefusedError
from opwatch.guard.facts import GuardFacts, PartFacts
from opwatch.guard.identity import DiskIdentity, is_same_drive, list_differences

# Kinds of separate disks. For all other kinds the user must name the disk below.
_DRIVE, _LOOP = "disk", "loop"


@dataclass(frozen=True, slots=True)
class Consent:
    """The user's consent on the command line. `serial` is the argument of --confirm, None without --confirm;
    `planned` is the disk in the plan or journal."""

    destroy: bool = False
    serial: str | None = None
    allow_virtual: bool = False
    planned: DiskIdentity | None = None


@dataclass(frozen=True, slots=True)
class Obstacle:
    """A reason to refuse: `what` is wrong, `where`, and the `remedy`."""

    what: str
    where: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}; {self.remedy}"


def find_obstacles(facts: GuardFacts, consent: Consent) -> list[Obstacle]:
    """Return every obstacle to destroying the disk's contents; empty if there are none."""
    reasons = [
        *_check_kind(facts, consent),
        *_check_system(facts),
        *_check_partitions(facts),
        *(reason for part in facts.parts for reason in _check_part(part)),
        *_check_users(facts),
        *_check_hidden_users(facts, consent),
        *_check_identity(facts, consent),
    ]
    return list(dict.fromkeys(reasons))


def drop_consent_obstacles(reasons: Sequence[Obstacle]) -> list[Obstacle]:
    """Return the obstacles of the disk itself, without missing command-line options."""
    return [reason for reason in reasons if reason not in (NO_DESTROY, NO_CONFIRM)]


def require_no_obstacles(reasons: Sequence[Obstacle], *, is_begun: bool = False) -> None:
    """Raise RefusedError if there are obstacles. The first is in the message, the others are one per line
    below. `is_begun`: something may have been written before."""
    if reasons:
        error = RefusedError(
            f"{'the sweep stops here' if is_begun else 'nothing was written'}: {reasons[0]}"
            + (f" ({len(reasons) - 1} more reasons below)" if len(reasons) > 1 else "")
        )
        error.log = "\n".join(str(reason) for reason in reasons[1:])
        raise error


NO_DESTROY = Obstacle(
    "a sweep destroys everything on the drive", "--destroy", "add --destroy if all data on it may be lost"
)
NO_CONFIRM = Obstacle(
    "the drive to destroy is not confirmed",
    "--confirm",
    "add --confirm SERIAL with the serial number that opwatch sweep plan prints",
)


def _check_kind(facts: GuardFacts, consent: Consent) -> Iterator[Obstacle]:
    name = facts.identity.name
    if facts.partition is not None:
        remedy = f"name the disk itself, {name}, if all data on it may be lost"
        yield Obstacle(f"it is a partition of {name}: a sweep needs a whole disk", facts.partition, remedy)
    if facts.kind not in (_DRIVE, _LOOP) or facts.below:
        below = f" on {', '.join(facts.below)}" if facts.below else ""
        yield Obstacle(f"it is not a drive but {facts.kind}{below}", name, "name the drive below it")
    elif facts.is_virtual and not consent.allow_virtual:
        remedy = "add --allow-virtual if its contents may be lost"
        yield Obstacle("it is not a drive but a file, or a disk of another machine", name, remedy)
    if facts.is_read_only:
        yield Obstacle("it is read-only", name, f"blockdev --setrw /dev/{name} makes it writable")
    if not facts.identity.size_bytes:
        yield Obstacle("it has no medium, or no size", name, "name another drive")


def _check_system(facts: GuardFacts) -> Iterator[Obstacle]:
    for point in facts.system:
        remedy = "name another drive: nothing overrides this"
        yield Obstacle(f"this host runs from it ({point})", facts.identity.name, remedy)


def _check_partitions(facts: GuardFacts) -> Iterator[Obstacle]:
    for part in facts.parts[1:]:
        remedy = "delete the partition if it is not needed"
        yield Obstacle(f"it is a partition of {facts.identity.name}", part.name, remedy)


def _check_part(part: PartFacts) -> Iterator[Obstacle]:
    for mount in part.mounts:
        yield Obstacle(f"it is mounted at {mount}", part.name, "unmount it there")
    if part.is_swap:
        yield Obstacle("it is swap", part.name, f"swapoff /dev/{part.name}")
    for holder in part.holders:
        yield Obstacle(f"{holder} is built on it", part.name, f"remove {holder} first")
    if part.contents:
        remedy = f"check it, then wipefs --all /dev/{part.name} if it is not needed"
        yield Obstacle(f"it contains data: {part.contents}", part.name, remedy)
    if part.unread:
        yield Obstacle(f"its contents are unknown: {part.unread}", part.name, "fix that first")


def _check_users(facts: GuardFacts) -> Iterator[Obstacle]:
    name = facts.identity.name
    if facts.claimed:
        remedy = f"stop what uses it: a mount in another namespace, swap, dm, md (lsblk /dev/{name})"
        yield Obstacle("the kernel reports that it is in use", name, remedy)
    if facts.claim_unknown:
        yield Obstacle(f"its users are unknown: {facts.claim_unknown}", name, "fix that first")
    for loop in facts.loops:
        what, remedy = f"{loop.name} uses it as its backing file", f"losetup --detach /dev/{loop.name}"
        if loop.unknown:
            what = f"{loop.name} may use it as its backing file ({loop.unknown})"
            remedy += ", or run this as root on the host"
        yield Obstacle(what, name, remedy)
    for opener in facts.openers:
        yield Obstacle(f"{opener} has it open", name, "stop that process")
    for export in facts.exports:
        yield Obstacle(f"{export} exports it to other hosts", name, "disable it there")
    for uncounted in facts.uncounted:
        remedy = f"echo 1 > /sys/block/{uncounted}/queue/iostats"
        yield Obstacle(f"its other users are unknown: requests to {uncounted} are not counted", name, remedy)
    if facts.foreign and facts.foreign.has_requests:
        foreign = facts.foreign
        counted = f"{foreign.reads} reads and {foreign.writes} writes in {foreign.seconds:g} s"
        yield Obstacle(
            f"another process uses it: {counted}, {foreign.in_flight} in flight",
            name,
            "find the process (opwatch --dev ... shows the processes) and stop it",
        )


def _check_hidden_users(facts: GuardFacts, consent: Consent) -> Iterator[Obstacle]:
    """Yield obstacles from possible users out of sight of this host."""
    for sharer in facts.shared:
        remedy = "detach the other side, or name a drive that only this host uses"
        yield Obstacle(f"other hosts may write to it: {sharer}", facts.identity.name, remedy)
    # With --allow-virtual, the user vouches for a loop device, whoever made it: in a container some processes
    # are always out of sight. Users with an exclusive claim (mounts, swap, holders) are obstacles anyway.
    if not (facts.kind == _LOOP and consent.allow_virtual):
        for unseen in facts.unseen:
            remedy = "run it as root on the host, outside containers"
            yield Obstacle(
                f"it may have users that opwatch cannot see: {unseen}", facts.identity.name, remedy
            )


def _check_identity(facts: GuardFacts, consent: Consent) -> Iterator[Obstacle]:
    identity = facts.identity
    if consent.planned:
        for unlike in list_differences(consent.planned, identity):
            remedy = "it is not the plan's drive: make a new plan"
            yield Obstacle(f"it has {unlike}", identity.name, remedy)
    if not identity.serial:
        remedy = "it cannot be distinguished from another drive, so it cannot be swept"
        yield Obstacle("it reports no serial number", identity.name, remedy)
    paths = [other for other in facts.alike if is_same_drive(identity, other)]
    for other in paths:
        remedy = f"remove that path: echo 1 > /sys/block/{other.name}/device/delete"
        yield Obstacle(
            f"{other.name} is the same drive, and its users there are not visible", identity.name, remedy
        )
    if not consent.destroy:
        yield NO_DESTROY
    if consent.serial is None:
        yield NO_CONFIRM
    elif identity.serial:
        namesakes = [other for other in facts.alike if other not in paths and other.serial == identity.serial]
        yield from _check_confirmation(identity, consent.serial, namesakes)


def _check_confirmation(
    identity: DiskIdentity, word: str, namesakes: Sequence[DiskIdentity]
) -> Iterator[Obstacle]:
    """Yield an obstacle if the confirmed word does not identify exactly this drive: namespaces of a drive
    share its serial number, and so do many disks behind adapters."""
    name = identity.name
    if namesakes and word == identity.serial:
        others = ", ".join(other.name for other in namesakes)
        remedy = (
            f"add --confirm {identity.wwid}" if identity.wwid else "disconnect the others: it reports no wwid"
        )
        yield Obstacle(f"its serial number {identity.serial} is also that of {others}", name, remedy)
    elif word != identity.serial and not (namesakes and word == identity.wwid):
        remedy = f"the serial number of {name} is {identity.serial}: is it the drive you mean?"
        yield Obstacle(f"--confirm {word} is not its serial number", name, remedy)
