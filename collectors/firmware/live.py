"""Firmware counters read beside the tracer, in a thread of its own: no sample ever waits for a page."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from opwatch.collectors.firmware.drive_folder import drive_folder
from opwatch.counters.looks.sample import FirmwareSample, Refusal, refusal_of
from opwatch.counters.reading import DriveFacts
from opwatch.errors import OpwatchError
from opwatch.host.device import BlockDevice, Devices, Leaf

# The summary waits for its look at the counters so long.
LAST_LOOK_S = 2.0


def drives_of(leaves: Sequence[Leaf], *, all_kinds: bool) -> dict[str, BlockDevice]:
    """The drives behind what is watched, by the name of the watched disk. Those that smartctl would have to
    read are in it only with `all_kinds`: its commands stop the queue of a SATA drive."""
    drives: dict[str, BlockDevice] = {}
    for leaf in leaves:
        # A hidden path has no node; its head does.
        disk = leaf.origin.disk if leaf.device.is_hidden else leaf.device.disk
        if all_kinds or disk.name.startswith("nvme") or drive_folder(disk):
            drives[leaf.device.name] = disk
    return drives


class LiveWaf:
    """Looks at drives from start() to stop(), in a thread. `drives` tells which are behind disks that come.
    What the looks say is for others to work out; nothing here waits for one but look()."""

    def __init__(
        self, devices: Devices, drives: Callable[[Sequence[Leaf]], dict[str, BlockDevice]], every_s: float
    ) -> None:
        self._devices, self._drives_of, self._every_s = devices, drives, every_s
        # It is never changed in place: the thread may be going through it.
        self._drives: dict[str, BlockDevice] = {}
        self._samples: deque[FirmwareSample] = deque()
        # Why the thread has ended by itself, and which drives have that for their reason.
        self._died: Refusal | None = None
        self._mourned: set[str] = set()
        self._started = False
        self._stop, self._wake, self._looked = (threading.Event() for _ in range(3))
        self._thread = threading.Thread(target=self._run, name="waf", daemon=True)

    def start(self) -> None:
        self._started = True
        if self._drives and self._thread.ident is None:
            self._thread.start()

    def add(self, leaves: Sequence[Leaf]) -> None:
        """Look at the drives of these as well, from the next round on."""
        self._drives = self._drives | self._drives_of(leaves)
        if self._started:
            self.start()

    def drop(self, leaf: Leaf) -> None:
        """A watched disk has left. Its drive is looked at while another disk leads to it."""
        self._drives = {name: disk for name, disk in self._drives.items() if name != leaf.device.name}

    def drive_of(self, leaf: Leaf) -> str | None:
        """The drive whose counters tell of a watched disk; None where they are not read."""
        drive = self._drives.get(leaf.device.name)
        return drive.name if drive else None

    def samples(self) -> list[FirmwareSample]:
        """All looks since the last call. A thread that has died has a last one for each drive: why."""
        died = self._died
        samples = [self._samples.popleft() for _ in range(len(self._samples))]
        for disk in self._drives.values() if died else ():
            if died and disk.name not in self._mourned:
                self._mourned.add(disk.name)
                samples.append(_not_read(disk, died))
        return samples

    def look(self, longest_s: float = LAST_LOOK_S) -> None:
        """One more look, at once. A drive that takes longer to answer is not waited for."""
        if self._thread.is_alive():
            self._looked.clear()
            self._wake.set()
            self._looked.wait(longest_s)

    def _run(self) -> None:
        """Look at the drives until it is stopped. Whatever ends it before is the reason of every drive from
        then on: the last figure is no longer true."""
        try:
            self._look_at_all()
        except Exception as error:
            words = str(error) if isinstance(error, OpwatchError) else f"{type(error).__name__}: {error}"
            self._died = refusal_of(OpwatchError(words))
        finally:
            self._looked.set()

    def _look_at_all(self) -> None:
        # It is not imported before it is needed: that takes long, and whoever works out what the looks say
        # needs the same, in a thread that has no time for it.
        from opwatch.collectors.firmware.counting import Counting, counted_on
        from opwatch.counters.catalogue.families import standard_catalogue
        from opwatch.waf import live_trail  # noqa: F401

        catalogue = standard_catalogue()
        counted: dict[str, Counting] = {}
        while True:
            last = self._wake.is_set()
            for name, disk in {disk.name: disk for disk in self._drives.values()}.items():
                if self._stop.is_set():
                    return
                counting = counted.get(name)
                if counting is None or counting.counted_on != counted_on(self._devices, disk):
                    if counting:
                        counting.close()
                    counting = counted[name] = Counting(self._devices, disk, catalogue)
                self._samples.append(counting.look())
            if last:
                self._wake.clear()
                self._looked.set()
            self._wake.wait(self._every_s)
            if self._stop.is_set():
                return

    def stop(self) -> None:
        """Ask it to end. One that is in the middle of a command to a drive ends with the process."""
        self._stop.set()
        self._wake.set()


def _not_read(disk: BlockDevice, why: Refusal) -> FirmwareSample:
    """A look that reads nothing, for a reason."""
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
