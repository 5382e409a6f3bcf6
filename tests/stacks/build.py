"""Build a recipe from loop devices, device mapper and md on files in memory, and tear it down."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
from collections.abc import Iterator
from pathlib import Path

from tests.kernel.support import trims
from tests.stacks.built import MountedStack
from tests.stacks.layers import LAYERS, ROUND
from tests.stacks.recipe import ARRAYS, MIB, MODULES, SCSI, Recipe
from tests.vm.guest.support import stacked, sysfs
from tests.vm.guest.support.audits import MKFS
from tests.vm.guest.support.scsidebug import load_scsi_debug
from tests.vm.guest.support.shell import run_command, write_attribute

_MEMORY = Path("/dev/shm")
_SIZE = 640 * MIB
# First sector of the partition.
_PART_BEGIN = 2047
_SWITCHES = {"4k": ("--sector-size", "4096"), "part": ("--partscan",)}
# Name prefix of a disk that accepts and drops discards, of at least _SIZE.
_DROPPING_DISK = "opw-virtio-deaf"
_MKFS = MKFS | {
    "ext4-1k": (*MKFS["ext4"], "-b", "1024"),
    "ext4-bigalloc": (*MKFS["ext4"], "-b", "1024", "-O", "bigalloc,^resize_inode", "-C", "16384"),
    "xfs-1k": (*MKFS["xfs"], "-b", "size=1024"),
    "vfat": ("mkfs.vfat",),
    "btrfs-dup": (*MKFS["btrfs"], "-d", "dup", "-m", "dup"),
}


def find_usable_parts() -> set[str]:
    """Return the parts of a stack available on this machine; every stack needs loop devices."""
    if not _has_module("loop"):
        raise RuntimeError("there is no module loop here: drives are files behind loop devices")
    plain = {"loop", "file-ext4", "file-xfs", "reflink", "short", "lost"}
    faults = ({"fails"} if _has_module("dm_mod") else set()) | (
        {"drops"} if sysfs.find_disks(_DROPPING_DISK) else set()
    )
    return plain | faults | {name for name, module in MODULES.items() if _has_module(module)}


def _has_module(module: str) -> bool:
    # Loading scsi_debug creates a disk, and each stack needs different settings.
    only_asked = ("--dry-run",) if module == "scsi_debug" else ()
    try:
        run_command("modprobe", *only_asked, module)
    except (OSError, RuntimeError):
        return Path("/sys/module", module).is_dir()
    return True


def _make_filesystem(filesystem: str, node: str, *more: str) -> None:
    """Make a filesystem on a device.

    Raises OSError with ENOSPC if the device is too small or its sectors are larger than a block.
    """
    try:
        run_command(*_MKFS[filesystem], *more, f"/dev/{node}")
    except RuntimeError as error:
        if not any(words in str(error) for words in ("too small", "smaller than sector size")):
            raise
        raise OSError(errno.ENOSPC, str(error)) from error


class Builder:
    """Builds a stack. Everything created is registered in `opened`, and undone in reverse order."""

    def __init__(self, one: Recipe, opened: contextlib.ExitStack) -> None:
        self._recipe, self._opened = one, opened
        self.built = MountedStack(Path())

    def build(self) -> MountedStack:
        """Build and mount the stack."""
        layers = list(self._recipe.layers)
        array = layers.pop() if layers and layers[-1] in ARRAYS else None
        node = self._make_array(array) if array else self._create_drive(_SIZE)
        for name in reversed(layers):
            try:
                node = self._create_layer(name, node)
            except RuntimeError as error:
                # Some targets and partitions require whole blocks, which not every device has.
                if "Invalid argument" not in str(error):
                    raise
                raise OSError(errno.EINVAL, str(error)) from error
        kind = self._recipe.filesystem.partition("-")[0]
        options = [option for option in self._recipe.options.split(",") if option]
        if self._recipe.filesystem == "xfs-log":
            log = self._opened.enter_context(stacked.create_loop(64 * MIB))
            _make_filesystem("xfs", node, "-l", f"logdev=/dev/{log}")
            options.append(f"logdev=/dev/{log}")
        else:
            _make_filesystem(self._recipe.filesystem, node)
        self.built.point = self._opened.enter_context(
            trims.mount_filesystem(f"/dev/{node}", kind, *options, make=False)
        )
        return self.built

    def _create_drive(self, size: int) -> str:
        """Create a file in memory behind a loop device, optionally with a partition.

        Only the first drive gets the fault.
        """
        first = not (self.built.drives or self.built.deaf or self.built.scsi)
        fault = self._recipe.fault if first else ""
        if fault == "drops":
            self.built.deaf = sysfs.disk(_DROPPING_DISK)
            table = f"0 {size // 512} linear /dev/{self.built.deaf} 0"
            return self._opened.enter_context(stacked.create_mapped("linear", table, "dm_mod")).name
        if first and self._recipe.drive in SCSI:
            node = self._make_scsi_disk(size, *SCSI[self._recipe.drive])
        else:
            file = self._opened.enter_context(trims.create_file(size, _MEMORY))
            self.built.drives.append(file)
            node = self._attach_loop(file, *_SWITCHES.get(self._recipe.drive, ()), offset=self._recipe.offset)
        if fault == "short":
            # A loop device keeps the limit, so restore it (in whole granules) for later users of the device.
            queue = sysfs.SYS_BLOCK / node / "queue"
            limit = queue / "discard_max_bytes"
            granule = max(4096, int((queue / "discard_granularity").read_text()))
            self._opened.callback(write_attribute, limit, int(limit.read_text()) // granule * granule)
            write_attribute(limit, max(65536, granule))
        if self._recipe.drive == "part":
            node = self._create_partition(node)
        return self._make_failing_device(node) if fault == "fails" else node

    def _make_scsi_disk(self, size: int, granularity: int, alignment: int) -> str:
        """Create a SCSI disk in memory, whose provisioning map shows the written blocks."""
        disk = self._opened.enter_context(
            load_scsi_debug(dev_size_mb=size // MIB, unmap_granularity=granularity, unmap_alignment=alignment)
        )
        self.built.scsi = disk, granularity, alignment
        return disk.name

    def _create_partition(self, node: str) -> str:
        """Create a partition that starts within a block and ends before the end of the disk."""
        size = (stacked.count_sectors(node) - _PART_BEGIN) // 2048 * 2048
        run_command("addpart", f"/dev/{node}", "1", str(_PART_BEGIN), str(size))
        self._opened.callback(run_command, "delpart", f"/dev/{node}", "1")
        return f"{node}p1"

    def _make_failing_device(self, node: str) -> str:
        """Create a device whose last part fails after `break_now`, until teardown."""
        top = self._opened.enter_context(stacked.create_linear(node))
        self.built.break_now = functools.partial(stacked.fail_last_eighth, top.label, node)
        whole = f"0 {stacked.count_sectors(node)} linear /dev/{node} 0"
        self._opened.callback(stacked.reload_table, top.label, whole)
        return top.name

    def _make_array(self, name: str) -> str:
        count, parts = ARRAYS[name]
        members = [self._create_drive(_SIZE // parts) for _ in range(count)]
        if name.startswith("dm-"):
            return self._make_dm_raid(name.removeprefix("dm-"), members)
        if name == "concat":
            sizes = [stacked.count_sectors(member) for member in members]
            table = "\n".join(
                f"{sum(sizes[:at])} {sizes[at]} linear /dev/{member} 0" for at, member in enumerate(members)
            )
            return self._opened.enter_context(stacked.create_mapped("linear", table, "dm_mod")).name
        if name in ("raid4", "raid5", "raid6"):
            write_attribute(Path("/sys/module/raid456/parameters/devices_handle_discard_safely"), "Y")
        level, _, layout = name.removeprefix("raid").partition("-")
        places = f"{layout[0]}2" if layout else ""
        array = self._opened.enter_context(stacked.create_md(int(level), members, layout=places))
        if self._recipe.fault == "lost":
            self.built.break_now = functools.partial(
                run_command, "mdadm", f"/dev/{array}", "--fail", f"/dev/{members[0]}"
            )
        return array

    def _make_dm_raid(self, name: str, members: list[str]) -> str:
        write_attribute(Path("/sys/module/dm_raid/parameters/devices_handle_discard_safely"), "Y")
        pairs = ""
        for member in members:
            metadata = self._opened.enter_context(stacked.create_loop(4 * MIB))
            pairs += f" /dev/{metadata} /dev/{member}"
        count, parts = ARRAYS[f"dm-{name}"]
        size = min(map(stacked.count_sectors, members)) // ROUND * ROUND * parts
        kind, chunk = ("raid5_ls", 128) if name == "raid5" else (name, 128 * (name != "raid1"))
        table = f"0 {size} raid {kind} 4 {chunk} nosync region_size 1024 {count}{pairs}"
        return self._opened.enter_context(stacked.create_mapped("raid", table, "dm_raid")).name

    def _create_layer(self, name: str, below: str) -> str:
        if name in LAYERS:
            return self._opened.enter_context(LAYERS[name](below))
        if name == "loop":
            return self._attach_loop(Path(f"/dev/{below}"))
        return self._make_loop_on_file(name, below)

    def _attach_loop(self, file: Path, *switches: str, offset: int = 0) -> str:
        argv = ("losetup", "--find", "--show", "--offset", str(offset), *switches, str(file))
        node = run_command(*argv).strip()
        self._opened.callback(run_command, "losetup", "--detach", node)
        return node.removeprefix("/dev/")

    def _make_loop_on_file(self, name: str, below: str) -> str:
        """Create a loop device on a file of a filesystem on the device."""
        kind = "ext4" if name == "file-ext4" else "xfs"
        _make_filesystem(kind, below)
        home = self._opened.enter_context(trims.mount_filesystem(f"/dev/{below}", kind, make=False))
        room = os.statvfs(home).f_bavail * os.statvfs(home).f_frsize
        file = home / "image"
        with file.open("wb") as image:
            # Writes to shared blocks go elsewhere, so leave room for a second copy of all blocks.
            for _ in range(room * (2 if name == "reflink" else 4) // 5 // MIB):
                image.write(b"\xa5" * MIB)
            os.fsync(image.fileno())
        if name == "reflink":
            run_command("cp", "--reflink=always", str(file), str(home / "copy"))
        self.built.shares = name == "reflink"
        self.built.files.insert(0, file)
        self.built.homes.insert(0, home)
        return self._attach_loop(file)


@contextlib.contextmanager
def mount_stack(one: Recipe) -> Iterator[MountedStack]:
    """Yield the mounted stack of a recipe; tear it down afterwards."""
    with contextlib.ExitStack() as opened:
        yield Builder(one, opened).build()
