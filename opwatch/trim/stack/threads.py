"""Layers that submit discards from a separate thread. Pure."""

from __future__ import annotations

from opwatch.trim.stack.layers import Kind, Layer

# Layers with a submitting thread: a kernel thread issues every request below.
_THREADED = (Kind.THIN, Kind.THIN_POOL, Kind.LOOP)
# Mirrors with a bitmap use a thread if the sender sleeps before flushing the plug.
_THREADED_LEVELS = ("raid1", "raid10", "raid4", "raid5", "raid6")
# Drivers stacked on other disks, by device name prefix.
_THREADED_DISKS = ("drbd",)
# Device-mapper targets that submit in the sender's context; any other target may have threads.
_DIRECT_TARGETS = (
    *("linear", "striped", "unstriped", "switch", "crypt", "flakey", "log-writes", "multipath"),
    *("snapshot", "snapshot-origin", "snapshot-merge", "zero", "error", "verity"),
)


def is_threaded(layer: Layer) -> bool:
    """Return True if a kernel thread may issue the discards below this layer."""
    return (
        layer.kind in _THREADED
        or layer.device.startswith(_THREADED_DISKS)
        or layer.level in _THREADED_LEVELS
        or (layer.kind is Kind.DM and not set((layer.target or "").split("+")) <= set(_DIRECT_TARGETS))
    )
