"""Read the layers below a mount or device, with the discard support of each.

Reads sysfs and device-mapper tables, and changes nothing.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from opwatch.collectors.stack.discard_limits import read_queue_limits
from opwatch.collectors.stack.disks import Identify, identify_nvme, read_disk
from opwatch.collectors.stack.dm import DmReader, DmSource
from opwatch.collectors.stack.filesystem import read_filesystem
from opwatch.collectors.stack.loop import read_loop
from opwatch.collectors.stack.mapper import Mapper
from opwatch.collectors.stack.md import read_md
from opwatch.collectors.stack.reading import LayerReading
from opwatch.host.device import SECTOR, BlockDevice, Devices
from opwatch.host.usage import Mount, Usage, read_usage
from opwatch.trim.layers.partition import PartitionFacts
from opwatch.trim.stack.layers import Kind, Layer, Stack


class LayerReader:
    """Reads stacks of this machine, or of a directory tree with the same layout."""

    def __init__(
        self,
        devices: Devices | None = None,
        usage: Usage | None = None,
        dm: DmSource | None = None,
        nvme: Identify = identify_nvme,
        sys: Path = Path("/sys"),
    ) -> None:
        self._devices = devices or Devices()
        self._usage = usage or read_usage()
        self._dm = DmReader(self._devices, dm or Mapper())
        self._nvme = nvme
        self._sys = sys

    def read_mount(self, mount: Mount) -> Stack:
        """Return the filesystem of a mount and all layers below."""
        filesystem = read_filesystem(self._devices, self._usage, mount, self._sys)
        return Stack(filesystem, self._walk_layers(filesystem.devices))

    def read_device(self, device: BlockDevice) -> Stack:
        """Return a device and all layers below."""
        return Stack(None, self._walk_layers((device.name,)))

    def _walk_layers(self, names: tuple[str, ...]) -> tuple[Layer, ...]:
        """Walk breadth first, so that a layer follows all layers above it where possible."""
        layers: dict[str, Layer] = {}
        waiting = list(names)
        while waiting:
            name = waiting.pop(0)
            device = self._devices.by_name(name)
            if device is None:
                continue  # Removed since the listing
            # A layer that was reached earlier moves down.
            layers.pop(name, None)
            layers[name] = self._read_layer(device)
            waiting += layers[name].below
        return tuple(layers.values())

    def _read_layer(self, device: BlockDevice) -> Layer:
        layer = self._read_facts(device)
        if (discards := device.read_number("bcache/discard")) is not None:
            layer.facts = replace(layer.facts, bcache_discard=discards == 1)
        return Layer(
            device.name,
            f"{device.dev[0]}:{device.dev[1]}",
            layer.kind,
            device.size_bytes,
            read_queue_limits(device),
            read_only=None if (only := device.read_number("ro")) is None else only != 0,
            target=layer.target,
            label=device.read_attribute("dm/name"),
            below=layer.below,
            table=tuple(layer.table),
            facts=layer.facts,
            unknown=layer.unknown,
        )

    def _read_facts(self, device: BlockDevice) -> LayerReading:
        """Return the kind and facts of a device."""
        kind, below = device.read_kind(), tuple(device.list_lower_devices())
        if device.is_partition:
            start = PartitionFacts(start_bytes=device.sector_range[0] * SECTOR)
            return LayerReading(Kind.PARTITION, (device.disk.name,), start)
        if kind.startswith("dm"):
            return self._dm.read_layer(device, kind, below)
        if kind.startswith("md"):
            return read_md(device, below, self._sys)
        if kind == "loop":
            return read_loop(device, self._devices, self._usage.mounts)
        paths = tuple(path.name for path in self._devices.list_paths(device))
        facts, unknown = read_disk(self._devices, device, self._nvme)
        if paths:
            return LayerReading(Kind.MULTIPATH, paths, facts, unknown=unknown)
        return LayerReading(Kind.DISK, below, facts, unknown=unknown)
