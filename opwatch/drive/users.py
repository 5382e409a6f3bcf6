"""The users of a drive's block device: mounts in any namespace, swap, and stacked devices."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

from opwatch.foreign import read_names, split_fields, split_lines, unescape_octal
from opwatch.host.device import BlockDevice, Devices
from opwatch.host.mountspaces import survey_mounts


@dataclass(frozen=True, slots=True)
class Users:
    """One sentence per use, and the places that could not be searched for more."""

    uses: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()


def find_users(device: BlockDevice, devices: Devices | None = None) -> Users:
    """Return the users of the device and its partitions."""
    devices = devices or Devices()
    parts = {f"/dev/{part.name}": part for part in [device, *devices.list_partitions(device)]}
    by_number = {f"{part.dev[0]}:{part.dev[1]}": node for node, part in parts.items()}
    looked = survey_mounts([part.dev for part in parts.values()], list(parts))
    uses = []
    for mounted in looked.mounts:
        node = by_number.get(mounted.mount.dev, mounted.mount.source)
        where = "" if mounted.space.pid is None else f" {mounted.space}"
        uses.append(f"{node} is mounted at {mounted.mount.point}{where}")
    swaps = read_swap_numbers()
    for node, part in parts.items():
        uses += [f"{node} is swap" for number in swaps if number == os.makedev(*part.dev)]
        holders = part.sysfs / "holders"
        if holders.is_dir():
            uses += [f"{node} is part of {path.name}" for path in holders.iterdir()]
    return Users(tuple(dict.fromkeys(uses)), looked.unseen)


def read_swap_numbers() -> list[int]:
    """Return the device numbers of swap devices, because their names may be links."""
    numbers = []
    for line in split_lines(read_names(Path("/proc/swaps")))[1:]:
        if line:
            with contextlib.suppress(OSError):
                numbers.append(Path(unescape_octal(split_fields(line)[0])).stat().st_rdev)
    return numbers
