"""Hold a disk exclusively for a while: opened once, locked, and identified by its descriptor."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from opwatch.collectors.guard.disk_facts import collect_facts, read_disk_identity
from opwatch.errors import OpwatchError, PermissionMissing, RefusedError
from opwatch.guard.facts import remove_own_part
from opwatch.guard.identity import DiskIdentity
from opwatch.guard.obstacles import Consent, find_obstacles, require_no_obstacles
from opwatch.host.device import BlockDevice, Devices
from opwatch.host.loop import read_diskseq

# udev probes a new disk and keeps the device open while probing.
_PATIENCE_S = 10.0


class HeldDisk:
    """A disk held exclusively inside the `with` block: no other program can mount it, swap on it or stack a
    device on it, udev leaves it alone, and neither a rename nor a reused number can substitute another disk.
    `path` is for tools started by opwatch. Raises RefusedError if there is any obstacle."""

    def __init__(self, devices: Devices, named: str, consent: Consent) -> None:
        self.devices, self._consent = devices, consent
        self.facts = collect_facts(devices, named)
        # Only a sweep that has begun, and may have written, has a planned disk already.
        require_no_obstacles(find_obstacles(self.facts, consent), is_begun=consent.planned is not None)
        self.identity = self.facts.identity
        # Look the disk up by number: the given name may belong to another disk by now.
        disk = devices.by_number(*self.identity.dev)
        if disk is None:
            raise RefusedError(f"{named} has disappeared since it was checked")
        self.disk = disk
        # Set by the caller after purging the disk: from then on the contents are ours.
        self.is_purged = False
        # Name of a partition created by the caller.
        self.own_part: str | None = None
        # The disk's size while the caller has reduced it.
        self.own_size: int | None = None
        self._descriptor = -1

    def __enter__(self) -> HeldDisk:
        self._descriptor = _open_exclusive(Path("/dev") / self.identity.name)
        try:
            self._require_descriptor()
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Check again: anything that happened between the first check and the claim is still there.
            self.require_ours()
        except BlockingIOError:
            self.close()
            raise RefusedError(f"/dev/{self.identity.name} is locked by another program (flock)") from None
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def path(self) -> str:
        """A path to this disk, even if its device node changes."""
        return f"/proc/{os.getpid()}/fd/{self.fileno()}"

    def fileno(self) -> int:
        if self._descriptor < 0:
            raise OpwatchError(f"{self.identity.name} is not open")
        return self._descriptor

    def require_ours(self, idle_s: float = 0.5) -> None:
        """Raise RefusedError if the disk was replaced or any obstacle has appeared. Called before every
        writing step, while we do no I/O."""
        self._require_descriptor()
        facts = collect_facts(
            self.devices, self.identity.name, is_ours=True, reads_contents=not self.is_purged, idle_s=idle_s
        )
        if self.own_part:
            facts = remove_own_part(facts, self.own_part)
        require_no_obstacles(
            find_obstacles(facts, replace(self._consent, planned=self._make_expected_identity())),
            is_begun=self.is_purged,
        )

    def _make_expected_identity(self) -> DiskIdentity:
        """Return the expected identity, with the size set by the caller."""
        return replace(self.identity, size_bytes=self.own_size) if self.own_size else self.identity

    def _require_descriptor(self) -> None:
        """Raise RefusedError unless the disk's name still refers to the open device, because facts are looked
        up by name."""
        name, status = self.identity.name, os.fstat(self.fileno())
        dev = (os.major(status.st_rdev), os.minor(status.st_rdev))
        life = read_diskseq(self.fileno())
        if not stat.S_ISBLK(status.st_mode) or dev != self.identity.dev:
            raise RefusedError(f"/dev/{name} is no longer the {name} that was checked")
        disk = self.devices.by_number(*dev)
        if disk is None or (life is not None and life != self.identity.diskseq):
            raise RefusedError(f"{name} has disappeared; another drive may have its name now")
        if read_disk_identity(self.devices, disk) != self._make_expected_identity():
            raise RefusedError(f"{name} is no longer the drive that was checked")

    def switch_disk(self, disk: BlockDevice) -> None:
        """Switch to the disk that the caller created in place of the current one, such as a new namespace.
        Contents are ours, names differ. Wait for udev, which may probe the new disk first."""
        self.close()
        self.disk, self.identity = disk, read_disk_identity(self.devices, disk)
        until = time.monotonic() + _PATIENCE_S
        while True:
            try:
                self.__enter__()
            except RefusedError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.1)
            else:
                return

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _open_exclusive(node: Path) -> int:
    try:
        return os.open(node, os.O_RDWR | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW)
    except PermissionError as error:
        raise PermissionMissing(f"{node} needs root") from error
    except OSError as error:
        if error.errno == errno.EBUSY:
            raise RefusedError(f"{node} is in use: the kernel refuses exclusive access") from error
        raise OpwatchError(f"{node}: {error.strerror}") from error
