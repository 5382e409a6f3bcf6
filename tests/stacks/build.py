"""Builds a recipe of loop devices, device mapper and md on files in memory, and takes it down again."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from opwatch.trim.space.extents import Extents
from tests.kernel.support import trims
from tests.stacks.recipe import ARRAYS, MIB, MODULES, Recipe
from tests.vm.guest.support import stacked
from tests.vm.guest.support.shell import call

_MEMORY = Path("/dev/shm")
_SIZE = 640 * MIB
_EXT4 = trims.MKFS["ext4"]
_MKFS = {
    "ext4": _EXT4,
    "ext4-1k": (*_EXT4, "-b", "1024"),
    "ext4-bigalloc": (*_EXT4, "-b", "1024", "-O", "bigalloc,^resize_inode", "-C", "16384"),
    "xfs": ("mkfs.xfs", "--unsupported", "-q", "-f", "-K"),
    "btrfs": trims.MKFS["btrfs"],
}


@dataclass
class Built:
    """A mounted stack. `drives` are the files in memory; `files` those that a filesystem between holds, and
    `homes` where that is mounted."""

    point: Path
    drives: list[Path] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)
    homes: list[Path] = field(default_factory=list)

    shares: bool = False

    def watch(self) -> Callable[[], int]:
        """What tells the bytes that were freed since, by the kernel's own count: the places on its disk that
        the highest file has no more, nor any other that shares them; else blocks of the files in memory."""
        places, blocks = self._places(), self._blocks()
        if self.files:
            return lambda: (places - self._places()).total
        return lambda: blocks - self._blocks()

    def _blocks(self) -> int:
        return sum(trims.allocated(drive) for drive in self.drives)

    def _places(self) -> Extents:
        """Where the file lies, and those that share its blocks. Sums would be of other things as well: the
        blocks of a file have those of its tree among them, and what is free in a filesystem is less by what
        was written meanwhile, and set aside for more."""
        if not self.files:
            return Extents()
        for home in self.homes:
            call("sync", "-f", str(home))
        sharing = self.homes[0].glob("copy") if self.shares else ()
        text = "".join(call("filefrag", "-v", "-b4096", str(file)) for file in (self.files[0], *sharing))
        pairs = re.findall(r"^ *[0-9]+: +[0-9]+\.\. *[0-9]+: +([0-9]+)\.\. *([0-9]+):", text, re.MULTILINE)
        return Extents.of((int(first) * 4096, (int(last) + 1) * 4096) for first, last in pairs)


def usable() -> set[str]:
    """The layers that this machine has; all of them need loop devices."""
    if not _has("loop"):
        raise RuntimeError("there is no module loop here: drives are files behind loop devices")
    plain = {"loop", "file-ext4", "file-xfs", "reflink"}
    return plain | {name for name, module in MODULES.items() if _has(module)}


def _has(module: str) -> bool:
    try:
        call("modprobe", module)
    except (OSError, RuntimeError):
        return Path("/sys/module", module).is_dir()
    return True


class Builder:
    """Everything that was made is in `opened`, and undone in reverse."""

    def __init__(self, one: Recipe, opened: contextlib.ExitStack) -> None:
        self._recipe, self._opened = one, opened
        self.built = Built(Path())

    def build(self) -> Built:
        """The stack, mounted."""
        layers = list(self._recipe.layers)
        array = layers.pop() if layers and layers[-1] in ARRAYS else None
        node = self._array(array) if array else self._memory(_SIZE)
        for name in reversed(layers):
            node = self._layer(name, node)
        kind = self._recipe.filesystem.partition("-")[0]
        call(*_MKFS[self._recipe.filesystem], f"/dev/{node}")
        options = ("nodiscard",) if kind == "btrfs" else ()
        self.built.point = self._opened.enter_context(
            trims.mounted(f"/dev/{node}", kind, *options, make=False)
        )
        return self.built

    def _memory(self, size: int) -> str:
        file = self._opened.enter_context(trims.file_of(size, _MEMORY))
        self.built.drives.append(file)
        return self._attached(file, self._recipe.offset)

    def _array(self, name: str) -> str:
        count = ARRAYS[name]
        members = [self._memory(_SIZE * (2 if name != "raid0" else 1) // count) for _ in range(count)]
        return self._opened.enter_context(stacked.md(int(name.removeprefix("raid")), members))

    def _layer(self, name: str, below: str) -> str:
        if name == "linear":
            return self._opened.enter_context(stacked.linear(below)).name
        if name == "crypt":
            return self._opened.enter_context(stacked.crypt(below)).name
        if name == "thin":
            metadata = Path(self._opened.enter_context(stacked.loop(16 * MIB))).name
            size = stacked.sectors(below) // 128 * 128
            return self._opened.enter_context(stacked.thin(below, metadata, size)).name
        if name == "loop":
            return self._attached(Path(f"/dev/{below}"))
        return self._on_a_file(name, below)

    def _attached(self, file: Path, offset: int = 0) -> str:
        node = call("losetup", "--find", "--show", "--offset", str(offset), str(file)).strip()
        self._opened.callback(call, "losetup", "--detach", node)
        return node.removeprefix("/dev/")

    def _on_a_file(self, name: str, below: str) -> str:
        """A loop device on a file of a filesystem on the device."""
        kind = "ext4" if name == "file-ext4" else "xfs"
        call(*_MKFS[kind], f"/dev/{below}")
        home = self._opened.enter_context(trims.mounted(f"/dev/{below}", kind, make=False))
        room = os.statvfs(home).f_bavail * os.statvfs(home).f_frsize
        file = home / "image"
        with file.open("wb") as image:
            # Blocks that are shared are written elsewhere: there must be room for all of them again.
            for _ in range(room * (2 if name == "reflink" else 4) // 5 // MIB):
                image.write(b"\xa5" * MIB)
            os.fsync(image.fileno())
        if name == "reflink":
            call("cp", "--reflink=always", str(file), str(home / "copy"))
        self.built.shares = name == "reflink"
        self.built.files.insert(0, file)
        self.built.homes.insert(0, home)
        return self._attached(file)


@contextlib.contextmanager
def standing(one: Recipe) -> Iterator[Built]:
    """The stack of a recipe, for as long as it is looked at."""
    with contextlib.ExitStack() as opened:
        yield Builder(one, opened).build()
