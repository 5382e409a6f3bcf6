"""Stacked devices: device mapper, md, loop, zram. No function here waits for udev."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.vm.guest.support.shell import run_command, write_attribute
from tests.vm.guest.support.sysfs import SYS_BLOCK, wait_for
from tests.vm.requirements import need_module, need_tool

_serial = itertools.count(1)
# The largest logical block, 4 KiB, in sectors of 512 bytes.
_MAX_BLOCK_SECTORS = 8
_BCACHE = Path("/sys/fs/bcache")


@dataclass(frozen=True)
class Mapped:
    """A device-mapper device: its dmsetup name and the dm-N under /sys/block."""

    label: str
    name: str

    def send_message(self, text: str) -> None:
        """Send a message to the target at sector 0."""
        run_command("dmsetup", "message", self.label, "0", *text.split())


def count_sectors(name: str) -> int:
    """Return the size of a device or partition in sectors of 512 bytes."""
    return int(Path("/sys/class/block", name, "size").read_text())


@contextlib.contextmanager
def create_mapped(target: str, table: str, *modules: str) -> Iterator[Mapped]:
    """Yield a device with this table ("0 SECTORS TARGET ..."), after loading the target's modules."""
    need_tool("dmsetup")
    for module in modules or (f"dm_{target}",):
        need_module(module)
    label = f"opw-{target}-{next(_serial)}"
    run_command("dmsetup", "create", label, "--noudevsync", stdin=table)
    try:
        minor = run_command("dmsetup", "info", "-c", "--noheadings", "-o", "minor", label).strip()
        yield Mapped(label, f"dm-{minor}")
    finally:
        run_command("dmsetup", "remove", "--retry", "--noudevsync", label)


def reload_table(label: str, table: str) -> None:
    """Load another table into a device in use, without freezing its filesystem."""
    # Load first: a refused table must not leave the device suspended, because writers would hang forever.
    run_command("dmsetup", "load", label, "--table", table)
    run_command("dmsetup", "suspend", "--noudevsync", "--nolockfs", label)
    run_command("dmsetup", "resume", "--noudevsync", label)


def fail_last_eighth(label: str, below: str) -> None:
    """Make the last eighth of a linear device fail, aligned to whole logical blocks of any size."""
    whole = count_sectors(below)
    good = (whole - whole // 8) // _MAX_BLOCK_SECTORS * _MAX_BLOCK_SECTORS
    reload_table(label, f"0 {good} linear /dev/{below} 0\n{good} {whole - good} error")


def create_linear(below: str) -> contextlib.AbstractContextManager[Mapped]:
    """Yield dm-linear over a whole device."""
    return create_mapped("linear", f"0 {count_sectors(below)} linear /dev/{below} 0", "dm_mod")


def read_integrity_sectors(below: str, table: str) -> int:
    """Return the data sectors of dm-integrity, which a format stores in the superblock."""
    blank_start(below)
    with create_mapped("integrity", f"0 8 {table}"):
        pass
    with Path("/dev", below).open("rb") as disk:
        [size] = struct.unpack_from("<Q", disk.read(512), 16)
    return int(size)


def create_delay(below: str, milliseconds: int) -> contextlib.AbstractContextManager[Mapped]:
    """Yield a device that delays reads, writes and flushes by this time."""
    table = f"0 {count_sectors(below)} delay /dev/{below} 0 {milliseconds}"
    return create_mapped("delay", table)


def create_flakey(below: str, up_s: int = 0, down_s: int = 1) -> contextlib.AbstractContextManager[Mapped]:
    """Yield a device that alternates between working for up_s seconds and failing for down_s seconds."""
    table = f"0 {count_sectors(below)} flakey /dev/{below} 0 {up_s} {down_s}"
    return create_mapped("flakey", table)


def create_crypt(below: str, discards: bool = True) -> contextlib.AbstractContextManager[Mapped]:
    """Yield a device encrypted with a fixed key, which optionally passes discards on."""
    options = "1 allow_discards" if discards else "0"
    need_module("xts")
    key = "00" * 32 + "11" * 32
    table = f"0 {count_sectors(below)} crypt aes-xts-plain64 {key} 0 /dev/{below} 0 {options}"
    return create_mapped("crypt", table)


def create_multipath(below: str, features: str = "0") -> contextlib.AbstractContextManager[Mapped]:
    """Yield a device with a single path; `features` select request cloning or bios."""
    need_module("dm_round_robin")
    path = f"0 1 1 round-robin 0 1 1 /dev/{below} 1"
    return create_mapped("multipath", f"0 {count_sectors(below)} multipath {features} {path}")


def blank_start(name: str) -> None:
    """Zero the first MiB, so that a target finds no superblock and writes a new one."""
    run_command("dd", "if=/dev/zero", f"of=/dev/{name}", "bs=1M", "count=1", "oflag=direct", "status=none")


@contextlib.contextmanager
def create_thin(data: str, metadata: str, size_sectors: int, pool_options: str = "") -> Iterator[Mapped]:
    """Yield a thin volume on a new pool; pool_options such as "1 no_discard_passdown"."""
    run_command("dd", "if=/dev/zero", f"of=/dev/{metadata}", "bs=4k", "count=1", "oflag=direct")
    table = f"0 {count_sectors(data)} thin-pool /dev/{metadata} /dev/{data} 128 0 {pool_options}"
    with create_mapped("thin-pool", table.strip(), "dm_thin_pool") as pool:
        pool.send_message("create_thin 0")
        volume = f"0 {size_sectors} thin /dev/{pool.name} 0"
        with create_mapped("thin", volume, "dm_thin_pool") as top:
            yield top


@contextlib.contextmanager
def create_bcache(backing: str, cache: str | None = None) -> Iterator[str]:
    """Yield the name of a bcache device, with or without a cache."""
    need_module("bcache")
    maker = need_tool("make-bcache")
    for node in filter(None, (backing, cache)):
        blank_start(node)
    run_command(maker, "-B", f"/dev/{backing}")
    write_attribute(_BCACHE / "register", f"/dev/{backing}")
    wait_for("bcache0", lambda: (SYS_BLOCK / "bcache0/bcache").exists())
    folder = SYS_BLOCK / "bcache0/bcache"
    if cache:
        run_command(maker, "-C", "--bucket", "64k", f"/dev/{cache}")
        write_attribute(_BCACHE / "register", f"/dev/{cache}")
        wait_for("the cache", lambda: any(_BCACHE.glob("*-*")))
        [of_cache] = _BCACHE.glob("*-*")
        write_attribute(folder / "attach", of_cache.name)
    try:
        yield "bcache0"
    finally:
        write_attribute(folder / "stop", 1)
        if cache:
            write_attribute(of_cache / "stop", 1)
        wait_for("the end of bcache", lambda: not any(_BCACHE.glob("*-*")))
        wait_for("the end of bcache0", lambda: not (SYS_BLOCK / "bcache0").exists())
        # bcache closes its devices after it has disappeared from sysfs.
        wait_for(f"bcache to let go of {backing}", lambda: _is_free(backing))


def _is_free(name: str) -> bool:
    """Return whether no other user holds the device open exclusively."""
    try:
        os.close(os.open(f"/dev/{name}", os.O_RDONLY | os.O_EXCL))
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        return False
    return True


@contextlib.contextmanager
def create_md(
    level: int, below: Sequence[str], bitmap: str = "none", layout: str = "", policy: str = ""
) -> Iterator[str]:
    """Yield the name of an md array of these devices, in sync from the start. `policy`: how it stays
    consistent after a crash ("ppl"), in place of `bitmap`; "bitmap" is an internal one."""
    need_tool("mdadm")
    need_module("raid456" if level in (4, 5, 6) else f"raid{level}")
    index = next(_serial)
    members = [name if name == "missing" else f"/dev/{name}" for name in below]
    argv = ["mdadm", "--create", f"/dev/md{index}", "--run", "--metadata=1.2"]
    argv += ["--level", str(level), "--raid-devices", str(len(members))]
    argv += ["--layout", layout] if layout else []
    if policy == "bitmap":
        policy, bitmap = "", "internal"
    consistency = f"--consistency-policy={policy}" if policy else f"--bitmap={bitmap}"
    clean = [] if level == 0 else ["--assume-clean", consistency]
    run_command(*argv, *clean, *members)
    try:
        yield f"md{index}"
    finally:
        run_command("mdadm", "--stop", f"/dev/md{index}")


@contextlib.contextmanager
def create_loop(size_bytes: int, folder: Path = Path("/dev/shm")) -> Iterator[str]:
    """Yield the name of a loop device on a new sparse file."""
    need_module("loop")
    backing = folder / f"opw-loop-{next(_serial)}"
    with backing.open("wb") as file:
        file.truncate(size_bytes)
    device = run_command("losetup", "--find", "--show", str(backing)).strip()
    try:
        yield device.removeprefix("/dev/")
    finally:
        run_command("losetup", "--detach", device)
        backing.unlink()


@contextlib.contextmanager
def create_zram(size_bytes: int) -> Iterator[str]:
    """Yield the name of a zram device. zram is bio-based: no request events, no queues."""
    need_module("zram", "num_devices=0")
    control = Path("/sys/class/zram-control")
    index = (control / "hot_add").read_text().strip()
    name = f"zram{index}"
    try:
        write_attribute(SYS_BLOCK / name / "disksize", size_bytes)
        wait_for(name, lambda: count_sectors(name) * 512 == size_bytes)
        yield name
    finally:
        write_attribute(SYS_BLOCK / name / "reset", 1)
        write_attribute(control / "hot_remove", index)
