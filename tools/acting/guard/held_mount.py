"""Hold a mounted file system for a sweep's files: opened once, locked, and identified by its descriptor."""

from __future__ import annotations

import fcntl
import os
from contextlib import ExitStack
from dataclasses import replace
from types import TracebackType

from opwatch.collectors.guard.disk_facts import collect_facts
from opwatch.collectors.space.free_space import sync_filesystem
from opwatch.collectors.space.mount_handle import open_mount, read_mount_number
from opwatch.errors import OpwatchError, RefusedError
from opwatch.guard.facts import GuardFacts
from opwatch.guard.mounted import find_mount_obstacles, keep_other_parts
from opwatch.guard.obstacles import Consent, Obstacle, find_obstacles, require_no_obstacles
from opwatch.host.device import SECTOR, BlockDevice, Devices
from opwatch.host.usage import Mount, read_usage
from opwatch.sweep.room import FilesPlace, FilesystemRoom
from opwatch.tools.acting.trim.fitrim import check_mount


def read_room(disk: BlockDevice, at: int | str) -> FilesystemRoom:
    """Return the current space of the file system at a path or descriptor."""
    try:
        status = os.statvfs(at)
    except OSError as error:
        raise OpwatchError(f"{disk.name}: cannot query its filesystem: {error.strerror}") from error
    unit = status.f_frsize
    return FilesystemRoom(
        disk.size_bytes, status.f_blocks * unit, status.f_bfree * unit, status.f_bavail * unit
    )


def locate_files(device: BlockDevice, point: str) -> FilesPlace:
    return FilesPlace(point, (device.read_number("start") or 0) * SECTOR, device.size_bytes)


def list_mount_objections(
    devices: Devices, device: BlockDevice, mount: Mount, consent: Consent
) -> tuple[GuardFacts, list[Obstacle]]:
    """Return (facts about the drive, all obstacles to files on this mount). Only reads."""
    facts = collect_facts(devices, device.disk.name, is_ours=True, reads_contents=False)
    facts = keep_other_parts(facts, device.name)
    return facts, [*find_mount_obstacles(mount, device.name, device.dev), *find_obstacles(facts, consent)]


class HeldMount:
    """A mount, on the drive named by the user, that stays mounted inside the `with` block. Other programs may
    use the mount; their writes are counted. Raises RefusedError if there is any obstacle."""

    def __init__(self, devices: Devices, named: str, point: str, consent: Consent) -> None:
        # Nothing but our own files is destroyed, so --destroy is not needed.
        self.devices, self._consent = devices, replace(consent, destroy=True)
        self.device = devices.resolve(named)
        self.mount = check_mount(point)
        require_no_obstacles([*find_mount_obstacles(self.mount, self.device.name, self.device.dev)])
        with open_mount(self.mount) as descriptor:
            # Flush first: the file system's own delayed writes must not look like another user.
            sync_filesystem(descriptor)
        self.facts, reasons = list_mount_objections(devices, self.device, self.mount, self._consent)
        require_no_obstacles(reasons)
        self.identity, self.disk = self.facts.identity, self.device.disk
        self.place = locate_files(self.device, self.mount.point)
        self._stack = ExitStack()
        self._descriptor = -1

    def __enter__(self) -> HeldMount:
        with ExitStack() as stack:
            self._descriptor = stack.enter_context(open_mount(self.mount))
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

    def read_settled_room(self) -> FilesystemRoom:
        """Return the space after all deleted files are freed."""
        sync_filesystem(self.fileno())
        return read_room(self.disk, self.fileno())

    def require_ours(self) -> None:
        """Raise RefusedError if the drive was replaced, the mount is gone or any obstacle has appeared.
        Called before every writing step, while we do no I/O."""
        sync_filesystem(self.fileno())
        number = read_mount_number(self.fileno())
        if not any(self._is_same(mount, number) for mount in read_usage().mounts):
            raise RefusedError(f"{self.mount.point} is no longer the mount that was checked")
        device = self.devices.by_number(*self.device.dev)
        if device is None:
            raise RefusedError(f"{self.device.name} has disappeared; another drive may have its name now")
        consent = replace(self._consent, planned=self.identity)
        require_no_obstacles(
            list_mount_objections(self.devices, device, self.mount, consent)[1], is_begun=True
        )

    def _is_same(self, mount: Mount, number: int | None) -> bool:
        return (mount.number, mount.point, mount.dev) == (number, self.mount.point, self.mount.dev)
