"""Which layers hand discards on from a thread of their own. Pure."""

from __future__ import annotations

from opwatch.trim.stack.layers import Kind, Layer

# These hand what they get to a thread of their own: below them everybody is a kernel thread.
_THREADED = (Kind.THIN, Kind.THIN_POOL, Kind.LOOP)
# Mirrors with a bitmap do so when the sender sleeps before its plug is emptied.
_THREADED_LEVELS = ("raid1", "raid10", "raid4", "raid5", "raid6")
# Disks on top of disks, by the names of their drivers.
_THREADED_DISKS = ("drbd",)
# Of device mapper these hand on in the sender's own call; every other target may have threads.
_DIRECT_TARGETS = (
    *("linear", "striped", "unstriped", "switch", "crypt", "flakey", "log-writes", "multipath"),
    *("snapshot", "snapshot-origin", "snapshot-merge", "zero", "error", "verity"),
)


def is_threaded(layer: Layer) -> bool:
    """Whether the discards below it may be a kernel thread's."""
    return (
        layer.kind in _THREADED
        or layer.device.startswith(_THREADED_DISKS)
        or layer.level in _THREADED_LEVELS
        or (layer.kind is Kind.DM and not set((layer.target or "").split("+")) <= set(_DIRECT_TARGETS))
    )
