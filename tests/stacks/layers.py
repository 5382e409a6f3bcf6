"""The layers of a random stack on a single device: each function builds a device on the named one below."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping

from tests.stacks.recipe import MIB
from tests.vm.guest.support import stacked
from tests.vm.guest.support.shell import call
from tests.vm.guest.support.sysfs import SYS_BLOCK

# Round half of a device down to this multiple of sectors, which fits stripes and chunks.
ROUND = 1 << 13
_OF_BIOS = "2 queue_mode bio"
# Start of a device in sectors, not aligned to any block.
_SHIFT = 7
Made = contextlib.AbstractContextManager[str]


def _half(below: str) -> int:
    return stacked.sectors(below) // 2 // ROUND * ROUND


@contextlib.contextmanager
def _named(device: contextlib.AbstractContextManager[stacked.Mapped]) -> Iterator[str]:
    with device as top:
        yield top.name


def _halves(below: str) -> Made:
    """Swap the two halves: a table with two targets."""
    half = _half(below)
    table = f"0 {half} linear /dev/{below} {half}\n{half} {half} linear /dev/{below} 0"
    return _named(stacked.mapped("linear", table, "dm_mod"))


def _striped(below: str) -> Made:
    half = _half(below)
    return _named(
        stacked.mapped("striped", f"0 {2 * half} striped 2 128 /dev/{below} 0 /dev/{below} {half}", "dm_mod")
    )


def _mirror(below: str) -> Made:
    half = _half(below)
    table = f"0 {half} mirror core 2 1024 nosync 2 /dev/{below} 0 /dev/{below} {half}"
    return _named(stacked.mapped("mirror", table, "dm_mirror"))


@contextlib.contextmanager
def _thin(below: str, options: str = "") -> Iterator[str]:
    size = stacked.sectors(below) // 128 * 128
    with stacked.loop(16 * MIB) as metadata, stacked.thin(below, metadata, size, options) as volume:
        yield volume.name


@contextlib.contextmanager
def _cached(below: str) -> Iterator[str]:
    with stacked.loop(32 * MIB) as fast, stacked.loop(16 * MIB) as metadata:
        nodes = f"/dev/{metadata} /dev/{fast} /dev/{below}"
        table = f"0 {stacked.sectors(below)} cache {nodes} 512 1 writethrough smq 0"
        with stacked.mapped("cache", table, "dm_cache", "dm_cache_smq") as top:
            yield top.name


def _has_requests(name: str) -> bool:
    """Return whether the device accepts requests. Stacked devices accept bios only."""
    return (SYS_BLOCK / name / "mq").is_dir()


def _shifted(below: str) -> Made:
    size = (stacked.sectors(below) - _SHIFT) // 8 * 8
    return _named(stacked.mapped("linear", f"0 {size} linear /dev/{below} {_SHIFT}", "dm_mod"))


@contextlib.contextmanager
def _helped(below: str, target: str, arguments: str, module: str) -> Iterator[str]:
    """Build a target with a helper device: {0} in `arguments` is the device, {1} the helper."""
    with stacked.loop(64 * MIB) as helper:
        stacked.blank(helper)
        table = f"0 {stacked.sectors(below)} {target} {arguments.format(below, helper)}"
        with stacked.mapped(target, table, module) as top:
            yield top.name


@contextlib.contextmanager
def _integrity(below: str) -> Iterator[str]:
    """Build dm-integrity.

    Discarded sectors get valid checksums, so the whole device is readable after a discard.
    """
    table = f"integrity /dev/{below} 0 4 D 2 internal_hash:crc32c allow_discards"
    size = stacked.integrity_sectors(below, table)
    with stacked.mapped("integrity", f"0 {size} {table}") as top:
        discards = int((SYS_BLOCK / top.name / "queue/discard_max_bytes").read_text())
        call("blkdiscard", "--force", *(() if discards else ("--zeroout",)), f"/dev/{top.name}")
        yield top.name


@contextlib.contextmanager
def _part_of_an_array(below: str) -> Iterator[str]:
    """Build a partition that starts within a block, on a RAID 1 with a single member."""
    with stacked.md(1, [below, "missing"]) as array:
        size = (stacked.sectors(array) - _SHIFT) // 2048 * 2048
        call("addpart", f"/dev/{array}", "1", str(_SHIFT), str(size))
        try:
            yield f"{array}p1"
        finally:
            call("delpart", f"/dev/{array}", "1")


LAYERS: Mapping[str, Callable[[str], Made]] = {
    "linear": lambda below: _named(stacked.linear(below)),
    "halves": _halves,
    "striped": _striped,
    "mirror": _mirror,
    "delay": lambda below: _named(stacked.delay(below, 2)),
    "crypt": lambda below: _named(stacked.crypt(below)),
    "crypt-closed": lambda below: _named(stacked.crypt(below, discards=False)),
    "thin": _thin,
    "thin-kept": lambda below: _thin(below, "1 no_discard_passdown"),
    "thin-ignoring": lambda below: _thin(below, "1 ignore_discard"),
    "cached": _cached,
    "bcache": stacked.bcache,
    "shifted": _shifted,
    "era": lambda below: _helped(below, "era", "/dev/{1} /dev/{0} 2048", "dm_era"),
    "writecache": lambda below: _helped(below, "writecache", "s /dev/{0} /dev/{1} 4096 0", "dm_writecache"),
    "log-writes": lambda below: _helped(below, "log-writes", "/dev/{0} /dev/{1}", "dm_log_writes"),
    "integrity": _integrity,
    "multipath": lambda below: _named(stacked.multipath(below, "0" if _has_requests(below) else _OF_BIOS)),
    "multipath-bio": lambda below: _named(stacked.multipath(below, _OF_BIOS)),
    "mdpart": _part_of_an_array,
    "origin": lambda below: _named(
        stacked.mapped(
            "snapshot-origin", f"0 {stacked.sectors(below)} snapshot-origin /dev/{below}", "dm_snapshot"
        )
    ),
}
