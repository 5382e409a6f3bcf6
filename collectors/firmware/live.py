"""Read firmware counters during tracing, in a separate thread so that no sample waits for a page."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from opwatch.collectors.firmware.drive_folder import find_drive_folder
from opwatch.counters.looks.sample import FirmwareSample, Refusal, make_refusal
from opwatch.counters.reading import DriveFacts
from opwatch.errors import OpwatchError
from opwatch.host.device import BlockDevice, Devices, Leaf

# Maximum wait of the summary for the last poll.
LAST_POLL_S = 2.0


def find_drives(leaves: Sequence[Leaf], *, all_kinds: bool) -> dict[str, BlockDevice]:
    """Return the drives behind the watched disks, by the name of the watched disk.

    Drives that need smartctl are included only with `all_kinds`, because its commands stall a SATA drive's
    queue.
    """
    drives: dict[str, BlockDevice] = {}
    for leaf in leaves:
        # A hidden path has no node, but its multipath head does.
        disk = leaf.origin.disk if leaf.device.is_hidden else leaf.device.disk
        if all_kinds or disk.name.startswith("nvme") or find_drive_folder(disk):
            drives[leaf.device.name] = disk
    return drives


class LiveWaf:
    """Polls drives in a thread from start() until stop().

    `drives` returns the drives behind new disks. Callers evaluate the samples. Only look() waits for a poll.
    """

    def __init__(
        self, devices: Devices, drives: Callable[[Sequence[Leaf]], dict[str, BlockDevice]], every_s: float
    ) -> None:
        self._devices, self._drives_of, self._every_s = devices, drives, every_s
        # Replaced instead of modified, because the thread may be iterating over it.
        self._drives: dict[str, BlockDevice] = {}
        self._samples: deque[FirmwareSample] = deque()
        # Error that ended the thread, and the drives with a report of the error.
        self._died: Refusal | None = None
        self._mourned: set[str] = set()
        self._started = False
        self._stop, self._wake, self._looked = (threading.Event() for _ in range(3))
        self._thread = threading.Thread(target=self._poll_until_stopped, name="waf", daemon=True)

    def start(self) -> None:
        self._started = True
        if self._drives and self._thread.ident is None:
            self._thread.start()

    def add_leaves(self, leaves: Sequence[Leaf]) -> None:
        """Poll the drives behind these leaves too, starting with the next round."""
        self._drives = self._drives | self._drives_of(leaves)
        if self._started:
            self.start()

    def remove_leaf(self, leaf: Leaf) -> None:
        """Remove a watched disk. Its drive is still polled if another watched disk uses it."""
        self._drives = {name: disk for name, disk in self._drives.items() if name != leaf.device.name}

    def drive_of(self, leaf: Leaf) -> str | None:
        """Return the drive with the counters for a watched disk, or None if not read."""
        drive = self._drives.get(leaf.device.name)
        return drive.name if drive else None

    def take_samples(self) -> list[FirmwareSample]:
        """Return all samples since the last call. If the thread has died, each drive gets a last one with the
        reason."""
        died = self._died
        samples = [self._samples.popleft() for _ in range(len(self._samples))]
        for disk in self._drives.values() if died else ():
            if died and disk.name not in self._mourned:
                self._mourned.add(disk.name)
                samples.append(_make_unread_sample(disk, died))
        return samples

    def poll_now(self, longest_s: float = LAST_POLL_S) -> None:
        """Poll once more, immediately. Does not wait longer for a slow drive."""
        if self._thread.is_alive():
            self._looked.clear()
            self._wake.set()
            self._looked.wait(longest_s)

    def _poll_until_stopped(self) -> None:
        """Poll the drives until stopped.

        An error that ends the thread becomes the refusal of each drive, because the last values are outdated.
        """
        try:
            self._poll_drives()
        except Exception as error:
            words = str(error) if isinstance(error, OpwatchError) else f"{type(error).__name__}: {error}"
            self._died = make_refusal(OpwatchError(words))
        finally:
            self._looked.set()

    def _poll_drives(self) -> None:
        # Imported late, because the import is slow. live_trail is imported on behalf of the evaluating
        # thread, which has no time for imports.
        from opwatch.collectors.firmware.counting import CounterPoller, find_counting_devices
        from opwatch.counters.catalogue.families import load_standard_catalogue
        from opwatch.waf import live_trail  # noqa: F401

        catalogue = load_standard_catalogue()
        counted: dict[str, CounterPoller] = {}
        while True:
            last = self._wake.is_set()
            for name, disk in {disk.name: disk for disk in self._drives.values()}.items():
                if self._stop.is_set():
                    return
                counting = counted.get(name)
                if counting is None or counting.counted_on != find_counting_devices(self._devices, disk):
                    if counting:
                        counting.close()
                    counting = counted[name] = CounterPoller(self._devices, disk, catalogue)
                self._samples.append(counting.read_sample())
            if last:
                self._wake.clear()
                self._looked.set()
            self._wake.wait(self._every_s)
            if self._stop.is_set():
                return

    def stop(self) -> None:
        """Request the end. A thread in the middle of a command ends with the process."""
        self._stop.set()
        self._wake.set()


def _make_unread_sample(disk: BlockDevice, why: Refusal) -> FirmwareSample:
    """Return a sample without readings, for a reason."""
    now = time.monotonic_ns()
    return FirmwareSample(
        disk=disk.name,
        drive=DriveFacts(name=disk.name),
        begin_ns=now,
        end_ns=now,
        before=None,
        after=None,
        refused=why,
    )
