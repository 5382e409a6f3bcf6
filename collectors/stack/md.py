"""Read md arrays."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from opwatch.collectors.stack.reading import LayerReading
from opwatch.host.device import SECTOR, BlockDevice
from opwatch.trim.layers.arrays import RAID456, MdFacts
from opwatch.trim.stack.facts import Unread
from opwatch.trim.stack.layers import Kind


def read_md(device: BlockDevice, below: tuple[str, ...], sys: Path) -> LayerReading:
    """Return the facts of an array. A parity array also has those of the module raid456."""
    facts = MdFacts(
        level=device.read_attribute("md/level") or None,
        array_state=device.read_attribute("md/array_state") or None,
        sync_action=device.read_attribute("md/sync_action") or None,
        reshape_position=device.read_attribute("md/reshape_position") or None,
        chunk_bytes=device.read_number("md/chunk_size"),
        layout=device.read_number("md/layout"),
        degraded=device.read_number("md/degraded"),
        raid_disks=device.read_number("md/raid_disks"),
        **_read_md_members(device),
    )
    layer = LayerReading(Kind.MD, below, facts)
    if facts.level in RAID456:
        path = sys / "module/raid456/parameters/devices_handle_discard_safely"
        try:
            layer.facts = replace(facts, handles_discard_safely=path.read_text().strip() == "Y")
        except OSError as error:
            layer.unknown[Unread.HANDLES_DISCARD_SAFELY] = f"{path}: {error.strerror}"
    return layer


def _read_md_members(device: BlockDevice) -> dict[str, Any]:
    """Return the members of an array by slot, with their data offsets."""
    places = {}
    for folder in (device.sysfs / "md").glob("dev-*"):
        slot, offset = (device.read_number(f"md/{folder.name}/{name}") for name in ("slot", "offset"))
        if slot is not None and offset is not None:  # A spare has no slot
            places[slot] = (folder.name.removeprefix("dev-"), offset * SECTOR)
    slots = [places.get(slot, ("-", 0)) for slot in range(max(places, default=-1) + 1)]
    return {"members": tuple(name for name, _ in slots), "data_offsets": tuple(at for _, at in slots)}
