"""Write amplification beside the tracer, in a thread of its own: no sample ever waits for a page."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from opwatch.collectors.firmware.drive_folder import drive_folder
from opwatch.errors import OpwatchError
from opwatch.host.device import BlockDevice, Devices, Leaf
from opwatch.waf.live import Live, failed

if TYPE_CHECKING:
    from opwatch.collectors.firmware.counting import Counting
    from opwatch.waf.trail import Trail

_MOST_POLLS = 20_000
# The summary waits for its look at the counters so long.
LAST_LOOK_S = 2.0


def drives_of(leaves: Sequence[Leaf], *, all_kinds: bool) -> dict[str, BlockDevice]:
    """The drives behind what is watched, by the name of the watched disk. Those that smartctl would have to
    read only if `all_kinds`: its commands stop the queue of a SATA drive."""
    found: dict[str, BlockDevice] = {}
    for leaf in leaves:
        # A hidden path has no node; its head does.
        disk = leaf.origin.disk if leaf.device.is_hidden else leaf.device.disk
        if all_kinds or disk.name.startswith("nvme") or drive_folder(disk):
            found[leaf.device.name] = disk
    return found


class LiveWaf:
    """Polls from start() to stop(). `drives` tells which are behind disks that come. get() never waits."""

    def __init__(
        self, devices: Devices, drives: Callable[[Sequence[Leaf]], dict[str, BlockDevice]], every_s: float
    ) -> None:
        self._devices, self._drives_of, self._every_s = devices, drives, every_s
        # Never changed in place: the thread may be going through it.
        self._drives: dict[str, BlockDevice] = {}
        self._latest: dict[str, Live] = {}
        self._started = False
        self._stop, self._wake, self._looked = (threading.Event() for _ in range(3))
        self._thread = threading.Thread(target=self._run, name="waf", daemon=True)

    def start(self) -> None:
        self._started = True
        if self._drives and self._thread.ident is None:
            self._thread.start()

    def add(self, leaves: Sequence[Leaf]) -> None:
        """Poll the drives of these as well, from the next round on."""
        self._drives = self._drives | self._drives_of(leaves)
        if self._started:
            self.start()

    def drop(self, leaf: Leaf) -> None:
        """A watched disk has left. Its drive is polled on while another disk leads to it."""
        self._drives = {name: disk for name, disk in self._drives.items() if name != leaf.device.name}

    def get(self, name: str) -> Live | None:
        """The latest of a watched disk; None for one that has no counters, or has not been looked at yet."""
        disk = self._drives.get(name)
        return self._latest.get(disk.name) if disk else None

    def look(self, longest_s: float = LAST_LOOK_S) -> None:
        """One more look, at once. A drive that takes longer to answer is not waited for."""
        if self._thread.is_alive():
            self._looked.clear()
            self._wake.set()
            self._looked.wait(longest_s)

    def _run(self) -> None:
        """Whatever ends it is the reason of every drive from then on: the last figure is no longer true."""
        try:
            self._poll_all()
        except Exception as error:
            words = str(error) if isinstance(error, OpwatchError) else f"{type(error).__name__}: {error}"
            for disk in self._drives.values():
                self._latest[disk.name] = failed(f"counters are not read: {words}", time.monotonic_ns())
        finally:
            self._looked.set()

    def _poll_all(self) -> None:
        # Not before it is needed: this is much to import.
        from opwatch.collectors.firmware.counting import Counting
        from opwatch.counters.catalogue.families import load_catalogue
        from opwatch.waf.trail import Trail

        catalogue = load_catalogue([])
        counted: dict[str, Counting] = {}
        trails: dict[str, Trail] = {}
        shapes: dict[str, list[tuple[str, int | None, str | None]]] = {}
        while True:
            last = self._wake.is_set()
            for name, disk in {disk.name: disk for disk in self._drives.values()}.items():
                if self._stop.is_set():
                    return
                shape = self._shape(disk)
                if shapes.get(name) != shape:
                    self._latest.pop(name, None)
                    counted[name], trails[name] = Counting(self._devices, disk, catalogue), Trail()
                    shapes[name] = shape
                trail, counting = trails[name], counted[name]
                if trail.lost or len(trail.moments) > _MOST_POLLS:
                    trail = trails[name] = Trail()
                trail.add(counting.poll())
                self._tell(name, counting, trail)
            if last:
                self._wake.clear()
                self._looked.set()
            self._wake.wait(self._every_s)
            if self._stop.is_set():
                return

    def _shape(self, disk: BlockDevice) -> list[tuple[str, int | None, str | None]]:
        """What the host's writes are counted on. With another path, or another drive under the same name,
        the counts begin anew."""
        from opwatch.collectors.firmware.counting import namespaces

        registered = self._devices.registered()
        counted = [
            path
            for namespace in namespaces(self._devices, disk)
            for path in self._devices.paths(namespace) or [namespace]
        ]
        return [(each.name, registered.get(each.name), each.attribute("diskseq")) for each in counted]

    def _tell(self, name: str, counting: Counting, trail: Trail) -> None:
        """What this look says. One that failed has its reason, and not what the look before said."""
        from opwatch.waf.live_figure import live, stale

        report = counting.latest
        if counting.denied or stale(trail):
            why = (
                counting.denied
                or "; ".join(report.failures if report else ())
                or "the drive tells them no more"
            )
            self._latest[name] = failed(f"counters are not read: {why}", time.monotonic_ns())
        elif trail.nand:
            self._latest[name] = live(trail)

    def stop(self) -> None:
        """Ask it to end. One that is in the middle of a command to a drive ends with the process."""
        self._stop.set()
        self._wake.set()
