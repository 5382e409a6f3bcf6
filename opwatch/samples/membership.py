"""Which disks do the I/O of what is watched, looked at again and again: who came, who left, and why."""

from __future__ import annotations

import enum
import time
from collections.abc import Sequence

from opwatch.errors import OpwatchError
from opwatch.frozen import frozen
from opwatch.host.device import BlockDevice, Devices, Leaf, Presence, identity_of
from opwatch.samples.selection import Selection

_now = time.monotonic


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
        self.identity = identity_of(leaf.device)
        # The same drive was watched before.
        self.is_back = False
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


class Named:
    """A device that a person named. It may go, and come back as another device of sysfs."""

    def __init__(self, device: BlockDevice) -> None:
        self.device, self.identity = device, identity_of(device)
        self._presence = Presence(device)
        self._gone_at: float | None = None
        # The last other drive under its name.
        self._refused: tuple[str | None, str | None] | None = None

    def is_present(self) -> bool:
        """Whether it is there. Once it was gone, only is_back_as() says that it is again."""
        if self._gone_at is None and not self._presence.holds():
            self._gone_at = _now()
        return self._gone_at is None

    def is_given_up(self, within_s: float) -> bool:
        """Whether it has been gone for this long."""
        return not self.is_present() and self._gone_at is not None and _now() - self._gone_at >= within_s

    def is_back_as(self, device: BlockDevice) -> bool:
        """Whether this is the same drive; from then on it is the device that is named."""
        if self.identity is None:
            return False
        try:
            presence = Presence(device)
        except OpwatchError:
            return False
        # Asked behind that: another one that takes its place now is noticed by its presence.
        if not presence.holds() or identity_of(device) != self.identity:
            presence.close()
            return False
        self._presence.close()
        self.device, self._presence, self._gone_at, self._refused = device, presence, None, None
        return True

    def why_refused(self, device: BlockDevice) -> str | None:
        """Return why a device under its name is not watched, once for each; None if that was said."""
        now = identity_of(device), device.disk.attribute("diskseq")
        if self._refused == now:
            return None
        self._refused = now
        if now[0] is None or self.identity is None:
            return "nothing shows that it is the drive that was watched before"
        return f"it is another drive ({now[0]}) than the one that was watched before ({self.identity})"

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
    same device, with the same statistics. A named device that goes is waited for, for `return_within_s`, and
    watched again when the same drive comes back under its name."""

    def __init__(self, devices: Devices, selection: Selection, return_within_s: float = 0.0) -> None:
        self._devices, self._selection = devices, selection
        self.return_within_s = return_within_s
        self._named = [Named(device) for device in selection.named]
        # Identities of what has left, by name.
        self._left: dict[str, str | None] = {}
        self.registered = devices.registered()
        # Before the set is worked out: what changes meanwhile is another state at the next look.
        self._note_state()
        self.members = [Member(leaf) for leaf in selection.leaves()]
        # Disks that are being added appear bit by bit: look again soon.
        self.is_unsettled = False

    def vanished(self) -> str | None:
        """Return the first named device that is gone and no longer waited for, or None."""
        given_up = (named for named in self._named if named.is_given_up(self.return_within_s))
        return next((named.device.name for named in given_up), None)

    def absent(self) -> str | None:
        """Return the first named device that is gone, or whose name another has; None if all are there."""
        return next((named.device.name for named in self._named if not named.is_present()), None)

    def absence(self, member: Member) -> Why | None:
        """Whether a device has gone or was replaced since the last look; None when it is still there."""
        if member.is_present():
            return None
        now = self._devices.by_name(member.name)
        if not now or not now.size_bytes:
            return Why.GONE
        is_same = member.identity is not None and identity_of(now) == member.identity
        return Why.GONE if is_same else Why.REPLACED

    def look(self) -> Change | None:
        """What changed since the last look; None when nothing did, which is found out at little cost."""
        registered = self._devices.registered()
        before, was_unsettled = self.registered, self.is_unsettled
        refused, is_back = self._take_back(registered)
        is_same = registered == before and not refused and not is_back
        if is_same and not was_unsettled and not self._has_moved():
            return None
        self.registered = registered
        self._note_state()
        change = self._compare(self._selection.leaves(), before, refused)
        self.is_unsettled = registered != before or bool(change.came)
        return change if change.came or change.left or change.refused else None

    def _take_back(self, registered: dict[str, int]) -> tuple[list[tuple[Leaf, str]], bool]:
        """Select named drives again that have come back. Returns other drives under their names, once each,
        and whether one has come back."""
        refused: list[tuple[Leaf, str]] = []
        gone = [named for named in self._named if not named.is_present()]
        for named in gone:
            name = named.device.name
            device = self._devices.by_name(name)
            if not device or not device.size_bytes or named.is_back_as(device):
                continue
            # One that is being added has not all of its attributes yet: it is asked again.
            is_complete = registered.get(name) == self.registered.get(name)
            if is_complete and (why := named.why_refused(device)):
                refused.append((Leaf(device, device), why))
        absent = {named.device for named in gone if not named.is_present()}
        self._selection.named, self._selection.absent = [named.device for named in self._named], absent
        return refused, len(absent) < len(gone)

    def forget(self, member: Member) -> None:
        """Leave out one that could not be watched. It comes again with the next change."""
        self.members.remove(member)
        self.is_unsettled = False
        member.close()

    def close(self) -> None:
        for named in self._named:
            named.close()
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

    def _compare(
        self, leaves: Sequence[Leaf], before: dict[str, int], refused: Sequence[tuple[Leaf, str]]
    ) -> Change:
        left = [
            Departure(member, why)
            for member in self.members
            if (why := self._why_it_left(member, leaves)) is not None
        ]
        gone = [departure.member for departure in left]
        self.members = [member for member in self.members if member not in gone]
        self._left |= {member.name: member.identity for member in gone}
        came, failed = self._arrivals(leaves, before)
        self.members += came
        return Change(tuple(came), tuple(left), (*refused, *failed))

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
                member.is_back = (
                    member.identity is not None and self._left.get(member.name) == member.identity
                )
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
