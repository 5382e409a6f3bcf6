"""A disk that is ours alone for a while: opened once, exclusively, locked, and known by its descriptor."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from pathlib import Path
from types import TracebackType

from opwatch.collectors.guard.looking import identity_of_disk, look_at
from opwatch.errors import OpwatchError, PermissionMissing, RefusedError
from opwatch.frozen import replace
from opwatch.guard.facts import without_part
from opwatch.guard.identity import DiskIdentity
from opwatch.guard.obstacles import Consent, obstacles, require_none
from opwatch.host.device import BlockDevice, Devices
from opwatch.host.loop import diskseq

# udev looks into a disk that is new, and has it open meanwhile.
_PATIENCE_S = 10.0


class HeldDisk:
    """A disk that is ours while this is entered. Nobody can mount it, swap on it or build on it meanwhile,
    udev leaves it alone, and neither a rename nor a number that is used again can put another disk in its
    place. `path` is for tools that are started. RefusedError where anything speaks against it."""

    def __init__(self, devices: Devices, named: str, consent: Consent) -> None:
        self.devices, self._consent = devices, consent
        self.facts = look_at(devices, named)
        require_none(obstacles(self.facts, consent))
        self.identity = self.facts.identity
        # It is looked up by its number: the name that was given may lead elsewhere by now.
        disk = devices.by_number(*self.identity.dev)
        if disk is None:
            raise RefusedError(f"{named} has gone since it was looked at")
        self.disk = disk
        # Set by whoever purges it: what is on it from then on is ours.
        self.is_purged = False
        # The name of a partition that was made of it since, by whoever holds it.
        self.own_part: str | None = None
        # The size that it has for as long as whoever holds it has made it smaller.
        self.own_size: int | None = None
        self._descriptor = -1

    def __enter__(self) -> HeldDisk:
        self._descriptor = _open(Path("/dev") / self.identity.name)
        try:
            self._require_descriptor()
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # What came between the first look and the claim would stay.
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
        """A path that leads to this disk, whatever its node is by then."""
        return f"/proc/{os.getpid()}/fd/{self.fileno()}"

    def fileno(self) -> int:
        if self._descriptor < 0:
            raise OpwatchError(f"{self.identity.name} is not open")
        return self._descriptor

    def require_ours(self, idle_s: float = 0.5) -> None:
        """RefusedError when it is another disk, or anything speaks against going on by now. Asked before
        every step that writes, while nothing of ours does."""
        self._require_descriptor()
        facts = look_at(
            self.devices, self.identity.name, is_ours=True, reads_contents=not self.is_purged, idle_s=idle_s
        )
        if self.own_part:
            facts = without_part(facts, self.own_part)
        require_none(obstacles(facts, replace(self._consent, planned=self._identity_now())))

    def _identity_now(self) -> DiskIdentity:
        """Which disk it has to be, with the size that we have given it."""
        return replace(self.identity, size_bytes=self.own_size) if self.own_size else self.identity

    def _require_descriptor(self) -> None:
        """RefusedError unless its name leads to what we have open: what is known of it is looked up by its
        name."""
        name, status = self.identity.name, os.fstat(self.fileno())
        dev = (os.major(status.st_rdev), os.minor(status.st_rdev))
        life = diskseq(self.fileno())
        if not stat.S_ISBLK(status.st_mode) or dev != self.identity.dev:
            raise RefusedError(f"/dev/{name} leads to another device than the {name} that was looked at")
        disk = self.devices.by_number(*dev)
        if disk is None or (life is not None and life != self.identity.diskseq):
            raise RefusedError(f"{name} has gone; another drive may have its name by now")
        if identity_of_disk(self.devices, disk) != self._identity_now():
            raise RefusedError(f"{name} is another drive by now than the one that was looked at")

    def take(self, disk: BlockDevice) -> None:
        """Hold another disk from now on: what came of this one, by whoever holds it. Its contents are ours,
        and its names are others. udev may look at it first, and is waited for."""
        self.close()
        self.disk, self.identity = disk, identity_of_disk(self.devices, disk)
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


def _open(node: Path) -> int:
    try:
        return os.open(node, os.O_RDWR | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW)
    except PermissionError as error:
        raise PermissionMissing(f"{node} is for root only") from error
    except OSError as error:
        if error.errno == errno.EBUSY:
            raise RefusedError(f"{node} is in use: the kernel gives it to nobody else") from error
        raise OpwatchError(f"{node}: {error.strerror}") from error
