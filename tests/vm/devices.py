"""devices.toml as records, and a set of devices as QEMU arguments."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.vm.config import HERE
from tests.vm.errors import BenchError

_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@dataclass(frozen=True)
class Disk:
    """A backing image."""

    size: str
    discard: str

    @property
    def size_bytes(self) -> int:
        """The size in bytes."""
        return int(self.size[:-1]) * _UNITS[self.size[-1]]


@dataclass(frozen=True)
class Device:
    """One device of devices.toml."""

    name: str
    what: str
    visible: int
    modprobe: tuple[tuple[str, ...], ...] = ()
    qemu: tuple[str, ...] = ()
    disks: dict[str, Disk] = field(default_factory=dict)


def parse_devices(text: str) -> dict[str, Device]:
    """Return the devices in the text of a devices.toml."""
    devices = {}
    for name, entry in tomllib.loads(text).items():
        devices[name] = Device(
            name,
            entry["what"],
            entry["visible"],
            tuple(tuple(words) for words in entry.get("modprobe", ())),
            tuple(entry.get("qemu", ())),
            {key: Disk(**disk) for key, disk in entry.get("disks", {}).items()},
        )
    return devices


def read_devices(path: Path = HERE / "devices.toml") -> dict[str, Device]:
    """Return the devices in devices.toml."""
    return parse_devices(path.read_text())


def choose_devices(names: Sequence[str], known: Mapping[str, Device]) -> list[Device]:
    """Return the devices with these names, each once; the error for an unknown name lists the known names."""
    for name in names:
        if name not in known:
            raise BenchError(f"no device {name!r} in tests/vm/devices.toml: {', '.join(known)}")
    return [known[name] for name in dict.fromkeys(names)]


def get_image_path(folder: Path, node: str) -> Path:
    """Return the path of the image of a block node."""
    return folder / f"{node}.img"


def make_images(devices: Sequence[Device], folder: Path) -> None:
    """Create the sparse images."""
    for device in devices:
        for node, disk in device.disks.items():
            with get_image_path(folder, node).open("wb") as image:
                os.truncate(image.fileno(), disk.size_bytes)


def _format_blockdev(node: str, disk: Disk, folder: Path) -> str:
    file = {"driver": "file", "filename": str(get_image_path(folder, node)), "discard": disk.discard}
    return json.dumps({"driver": "raw", "node-name": node, "discard": disk.discard, "file": file})


def build_qemu_args(devices: Sequence[Device], folder: Path) -> list[str]:
    """Return the QEMU arguments for `devices` with images in `folder`."""
    args: list[str] = []
    ports = 0
    for device in devices:
        for node, disk in device.disks.items():
            args += ["-blockdev", _format_blockdev(node, disk, folder)]
        nodes = {node: node for node in device.disks}
        for line in device.qemu:
            if "{port}" in line:
                ports += 1
                args += ["-device", f"pcie-root-port,id=port{ports},chassis={ports},slot={ports}"]
            args += ["-device", line.format(port=f"port{ports}", **nodes)]
    return args


def count_visible(devices: Sequence[Device]) -> int:
    """Return the number of whole disks that the guest will show."""
    return sum(device.visible for device in devices)


def list_modprobes(devices: Sequence[Device]) -> list[tuple[str, ...]]:
    """Return the modules to load for `devices`, each once, those with parameters first."""
    lines = list(dict.fromkeys(words for device in devices for words in device.modprobe))
    wanted: dict[str, tuple[str, ...]] = {}
    for module, *parameters in lines:
        other = wanted.get(module)
        if parameters and other and other != tuple(parameters):
            raise BenchError(f"the devices want {module} with different parameters: use two guests")
        if parameters or module not in wanted:
            wanted[module] = tuple(parameters)
    return sorted(((m, *p) for m, p in wanted.items()), key=lambda words: len(words) == 1)
