"""What the drives below a trim count by themselves before and after it: counters of trims, and their maps."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from opwatch.collectors.lba_status import held_by_map
from opwatch.collectors.simulated import find_simulated
from opwatch.collectors.transports import KernelTransport
from opwatch.device import BlockDevice, Devices
from opwatch.errors import OpwatchError
from opwatch.trim.accounts import Account, Counts
from opwatch.trim.layers import Stack

if TYPE_CHECKING:
    from opwatch.counters.catalogue import Catalogue
    from opwatch.counters.evidence import Evidence

# How long a disk's map may take: an array that tells it block by block is not waited for.
MAP_WITHIN_S = 1.0

# By device and source: how it counts, the bytes of a step, and its value.
Reading = dict[tuple[str, str], tuple[Counts, int, int]]


def _evidence(device: BlockDevice, catalogue: Callable[[], Catalogue]) -> Evidence | None:
    """Its pages or attributes; None for what has neither. The catalogue is only read for what has."""
    simulated = find_simulated(device)
    if simulated:
        from opwatch.collectors.nvme import collect_nvme  # not for a disk that has no pages

        return collect_nvme(simulated, catalogue())
    node = Path("/dev") / device.name
    number = device.number("nsid")
    if number:
        from opwatch.collectors.nvme import collect_nvme

        with closing(KernelTransport(node)) as transport:
            return collect_nvme(transport, catalogue(), number)
    if device.attribute("device/vendor") == "ATA" and device.number("queue/rotational") == 0:
        from opwatch.collectors.smart import collect_smart

        return collect_smart(node)
    return None


class DriveAccounts:
    """The counters of the disks of a stack. What cannot be read is left out: evidence is no condition."""

    def __init__(self, stack: Stack) -> None:
        devices = Devices()
        leaves = dict.fromkeys(leaf.device for leaf in stack.leaves())
        self._devices = [device for name in leaves if (device := devices.by_name(name))]
        self._before = self._read(self._devices)

    @cached_property
    def _catalogue(self) -> Catalogue:
        from opwatch.counters.catalogue import load_trims

        return load_trims()

    def _read(self, devices: Sequence[BlockDevice]) -> Reading:
        found: Reading = {}
        for device in devices:
            with contextlib.suppress(OpwatchError, ImportError):
                evidence = _evidence(device, lambda: self._catalogue)
                if evidence:
                    found |= self._counted(device, evidence)
            with contextlib.suppress(OpwatchError):
                held = held_by_map(device, MAP_WITHIN_S)
                if held is not None:
                    found[device.name, "its map (SCSI GET LBA STATUS)"] = (Counts.HELD, 1, held.total)
        return found

    def _counted(self, device: BlockDevice, evidence: Evidence) -> Reading:
        from opwatch.counters.trims import trim_counts

        return {
            (device.name, each.source): (
                Counts.COMMANDS if each.unit_bytes is None else Counts.TRIMMED,
                each.unit_bytes or 1,
                each.value,
            )
            for each in trim_counts(evidence, self._catalogue)
        }

    def since(self) -> tuple[Account, ...]:
        """Each with what it says now. Drives that showed nothing before are not asked again."""
        names = {name for name, _ in self._before}
        now = self._read([device for device in self._devices if device.name in names])
        return tuple(
            Account(
                name, source, counts, unit, value, now[name, source][2] if (name, source) in now else None
            )
            for (name, source), (counts, unit, value) in self._before.items()
        )
