"""The layers of a random stack that stand on one device: what each makes of the name of the one below."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping

from tests.stacks.recipe import MIB
from tests.vm.guest.support import stacked

# Half of a device, to these many sectors: stripes and chunks fit.
_ROUND = 1 << 13
Made = contextlib.AbstractContextManager[str]


def _half(below: str) -> int:
    return stacked.sectors(below) // 2 // _ROUND * _ROUND


@contextlib.contextmanager
def _named(device: contextlib.AbstractContextManager[stacked.Mapped]) -> Iterator[str]:
    with device as top:
        yield top.name


def _halves(below: str) -> Made:
    """Its second half before its first: two targets in a table."""
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
}
