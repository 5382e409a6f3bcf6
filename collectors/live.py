"""Write amplification beside the tracer, in a thread of its own: no sample ever waits for a page."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from opwatch.collectors.simulated import find_simulated
from opwatch.device import BlockDevice, Devices, Leaf
from opwatch.live import Live, live

_MOST_POLLS = 20_000


def drives_of(devices: Devices, leaves: Sequence[Leaf], *, all_kinds: bool) -> dict[str, BlockDevice]:
    """The drives behind what is watched, by the name of the watched disk. Those that smartctl would have to
    read only if `all_kinds`: its commands stop the queue of a SATA drive."""
    found: dict[str, BlockDevice] = {}
    for leaf in leaves:
        # A hidden path has no node; its head does.
        disk = leaf.origin.disk if leaf.device.is_hidden else leaf.device.disk
        if all_kinds or disk.name.startswith("nvme") or find_simulated(disk):
            found[leaf.device.name] = disk
    return found


class LiveWaf:
    """Polls from start() to stop(). get() never waits."""

    def __init__(self, devices: Devices, drives: dict[str, BlockDevice], every_s: float) -> None:
        self._devices, self._drives, self._every_s = devices, drives, every_s
        self._latest: dict[str, Live] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="waf", daemon=True)

    def start(self) -> None:
        if self._drives:
            self._thread.start()

    def get(self, name: str) -> Live | None:
        """The latest of a watched disk; None for one that has no counters, or has not been looked at yet."""
        disk = self._drives.get(name)
        return self._latest.get(disk.name) if disk else None

    def _run(self) -> None:
        # Not before it is needed: this is much to import.
        from opwatch.collectors.counting import Counting
        from opwatch.counters.catalogue import load_catalogue
        from opwatch.trail import Trail

        catalogue = load_catalogue([])
        disks = {disk.name: disk for disk in self._drives.values()}
        counted = {name: Counting(self._devices, disk, catalogue) for name, disk in disks.items()}
        trails = {name: Trail() for name in disks}
        while True:
            for name, counting in counted.items():
                if self._stop.is_set():
                    return
                trail = trails[name]
                if trail.lost or len(trail.moments) > _MOST_POLLS:
                    trail = trails[name] = Trail()
                trail.add(counting.poll())
                if trail.nand:
                    self._latest[name] = live(trail)
            if self._stop.wait(self._every_s):
                return

    def stop(self) -> None:
        """Ask it to end. One that is in the middle of a command to a drive ends with the process."""
        self._stop.set()
