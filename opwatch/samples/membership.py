"""Which disks do the I/O of what is watched, looked at again and again: who came, who left, and why."""

from __future__ import annotations

import enum
from collections.abc import Sequence

from opwatch.errors import OpwatchError
from opwatch.frozen import frozen
from opwatch.host.device import BlockDevice, Devices, Leaf, Presence
from opwatch.samples.selection import Selection


class Why(enum.Enum):
    """Why a disk is watched no longer."""

    GONE = "gone"
    REPLACED = "replaced"
    RESIZED = "resized"
    UNUSED = "unused"


class Member:
    """One disk, or a part of one, from when it came to when it left."""

    def __init__(self, leaf: Leaf) -> None:
        self.leaf = leaf
        self._presence = Presence(leaf.device)
        self._sectors = _sectors(leaf.device)

    @property
    def name(self) -> str:
        return self.leaf.device.name

    def is_present(self) -> bool:
        """Whether the device is still there, and no other under its name."""
        return self._presence.holds()

    def is_unmoved(self) -> bool:
        """Whether a partition lies where it lay."""
        return self._sectors is None or self._sectors == _sectors(self.leaf.device)

    def close(self) -> None:
        self._presence.close()


@frozen
class Departure:
    """A disk that is watched no longer."""

    member: Member
    why: Why


@frozen
class Change:
    """What became of the set between two looks. `refused` came and cannot be followed, for a reason."""

    came: tuple[Member, ...]
    left: tuple[Departure, ...]
    refused: tuple[tuple[Leaf, str], ...] = ()


class Membership:
    """Follows a selection. Only sysfs is believed: events of the kernel may be lost, and tell no more than
    that it is time to look. `registered` is what lay there at the last look: under the same number lies the
    same device, with the same statistics."""

    def __init__(self, devices: Devices, selection: Selection) -> None:
        self._devices, self._selection = devices, selection
        self._named = [Presence(device) for device in selection.named]
        self.registered = devices.registered()
        # Before the set is worked out: what changes meanwhile is another state at the next look.
        self._note_state()
        self.members = [Member(leaf) for leaf in selection.leaves()]
        # Disks that are being added appear bit by bit: look again soon.
        self.is_unsettled = False

    def vanished(self) -> str | None:
        """The first named device that is no longer there, or is another one under the same name."""
        for device, presence in zip(self._selection.named, self._named, strict=True):
            if not presence.holds():
                return device.name
        return None

    def absence(self, member: Member) -> Why | None:
        """Whether a device has gone or was replaced since the last look; None when it is still there."""
        if member.is_present():
            return None
        now = self._devices.by_name(member.name)
        return Why.REPLACED if now and now.size_bytes else Why.GONE

    def look(self) -> Change | None:
        """What changed since the last look; None when nothing did, which is found out at little cost."""
        registered = self._devices.registered()
        if not self.is_unsettled and registered == self.registered and not self._has_moved():
            return None
        before, self.registered = self.registered, registered
        self._note_state()
        change = self._compare(self._selection.leaves(), before)
        self.is_unsettled = registered != before or bool(change.came)
        return change if change.came or change.left or change.refused else None

    def forget(self, member: Member) -> None:
        """Leave out one that could not be watched. It comes again with the next change."""
        self.members.remove(member)
        self.is_unsettled = False
        member.close()

    def close(self) -> None:
        for presence in self._named:
            presence.close()
        for member in self.members:
            member.close()

    def _note_state(self) -> None:
        """Note what has to stay as it is for the set to stay as it is."""
        if self._selection.named:
            stacked = {
                below.name: below
                for device in self._selection.named
                for below in self._devices.standing_on(device)
            }
            self._stacked, self._empty = list(stacked.values()), []
        else:
            self._stacked = []
            self._empty = [disk for disk in self._devices.disks() if not disk.size_bytes]
        self._slaves = [device.below() for device in self._stacked]

    def _has_moved(self) -> bool:
        return (
            not all(member.is_present() and member.is_unmoved() for member in self.members)
            or any(disk.size_bytes for disk in self._empty)
            or [device.below() for device in self._stacked] != self._slaves
        )

    def _compare(self, leaves: Sequence[Leaf], before: dict[str, int]) -> Change:
        left = [
            Departure(member, why)
            for member in self.members
            if (why := self._why_it_left(member, leaves)) is not None
        ]
        gone = [departure.member for departure in left]
        self.members = [member for member in self.members if member not in gone]
        came, refused = self._arrivals(leaves, before)
        self.members += came
        return Change(tuple(came), tuple(left), tuple(refused))

    def _arrivals(
        self, leaves: Sequence[Leaf], before: dict[str, int]
    ) -> tuple[list[Member], list[tuple[Leaf, str]]]:
        """What came, and what came and cannot be followed."""
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
                came.append(member)
            else:
                # A disk that is named, or that something stands on, is a leaf without a medium too.
                member.close()
                self._empty.append(leaf.device)
        return came, refused

    def _why_it_left(self, member: Member, leaves: Sequence[Leaf]) -> Why | None:
        """Why a member left; None when it has not."""
        absence = self.absence(member)
        if absence:
            return absence
        if not member.is_unmoved():
            return Why.RESIZED
        return None if member.leaf in leaves else Why.UNUSED

    def _is_complete(self, leaf: Leaf, before: dict[str, int]) -> bool:
        """Whether sysfs shows all of a disk: the queues of one that is being added come last."""
        disk = leaf.device.disk
        return disk.is_request_based or self.registered.get(disk.name) == before.get(disk.name)


def _sectors(device: BlockDevice) -> tuple[int, int] | None:
    return device.sectors if device.is_partition else None
