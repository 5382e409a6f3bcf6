"""Devices on top of others: device mapper, md, loop, zram. Nothing here waits for udev."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.vm.guest.support.shell import call, put
from tests.vm.guest.support.sysfs import SYS_BLOCK, wait_for
from tests.vm.requirements import need_module, need_tool

_serial = itertools.count(1)
# Of 4 KiB, counted in those of 512 bytes.
_LARGEST_SECTOR = 8
_BCACHE = Path("/sys/fs/bcache")


@dataclass(frozen=True)
class Mapped:
    """A device-mapper device: the name dmsetup knows and the dm-N under /sys/block."""

    label: str
    name: str

    def message(self, text: str) -> None:
        """Sends a message to the target at sector 0."""
        call("dmsetup", "message", self.label, "0", *text.split())


def sectors(name: str) -> int:
    """The size of a device, or of a partition, in sectors of 512 bytes."""
    return int(Path("/sys/class/block", name, "size").read_text())


@contextlib.contextmanager
def mapped(target: str, table: str, *modules: str) -> Iterator[Mapped]:
    """A device with this one-line table ("0 SECTORS TARGET ..."), with the target's modules."""
    need_tool("dmsetup")
    for module in modules or (f"dm_{target}",):
        need_module(module)
    label = f"opw-{target}-{next(_serial)}"
    call("dmsetup", "create", label, "--noudevsync", stdin=table)
    try:
        minor = call("dmsetup", "info", "-c", "--noheadings", "-o", "minor", label).strip()
        yield Mapped(label, f"dm-{minor}")
    finally:
        call("dmsetup", "remove", "--retry", "--noudevsync", label)


def reload(label: str, table: str) -> None:
    """Another table for a device that is in use, without asking the filesystem on it to be still."""
    # A table that the kernel refuses must not leave the device suspended: what writes to it never ends.
    call("dmsetup", "load", label, "--table", table)
    call("dmsetup", "suspend", "--noudevsync", "--nolockfs", label)
    call("dmsetup", "resume", "--noudevsync", label)


def fail_last_eighth(label: str, below: str) -> None:
    """Let the last part of a linear device fail from now on, in whole sectors of any size."""
    whole = sectors(below)
    good = (whole - whole // 8) // _LARGEST_SECTOR * _LARGEST_SECTOR
    reload(label, f"0 {good} linear /dev/{below} 0\n{good} {whole - good} error")


def linear(below: str) -> contextlib.AbstractContextManager[Mapped]:
    """The whole of a device through dm-linear."""
    return mapped("linear", f"0 {sectors(below)} linear /dev/{below} 0", "dm_mod")


def integrity_sectors(below: str, table: str) -> int:
    """What dm-integrity leaves for data: it writes its superblock, with this number, where it finds none."""
    blank(below)
    with mapped("integrity", f"0 8 {table}"):
        pass
    with Path("/dev", below).open("rb") as disk:
        [size] = struct.unpack_from("<Q", disk.read(512), 16)
    return int(size)


def delay(below: str, milliseconds: int) -> contextlib.AbstractContextManager[Mapped]:
    """Reads, writes and flushes delayed by this much."""
    table = f"0 {sectors(below)} delay /dev/{below} 0 {milliseconds}"
    return mapped("delay", table)


def flakey(below: str, up_s: int = 0, down_s: int = 1) -> contextlib.AbstractContextManager[Mapped]:
    """Works up_s seconds, fails every request for down_s seconds, and so on."""
    table = f"0 {sectors(below)} flakey /dev/{below} 0 {up_s} {down_s}"
    return mapped("flakey", table)


def crypt(below: str, discards: bool = True) -> contextlib.AbstractContextManager[Mapped]:
    """Encrypts with a fixed key; hands discards on if told to."""
    options = "1 allow_discards" if discards else "0"
    need_module("xts")
    key = "00" * 32 + "11" * 32
    table = f"0 {sectors(below)} crypt aes-xts-plain64 {key} 0 /dev/{below} 0 {options}"
    return mapped("crypt", table)


def multipath(below: str, features: str = "0") -> contextlib.AbstractContextManager[Mapped]:
    """A device with one path; its features decide whether it copies requests or takes bios."""
    need_module("dm_round_robin")
    path = f"0 1 1 round-robin 0 1 1 /dev/{below} 1"
    return mapped("multipath", f"0 {sectors(below)} multipath {features} {path}")


def blank(name: str) -> None:
    """Zeroes in the first MiB: no superblock, so that a target writes its own."""
    call("dd", "if=/dev/zero", f"of=/dev/{name}", "bs=1M", "count=1", "oflag=direct", "status=none")


@contextlib.contextmanager
def thin(data: str, metadata: str, size_sectors: int, pool_options: str = "") -> Iterator[Mapped]:
    """A thin volume on a new pool; pool_options such as "1 no_discard_passdown"."""
    call("dd", "if=/dev/zero", f"of=/dev/{metadata}", "bs=4k", "count=1", "oflag=direct")
    table = f"0 {sectors(data)} thin-pool /dev/{metadata} /dev/{data} 128 0 {pool_options}"
    with mapped("thin-pool", table.strip(), "dm_thin_pool") as pool:
        pool.message("create_thin 0")
        volume = f"0 {size_sectors} thin /dev/{pool.name} 0"
        with mapped("thin", volume, "dm_thin_pool") as top:
            yield top


@contextlib.contextmanager
def bcache(backing: str, cache: str | None = None) -> Iterator[str]:
    """A bcache device with a cache or without; its name."""
    need_module("bcache")
    maker = need_tool("make-bcache")
    for node in filter(None, (backing, cache)):
        blank(node)
    call(maker, "-B", f"/dev/{backing}")
    put(_BCACHE / "register", f"/dev/{backing}")
    wait_for("bcache0", lambda: (SYS_BLOCK / "bcache0/bcache").exists())
    folder = SYS_BLOCK / "bcache0/bcache"
    if cache:
        call(maker, "-C", "--bucket", "64k", f"/dev/{cache}")
        put(_BCACHE / "register", f"/dev/{cache}")
        wait_for("the cache", lambda: any(_BCACHE.glob("*-*")))
        [of_cache] = _BCACHE.glob("*-*")
        put(folder / "attach", of_cache.name)
    try:
        yield "bcache0"
    finally:
        put(folder / "stop", 1)
        if cache:
            put(of_cache / "stop", 1)
        wait_for("the end of bcache", lambda: not any(_BCACHE.glob("*-*")))
        wait_for("the end of bcache0", lambda: not (SYS_BLOCK / "bcache0").exists())
        # It closes its devices after it is gone from sysfs.
        wait_for(f"bcache to let go of {backing}", lambda: _is_free(backing))


def _is_free(name: str) -> bool:
    """Whether nobody has a device for itself."""
    try:
        os.close(os.open(f"/dev/{name}", os.O_RDONLY | os.O_EXCL))
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        return False
    return True


@contextlib.contextmanager
def md(level: int, below: Sequence[str], bitmap: str = "none", layout: str = "") -> Iterator[str]:
    """An md array of these devices, in sync from the start; its name."""
    need_tool("mdadm")
    need_module("raid456" if level in (4, 5, 6) else f"raid{level}")
    index = next(_serial)
    members = [name if name == "missing" else f"/dev/{name}" for name in below]
    argv = ["mdadm", "--create", f"/dev/md{index}", "--run", "--metadata=1.2"]
    argv += ["--level", str(level), "--raid-devices", str(len(members))]
    argv += ["--layout", layout] if layout else []
    clean = [] if level == 0 else ["--assume-clean", f"--bitmap={bitmap}"]
    call(*argv, *clean, *members)
    try:
        yield f"md{index}"
    finally:
        call("mdadm", "--stop", f"/dev/md{index}")


@contextlib.contextmanager
def loop(size_bytes: int, folder: Path = Path("/dev/shm")) -> Iterator[str]:
    """A loop device on a sparse file that this makes; its name."""
    need_module("loop")
    backing = folder / f"opw-loop-{next(_serial)}"
    with backing.open("wb") as file:
        file.truncate(size_bytes)
    device = call("losetup", "--find", "--show", str(backing)).strip()
    try:
        yield device.removeprefix("/dev/")
    finally:
        call("losetup", "--detach", device)
        backing.unlink()


@contextlib.contextmanager
def zram(size_bytes: int) -> Iterator[str]:
    """A zram device; its name. Such devices are bio-based: no request events, no queues."""
    need_module("zram", "num_devices=0")
    control = Path("/sys/class/zram-control")
    index = (control / "hot_add").read_text().strip()
    name = f"zram{index}"
    try:
        put(SYS_BLOCK / name / "disksize", size_bytes)
        wait_for(name, lambda: sectors(name) * 512 == size_bytes)
        yield name
    finally:
        put(SYS_BLOCK / name / "reset", 1)
        put(control / "hot_remove", index)
