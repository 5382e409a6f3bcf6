"""The layers of a random stack on a single device: each function builds a device on the named one below."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping

from tests.stacks.recipe import MIB
from tests.vm.guest.support import stacked
from tests.vm.guest.support.shell import run_command
from tests.vm.guest.support.sysfs import SYS_BLOCK

# Round half of a device down to this multiple of sectors, which fits stripes and chunks.
ROUND = 1 << 13
_BIO_QUEUE_MODE = "2 queue_mode bio"
# Start of a device in sectors, not aligned to any block.
_SHIFT = 7
DeviceContext = contextlib.AbstractContextManager[str]


def _count_half_sectors(below: str) -> int:
    return stacked.count_sectors(below) // 2 // ROUND * ROUND


@contextlib.contextmanager
def _yield_name(device: contextlib.AbstractContextManager[stacked.Mapped]) -> Iterator[str]:
    with device as top:
        yield top.name


def _build_halves(below: str) -> DeviceContext:
    """Swap the two halves: a table with two targets."""
    half = _count_half_sectors(below)
    table = f"0 {half} linear /dev/{below} {half}\n{half} {half} linear /dev/{below} 0"
    return _yield_name(stacked.create_mapped("linear", table, "dm_mod"))


def _build_striped(below: str) -> DeviceContext:
    half = _count_half_sectors(below)
    return _yield_name(
        stacked.create_mapped(
            "striped", f"0 {2 * half} striped 2 128 /dev/{below} 0 /dev/{below} {half}", "dm_mod"
        )
    )


def _build_mirror(below: str) -> DeviceContext:
    half = _count_half_sectors(below)
    table = f"0 {half} mirror core 2 1024 nosync 2 /dev/{below} 0 /dev/{below} {half}"
    return _yield_name(stacked.create_mapped("mirror", table, "dm_mirror"))


@contextlib.contextmanager
def _build_thin(below: str, options: str = "") -> Iterator[str]:
    size = stacked.count_sectors(below) // 128 * 128
    with (
        stacked.create_loop(16 * MIB) as metadata,
        stacked.create_thin(below, metadata, size, options) as volume,
    ):
        yield volume.name


@contextlib.contextmanager
def _build_cached(below: str) -> Iterator[str]:
    with stacked.create_loop(32 * MIB) as fast, stacked.create_loop(16 * MIB) as metadata:
        nodes = f"/dev/{metadata} /dev/{fast} /dev/{below}"
        table = f"0 {stacked.count_sectors(below)} cache {nodes} 512 1 writethrough smq 0"
        with stacked.create_mapped("cache", table, "dm_cache", "dm_cache_smq") as top:
            yield top.name


def _has_requests(name: str) -> bool:
    """Return whether the device accepts requests. Stacked devices accept bios only."""
    return (SYS_BLOCK / name / "mq").is_dir()


def _build_shifted(below: str) -> DeviceContext:
    size = (stacked.count_sectors(below) - _SHIFT) // 8 * 8
    return _yield_name(stacked.create_mapped("linear", f"0 {size} linear /dev/{below} {_SHIFT}", "dm_mod"))


@contextlib.contextmanager
def _build_with_helper(below: str, target: str, arguments: str, module: str) -> Iterator[str]:
    """Build a target with a helper device: {0} in `arguments` is the device, {1} the helper."""
    with stacked.create_loop(64 * MIB) as helper:
        stacked.blank_start(helper)
        table = f"0 {stacked.count_sectors(below)} {target} {arguments.format(below, helper)}"
        with stacked.create_mapped(target, table, module) as top:
            yield top.name


@contextlib.contextmanager
def _build_integrity(below: str) -> Iterator[str]:
    """Build dm-integrity.

    Discarded sectors get valid checksums, so the whole device is readable after a discard.
    """
    table = f"integrity /dev/{below} 0 4 D 2 internal_hash:crc32c allow_discards"
    size = stacked.read_integrity_sectors(below, table)
    with stacked.create_mapped("integrity", f"0 {size} {table}") as top:
        discards = int((SYS_BLOCK / top.name / "queue/discard_max_bytes").read_text())
        run_command("blkdiscard", "--force", *(() if discards else ("--zeroout",)), f"/dev/{top.name}")
        yield top.name


@contextlib.contextmanager
def _build_array_partition(below: str) -> Iterator[str]:
    """Build a partition that starts within a block, on a RAID 1 with a single member."""
    with stacked.create_md(1, [below, "missing"]) as array:
        size = (stacked.count_sectors(array) - _SHIFT) // 2048 * 2048
        run_command("addpart", f"/dev/{array}", "1", str(_SHIFT), str(size))
        try:
            yield f"{array}p1"
        finally:
            run_command("delpart", f"/dev/{array}", "1")


LAYERS: Mapping[str, Callable[[str], DeviceContext]] = {
    "linear": lambda below: _yield_name(stacked.create_linear(below)),
    "halves": _build_halves,
    "striped": _build_striped,
    "mirror": _build_mirror,
    "delay": lambda below: _yield_name(stacked.create_delay(below, 2)),
    "crypt": lambda below: _yield_name(stacked.create_crypt(below)),
    "crypt-closed": lambda below: _yield_name(stacked.create_crypt(below, discards=False)),
    "thin": _build_thin,
    "thin-kept": lambda below: _build_thin(below, "1 no_discard_passdown"),
    "thin-ignoring": lambda below: _build_thin(below, "1 ignore_discard"),
    "cached": _build_cached,
    "bcache": stacked.create_bcache,
    "shifted": _build_shifted,
    "era": lambda below: _build_with_helper(below, "era", "/dev/{1} /dev/{0} 2048", "dm_era"),
    "writecache": lambda below: _build_with_helper(
        below, "writecache", "s /dev/{0} /dev/{1} 4096 0", "dm_writecache"
    ),
    "log-writes": lambda below: _build_with_helper(below, "log-writes", "/dev/{0} /dev/{1}", "dm_log_writes"),
    "integrity": _build_integrity,
    "multipath": lambda below: _yield_name(
        stacked.create_multipath(below, "0" if _has_requests(below) else _BIO_QUEUE_MODE)
    ),
    "multipath-bio": lambda below: _yield_name(stacked.create_multipath(below, _BIO_QUEUE_MODE)),
    "mdpart": _build_array_partition,
    "origin": lambda below: _yield_name(
        stacked.create_mapped(
            "snapshot-origin", f"0 {stacked.count_sectors(below)} snapshot-origin /dev/{below}", "dm_snapshot"
        )
    ),
}
