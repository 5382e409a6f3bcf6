"""Hold a mounted file system for a sweep's files: opened once, locked, and identified by its descriptor."""

from __future__ import annotations

import fcntl
import os
from contextlib import ExitStack
from dataclasses import replace
from types import TracebackType

from opwatch.collectors.guard.looking import look_at
from opwatch.collectors.space.fitrim import check_mount
from opwatch.collectors.space.free_space import settle
from opwatch.collectors.space.mount_handle import mount_number, opened
from opwatch.errors import OpwatchError, RefusedError
from opwatch.guard.facts import GuardFacts
from opwatch.guard.mounted import obstacles_of_mount, of_other_parts
from opwatch.guard.obstacles import Consent, Obstacle, obstacles, require_none
from opwatch.host.device import SECTOR, BlockDevice, Devices
from opwatch.host.usage import Mount, read_usage
from opwatch.sweep.room import FilesPlace, FilesystemRoom


def room_of(disk: BlockDevice, at: int | str) -> FilesystemRoom:
    """Return the current space of the file system at a path or descriptor."""
    try:
        status = os.statvfs(at)
    except OSError as error:
        raise OpwatchError(f"{disk.name}: its file system tells nothing: {error.strerror}") from error
    unit = status.f_frsize
    return FilesystemRoom(
        disk.size_bytes, status.f_blocks * unit, status.f_bfree * unit, status.f_bavail * unit
    )


def place_of(device: BlockDevice, point: str) -> FilesPlace:
    return FilesPlace(point, (device.number("start") or 0) * SECTOR, device.size_bytes)


def reasons_against(
    devices: Devices, device: BlockDevice, mount: Mount, consent: Consent
) -> tuple[GuardFacts, list[Obstacle]]:
    """Return (facts about the drive, all obstacles to files on this mount). Only reads."""
    facts = look_at(devices, device.disk.name, is_ours=True, reads_contents=False)
    facts = of_other_parts(facts, device.name)
    return facts, [*obstacles_of_mount(mount, device.name, device.dev), *obstacles(facts, consent)]


class HeldMount:
    """A mount, on the drive named by the user, that stays mounted inside the `with` block. Other programs may
    use the mount; their writes are counted. Raises RefusedError if there is any obstacle."""

    def __init__(self, devices: Devices, named: str, point: str, consent: Consent) -> None:
        # Nothing but our own files is destroyed, so --destroy is not needed.
        self.devices, self._consent = devices, replace(consent, destroy=True)
        self.device = devices.resolve(named)
        self.mount = check_mount(point)
        require_none([*obstacles_of_mount(self.mount, self.device.name, self.device.dev)])
        with opened(self.mount) as descriptor:
            # Flush first: the file system's own delayed writes must not look like another user.
            settle(descriptor)
        self.facts, reasons = reasons_against(devices, self.device, self.mount, self._consent)
        require_none(reasons)
        self.identity, self.disk = self.facts.identity, self.device.disk
        self.place = place_of(self.device, self.mount.point)
        self._stack = ExitStack()
        self._descriptor = -1

    def __enter__(self) -> HeldMount:
        with ExitStack() as stack:
            self._descriptor = stack.enter_context(opened(self.mount))
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise RefusedError(f"{self.mount.point} is locked by another program (flock)") from None
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._descriptor = -1
        self._stack.close()

    def fileno(self) -> int:
        if self._descriptor < 0:
            raise OpwatchError(f"{self.mount.point} is not open")
        return self._descriptor

    def room(self) -> FilesystemRoom:
        """Return the space after all deleted files are freed."""
        settle(self.fileno())
        return room_of(self.disk, self.fileno())

    def require_ours(self) -> None:
        """Raise RefusedError if the drive was replaced, the mount is gone or any obstacle has appeared.
        Called before every writing step, while we do no I/O."""
        settle(self.fileno())
        number = mount_number(self.fileno())
        if not any(self._is_same(mount, number) for mount in read_usage().mounts):
            raise RefusedError(f"{self.mount.point} is not the mount any more that was looked at")
        device = self.devices.by_number(*self.device.dev)
        if device is None:
            raise RefusedError(f"{self.device.name} has gone; another drive may have its name by now")
        consent = replace(self._consent, planned=self.identity)
        require_none(reasons_against(self.devices, device, self.mount, consent)[1])

    def _is_same(self, mount: Mount, number: int | None) -> bool:
        return (mount.number, mount.point, mount.dev) == (number, self.mount.point, self.mount.dev)
