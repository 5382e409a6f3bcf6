"""The layers below a mount or a device, with what each says of discards.

Reads sysfs and device-mapper tables, and changes nothing. Two readings of the same stack can be compared:
opwatch.trim.stack.layers.changes.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from opwatch.collectors.firmware.simulated import find_simulated
from opwatch.collectors.stack.discard_limits import limits_of
from opwatch.collectors.stack.disks import Identify, ask_nvme, read_disk
from opwatch.collectors.stack.filesystem import read_filesystem
from opwatch.errors import OpwatchError
from opwatch.host.device import SECTOR, BlockDevice, Devices
from opwatch.host.usage import Mount, Usage, mount_of, read_usage
from opwatch.trim.stack.layers import Fact, Kind, Layer, Stack

if TYPE_CHECKING:
    from opwatch.trim.stack.dmtable import DmTarget

# What a dm device is by its uuid, where its table may not be read.
_BY_UUID = {"dm-crypt": "crypt", "dm-verity": "verity", "dm-integrity": "integrity", "dm-mpath": "multipath"}
_KINDS = {"crypt": Kind.CRYPT, "thin": Kind.THIN, "thin-pool": Kind.THIN_POOL}


class DmSource(Protocol):
    """Where tables and status lines come from. OpwatchError when they may not be read."""

    def table(self, dev: tuple[int, int]) -> list[DmTarget]: ...
    def status(self, dev: tuple[int, int]) -> list[DmTarget]: ...


class Dmsetup:
    """Those of the kernel. By dmsetup, for it keeps the keys of dm-crypt to itself."""

    def _ask(self, verb: str, dev: tuple[int, int], *options: str) -> list[DmTarget]:
        # Nothing else here needs these.
        from opwatch.host.process import run_tool
        from opwatch.trim.stack import dmtable

        if os.geteuid() != 0:
            raise OpwatchError("device-mapper tables are for root only")
        return dmtable.parse(run_tool(["dmsetup", verb, *options, "-j", str(dev[0]), "-m", str(dev[1])]))

    def table(self, dev: tuple[int, int]) -> list[DmTarget]:
        return self._ask("table", dev)

    def status(self, dev: tuple[int, int]) -> list[DmTarget]:
        # Without it the status of a thin pool writes its metadata out.
        return self._ask("status", dev, "--noflush")


class _Facts:
    """What is found out of one layer, and what could not be."""

    def __init__(self) -> None:
        self.known: dict[str, Fact] = {}
        self.unknown: dict[str, str] = {}

    def put(self, name: str, value: Fact | None, otherwise: str | None = None) -> None:
        if value is not None:
            self.known[name] = value
        elif otherwise:
            self.unknown[name] = otherwise


class LayerReader:
    """Reads stacks of this machine, or of a tree that looks like one."""

    def __init__(
        self,
        devices: Devices | None = None,
        usage: Usage | None = None,
        dm: DmSource | None = None,
        nvme: Identify = ask_nvme,
        sys: Path = Path("/sys"),
    ) -> None:
        self._devices = devices or Devices()
        self._usage = usage or read_usage()
        self._dm = dm or Dmsetup()
        self._nvme = nvme
        self._sys = sys

    def mount(self, mount: Mount) -> Stack:
        """The filesystem of a mount and everything below it."""
        filesystem = read_filesystem(self._devices, self._usage, mount, self._sys)
        return Stack(filesystem, self._walk(filesystem.devices))

    def device(self, device: BlockDevice) -> Stack:
        """A device and everything below it."""
        return Stack(None, self._walk((device.name,)))

    def _walk(self, names: tuple[str, ...]) -> tuple[Layer, ...]:
        """Breadth first, so that a layer comes after all that stand on it where that is possible."""
        found: dict[str, Layer] = {}
        waiting = list(names)
        while waiting:
            name = waiting.pop(0)
            device = self._devices.by_name(name)
            if device is None:
                continue  # gone meanwhile
            # One that was met higher up moves down.
            found.pop(name, None)
            found[name] = self._layer(device)
            waiting += found[name].below
        return tuple(found.values())

    def _layer(self, device: BlockDevice) -> Layer:
        facts, kind = _Facts(), device.kind()
        table: list[DmTarget] = []
        target, below = None, tuple(device.below())
        if device.is_partition:
            found, below = Kind.PARTITION, (device.disk.name,)
            facts.put("start_bytes", device.sectors[0] * SECTOR)
        elif kind.startswith("dm"):
            table, target = self._dm_table(device, kind, facts)
            found = _KINDS.get(target or "", Kind.DM)
            self._dm_facts(device, found, table, facts)
        elif kind.startswith("md"):
            found = Kind.MD
            self._md_facts(device, facts)
        elif kind == "loop":
            found = Kind.LOOP
            below = self._loop_facts(device, facts)
        elif paths := self._devices.paths(device):
            found, below = Kind.MULTIPATH, tuple(path.name for path in paths)
            facts.known, facts.unknown = read_disk(self._devices, device, self._nvme)
        else:
            found = Kind.DISK
            facts.known, facts.unknown = read_disk(self._devices, device, self._nvme)
        if (discards := device.number("bcache/discard")) is not None:
            facts.put("bcache_discard", discards == 1)
        return Layer(
            device.name,
            f"{device.dev[0]}:{device.dev[1]}",
            found,
            device.size_bytes,
            limits_of(device),
            read_only=None if (only := device.number("ro")) is None else only != 0,
            target=target,
            label=device.attribute("dm/name"),
            below=below,
            table=tuple(table),
            facts=facts.known,
            unknown=facts.unknown,
        )

    def _dm_table(self, device: BlockDevice, kind: str, facts: _Facts) -> tuple[list[DmTarget], str | None]:
        """The table, and the name of its target; several targets are joined by a plus."""
        try:
            table = self._dm.table(device.dev)
        except OpwatchError as error:
            facts.unknown["table"] = str(error)
            return [], self._guessed_target(device, kind)
        kinds = dict.fromkeys(target.kind for target in table)
        return table, "+".join(kinds) or None

    def _guessed_target(self, device: BlockDevice, kind: str) -> str | None:
        """From the names that cryptsetup and LVM give, None when these do not tell."""
        if kind != "dm-lvm":
            return _BY_UUID.get(kind)
        uuid = device.attribute("dm/uuid") or ""
        if uuid.endswith("-tpool"):
            return "thin-pool"
        lowers = [found for name in device.below() if (found := self._devices.by_name(name))]
        pools = [(lower.attribute("dm/uuid") or "").endswith("-tpool") for lower in lowers]
        return "thin" if any(pools) and not uuid.endswith("-pool") else None

    def _dm_facts(self, device: BlockDevice, kind: Kind, table: list[DmTarget], facts: _Facts) -> None:
        flags = {flag for target in table for flag in target.flags}
        if kind is Kind.CRYPT:
            # The limit is not 0 exactly when the table has the flag.
            limit = limits_of(device).offered
            facts.put("allow_discards", "allow_discards" in flags if table else limit)
        elif flags:
            facts.put("flags", " ".join(sorted(flags)))
        if len(table) == 1 and table[0].kind == "raid":
            self._raid_facts(device, table[0], facts)
        if kind not in (Kind.THIN, Kind.THIN_POOL):
            return
        if (status := self._dm_status(device, facts, "status")) is None:
            return
        from opwatch.trim.stack import dmtable

        if kind is Kind.THIN:
            mapped = dmtable.mapped_sectors(status)
            facts.put("mapped_bytes", None if mapped is None else mapped * 512, "its status does not say")
            return
        facts.put("chunk_bytes", dmtable.chunk_bytes(table[0]) if table else None)
        pool = dmtable.pool_status(status)
        if pool is None:
            facts.unknown["mode"] = "the status of the pool is in no known form"
            return
        facts.put("mode", pool.mode)
        facts.put("used_chunks", pool.used_chunks)
        facts.put("total_chunks", pool.total_chunks)
        facts.put("discards", pool.discards)
        facts.put("needs_check", pool.needs_check)

    def _dm_status(self, device: BlockDevice, facts: _Facts, fact: str) -> DmTarget | None:
        """Its one status line; None, and the reason beside the fact that was to be had from it."""
        try:
            [status] = self._dm.status(device.dev)
        except (OpwatchError, ValueError) as error:
            facts.unknown[fact] = str(error)
            return None
        return status

    def _raid_facts(self, device: BlockDevice, target: DmTarget, facts: _Facts) -> None:
        """Of md in device mapper, by the names of md's own arrays."""
        from opwatch.trim.stack import dmtable

        array = dmtable.raid(target)
        if array is None:
            facts.unknown["level"] = "its table is in no known form"
            return
        facts.put("level", array.level)
        facts.put("raid_disks", array.disks)
        if array.level == "raid10":
            facts.put("layout", array.copies | 1 << 8)
        if status := self._dm_status(device, facts, "degraded"):
            facts.put("degraded", dmtable.members_missing(status), "its status does not say")

    def _md_facts(self, device: BlockDevice, facts: _Facts) -> None:
        for name in ("level", "array_state", "sync_action", "reshape_position"):
            facts.put(name, device.attribute(f"md/{name}") or None)
        facts.put("chunk_bytes", device.number("md/chunk_size"))
        facts.put("layout", device.number("md/layout"))
        facts.put("degraded", device.number("md/degraded"))
        facts.put("raid_disks", device.number("md/raid_disks"))
        if str(facts.known.get("level")) in ("raid4", "raid5", "raid6"):
            path = self._sys / "module/raid456/parameters/devices_handle_discard_safely"
            try:
                facts.put("handles_discard_safely", path.read_text().strip() == "Y")
            except OSError as error:
                facts.unknown["handles_discard_safely"] = f"{path}: {error.strerror}"

    def _loop_facts(self, device: BlockDevice, facts: _Facts) -> tuple[str, ...]:
        """What a loop device stands on; its lower devices when that is a device."""
        file = device.attribute("loop/backing_file")
        facts.put("backing_file", file, "no file is attached")
        if not file:
            return ()
        if find_simulated(device):
            facts.put("simulated_drive", True)
        try:
            status = Path(file).stat()
        except OSError as error:
            facts.unknown["backing_filesystem"] = f"{file}: {error.strerror}"
            return ()
        if stat.S_ISBLK(status.st_mode):
            facts.put("backing_is_device", True)
            return (self._devices.resolve(file).name,)
        mount = mount_of(os.path.realpath(file), self._usage.mounts)
        if mount:
            facts.put("backing_filesystem", mount.filesystem)
            facts.put("backing_mount", mount.point)
        return ()
