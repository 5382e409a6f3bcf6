"""Find the devices that a file system or a program writes to, and the layers below them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from opwatch.collectors.stack.layers import LayerReader
from opwatch.errors import Unsupported
from opwatch.host.device import BlockDevice, Devices
from opwatch.host.usage import Mount, read_usage
from opwatch.trim.layers.arrays import PARITY, find_array, find_level
from opwatch.trim.stack.layers import Kind, Layer, Stack
from opwatch.writes.reading import Parity, WriteLayer, WriteStack

# A partition counts its own writes, a loop device writes to a file, and the paths of a multipath device share
# its count: none of them adds writes of its own.
_BOTTOM = (Kind.PARTITION, Kind.LOOP, Kind.MULTIPATH, Kind.DISK)
_STEADY = (None, "idle", "frozen")


def read_mount_stack(devices: Devices, mount: Mount) -> WriteStack:
    """Return the layers below a mount. Raise Unsupported for a file system without a block device."""
    reader = LayerReader(devices)
    stack = reader.read_mount(mount)
    tops = stack.filesystem.devices if stack.filesystem else ()
    if not tops:
        raise Unsupported(explain_no_device(mount))
    layers = list(_list_layers(devices, stack, tops))
    for log in _find_log_devices(devices, mount):
        tops = (*tops, log.name)
        layers += _list_layers(devices, reader.read_device(log), (log.name,))
    block_size = os.statvfs(mount.point).f_bsize
    unique = {layer.device: layer for layer in layers}
    return WriteStack(mount.point, mount.filesystem, tops, tuple(unique.values()), block_size)


def explain_no_device(mount: Mount) -> str:
    """Return why a mount's writes cannot be followed. The files of an overlay are on another file system."""
    text = f"{mount.point}: {mount.filesystem} is not on a block device, so its writes cannot be followed"
    for option in mount.super_options:
        if mount.filesystem == "overlay" and option.startswith("upperdir="):
            return f"{text}; it writes to {option[9:]}: name that path, on the host if this is a container"
    return text


def _find_log_devices(devices: Devices, mount: Mount) -> list[BlockDevice]:
    """Return the separate log device of a mounted XFS, if any. mountinfo does not show an external journal of
    ext4, so its writes are not counted."""
    paths = [option[7:] for option in mount.super_options if option.startswith("logdev=")]
    return [devices.resolve(path) for path in paths]


def read_device_stack(devices: Devices, device: BlockDevice) -> WriteStack:
    """Return the layers below a device."""
    stack = LayerReader(devices).read_device(device)
    layers = tuple(_list_layers(devices, stack, (device.name,)))
    usage = read_usage()
    is_mounted = any(usage.find_mounts(part) for part in (device, *devices.list_partitions(device)))
    return WriteStack(device.name, None, (device.name,), layers, is_mounted=is_mounted)


def _list_layers(devices: Devices, stack: Stack, tops: tuple[str, ...]) -> Iterator[WriteLayer]:
    """Yield the layers from the top down, each once; nothing below a layer that adds no writes."""
    waiting, seen = list(tops), set[str]()
    while waiting:
        name = waiting.pop(0)
        layer = stack.find_layer(name)
        if layer is None or name in seen:
            continue
        seen.add(name)
        below = () if layer.kind in _BOTTOM else layer.below
        waiting += below
        others = _find_other_holders(devices, layer, below)
        yield WriteLayer(name, _name_kind(layer), below, others, find_parity(layer))


def _name_kind(layer: Layer) -> str:
    """Return a label such as "md raid1" or "dm linear"; empty for a drive."""
    if layer.kind in _BOTTOM:
        return ""
    return f"{layer.target or layer.kind} {find_level(layer) or ''}".strip()


def find_parity(layer: Layer) -> Parity | None:
    """Return the disks of a parity array, or None for other layers, and for an array that is degraded or
    synchronizes."""
    array = find_array(layer)
    parity = PARITY.get(array.level or "") if array else None
    if array is None or parity is None or array.degraded != 0 or array.sync_action not in _STEADY:
        return None
    return Parity(array.raid_disks, parity) if array.raid_disks else None


def _find_other_holders(
    devices: Devices, layer: Layer, below: tuple[str, ...]
) -> Mapping[str, tuple[str, ...]]:
    """Return the members that carry other devices too, with these devices."""
    shared = {}
    for name in below:
        member = devices.by_name(name)
        others = [holder for holder in member.list_holders() if holder != layer.device] if member else []
        if others:
            shared[name] = tuple(others)
    return shared
