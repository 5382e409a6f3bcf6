"""Tracks the set of watched disks: additions and removals, with reasons."""

from __future__ import annotations

import enum
import time
from collections.abc import Sequence
from dataclasses import dataclass

from opwatch.errors import OpwatchError
from opwatch.host.device import BlockDevice, Devices, Leaf, Presence, read_identity
from opwatch.samples.selection import Selection

_now = time.monotonic


class DepartureReason(enum.Enum):
    """The reason why a disk is no longer watched."""

    GONE = "gone"
    REPLACED = "replaced"
    RESIZED = "resized"
    UNUSED = "unused"


class Member:
    """A disk, or a part of a disk, from arrival to departure."""

    def __init__(self, leaf: Leaf) -> None:
        self.leaf = leaf
        self.identity = read_identity(leaf.device)
        # True if the same drive was watched before.
        self.is_back = False
        self._presence = Presence(leaf.device)
        self._sectors = _partition_sectors(leaf.device)

    @property
    def name(self) -> str:
        return self.leaf.device.name

    def is_present(self) -> bool:
        """Return True if the device still exists and was not replaced by another with the same name."""
        return self._presence.is_same_device()

    def is_in_place(self) -> bool:
        """Return True unless the member is a moved or resized partition."""
        return self._sectors is None or self._sectors == _partition_sectors(self.leaf.device)

    def close(self) -> None:
        self._presence.close()


class NamedDevice:
    """A device named by the user. The drive may vanish and come back as another sysfs device."""

    def __init__(self, device: BlockDevice) -> None:
        self.device, self.identity = device, read_identity(device)
        self._presence = Presence(device)
        self._gone_at: float | None = None
        # The last other drive refused under the same name.
        self._refused: tuple[str | None, str | None] | None = None

    def is_present(self) -> bool:
        """Return True if the device is present. Once gone, only reattach() makes the device present
        again."""
        if self._gone_at is None and not self._presence.is_same_device():
            self._gone_at = _now()
        return self._gone_at is None

    def has_timed_out(self, within_s: float) -> bool:
        """Return True if the device has been gone for `within_s` seconds."""
        return not self.is_present() and self._gone_at is not None and _now() - self._gone_at >= within_s

    def reattach(self, device: BlockDevice) -> bool:
        """Return True if `device` is the same drive. If so, `device` becomes the named device."""
        if self.identity is None:
            return False
        try:
            presence = Presence(device)
        except OpwatchError:
            return False
        # Check after creating Presence, which notices any later replacement.
        if not presence.is_same_device() or read_identity(device) != self.identity:
            presence.close()
            return False
        self._presence.close()
        self.device, self._presence, self._gone_at, self._refused = device, presence, None, None
        return True

    def find_refusal(self, device: BlockDevice) -> str | None:
        """Return the reason why a device with this name is not watched, or None if already reported."""
        now = read_identity(device), device.disk.read_attribute("diskseq")
        if self._refused == now:
            return None
        self._refused = now
        if now[0] is None or self.identity is None:
            return "it cannot be identified as the drive watched before"
        return f"it is another drive ({now[0]}), not the one watched before ({self.identity})"

    def close(self) -> None:
        self._presence.close()


@dataclass(frozen=True, slots=True)
class Departure:
    """A disk leaving the watch."""

    member: Member
    why: DepartureReason


@dataclass(frozen=True, slots=True)
class Change:
    """Changes of the set between two polls. `refused` are new disks that cannot be watched, with the
    reason."""

    came: tuple[Member, ...]
    left: tuple[Departure, ...]
    refused: tuple[tuple[Leaf, str], ...] = ()


class Membership:
    """Tracks a selection's disks.

    Uses the state of sysfs only: kernel events may be lost, and only trigger a poll. `registered` is sysfs's
    state at the last poll: the same number means the same device with the same statistics. If a named device
    goes, wait `return_within_s` for it, and resume when the same drive comes back with the same name.
    """

    def __init__(self, devices: Devices, selection: Selection, return_within_s: float = 0.0) -> None:
        self._devices, self._selection = devices, selection
        self.return_within_s = return_within_s
        self._named = [NamedDevice(device) for device in selection.named]
        # Identities of removed disks, by name.
        self._left: dict[str, str | None] = {}
        self.registered = devices.list_inodes()
        # Before computing the set, so that the next poll notices changes made during the computation.
        self._note_state()
        self.members = [Member(leaf) for leaf in selection.find_leaves()]
        # New disks appear step by step: poll again soon.
        self.is_unsettled = False

    def find_vanished(self) -> str | None:
        """Return the first named device gone for longer than the waiting time, or None."""
        given_up = (named for named in self._named if named.has_timed_out(self.return_within_s))
        return next((named.device.name for named in given_up), None)

    def find_absent(self) -> str | None:
        """Return the first named device that is gone or replaced, or None if all are present."""
        return next((named.device.name for named in self._named if not named.is_present()), None)

    def find_absence(self, member: Member) -> DepartureReason | None:
        """Return GONE or REPLACED for a device changed since the last poll, or None if still present."""
        if member.is_present():
            return None
        now = self._devices.by_name(member.name)
        if not now or not now.size_bytes:
            return DepartureReason.GONE
        is_same = member.identity is not None and read_identity(now) == member.identity
        return DepartureReason.GONE if is_same else DepartureReason.REPLACED

    def poll_changes(self) -> Change | None:
        """Return the changes since the last poll, or None. The check is cheap if nothing changed."""
        registered = self._devices.list_inodes()
        before, was_unsettled = self.registered, self.is_unsettled
        refused, is_back = self._select_returned(registered)
        is_same = registered == before and not refused and not is_back
        if is_same and not was_unsettled and not self._has_moved():
            return None
        self.registered = registered
        self._note_state()
        change = self._compare_leaves(self._selection.find_leaves(), before, refused)
        self.is_unsettled = registered != before or bool(change.came)
        return change if change.came or change.left or change.refused else None

    def _select_returned(self, registered: dict[str, int]) -> tuple[list[tuple[Leaf, str]], bool]:
        """Select named drives that have come back. Return other drives with their names, each reported once,
        and True if a drive has come back."""
        refused: list[tuple[Leaf, str]] = []
        gone = [named for named in self._named if not named.is_present()]
        for named in gone:
            name = named.device.name
            device = self._devices.by_name(name)
            if not device or not device.size_bytes or named.reattach(device):
                continue
            # A new disk may not have all attributes yet: check again at the next poll.
            is_complete = registered.get(name) == self.registered.get(name)
            if is_complete and (why := named.find_refusal(device)):
                refused.append((Leaf(device, device), why))
        absent = {named.device for named in gone if not named.is_present()}
        self._selection.named, self._selection.absent = [named.device for named in self._named], absent
        return refused, len(absent) < len(gone)

    def remove_member(self, member: Member) -> None:
        """Remove a member that could not be watched. The next change adds it again."""
        self.members.remove(member)
        self.is_unsettled = False
        member.close()

    def close(self) -> None:
        for named in self._named:
            named.close()
        for member in self.members:
            member.close()

    def _note_state(self) -> None:
        """Record the state on which the set depends."""
        if self._selection.named:
            stacked = {
                below.name: below
                for device in self._selection.named
                for below in self._devices.list_lower_devices(device)
            }
            self._stacked, self._empty = list(stacked.values()), []
        else:
            self._stacked = []
            self._empty = [disk for disk in self._devices.iter_disks() if not disk.size_bytes]
        self._slaves = [device.list_lower_devices() for device in self._stacked]

    def _has_moved(self) -> bool:
        return (
            not all(member.is_present() and member.is_in_place() for member in self.members)
            or any(disk.size_bytes for disk in self._empty)
            or [device.list_lower_devices() for device in self._stacked] != self._slaves
        )

    def _compare_leaves(
        self, leaves: Sequence[Leaf], before: dict[str, int], refused: Sequence[tuple[Leaf, str]]
    ) -> Change:
        left = [
            Departure(member, why)
            for member in self.members
            if (why := self._find_departure(member, leaves)) is not None
        ]
        gone = [departure.member for departure in left]
        self.members = [member for member in self.members if member not in gone]
        self._left |= {member.name: member.identity for member in gone}
        came, failed = self._find_arrivals(leaves, before)
        self.members += came
        return Change(tuple(came), tuple(left), (*refused, *failed))

    def _find_arrivals(
        self, leaves: Sequence[Leaf], before: dict[str, int]
    ) -> tuple[list[Member], list[tuple[Leaf, str]]]:
        """Return the new members, and new disks that cannot be watched."""
        watched = {member.leaf for member in self.members}
        came: list[Member] = []
        refused: list[tuple[Leaf, str]] = []
        for leaf in leaves:
            if leaf in watched or not self._is_complete(leaf, before):
                continue
            try:
                member = Member(leaf)
            except OpwatchError as error:
                refused.append((leaf, str(error)))
                continue
            if member.is_present():
                member.is_back = (
                    member.identity is not None and self._left.get(member.name) == member.identity
                )
                came.append(member)
            else:
                # A named disk, or a disk below a stacked device, is a leaf even without a medium.
                member.close()
                self._empty.append(leaf.device)
        return came, refused

    def _find_departure(self, member: Member, leaves: Sequence[Leaf]) -> DepartureReason | None:
        """Return the reason why a member left, or None if still present."""
        absence = self.find_absence(member)
        if absence:
            return absence
        if not member.is_in_place():
            return DepartureReason.RESIZED
        return None if member.leaf in leaves else DepartureReason.UNUSED

    def _is_complete(self, leaf: Leaf, before: dict[str, int]) -> bool:
        """Return True if sysfs has the whole disk. The queues of a new disk appear last."""
        disk = leaf.device.disk
        return disk.is_request_based or self.registered.get(disk.name) == before.get(disk.name)


def _partition_sectors(device: BlockDevice) -> tuple[int, int] | None:
    return device.sector_range if device.is_partition else None
