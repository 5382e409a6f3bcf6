"""How long the devices below must be quiet before a trim counts as finished. Pure."""

from __future__ import annotations

from opwatch.trim.filesystems.base import FilesystemKind
from opwatch.trim.filesystems.kinds import find_filesystem
from opwatch.trim.layers.kinds import find_kind
from opwatch.trim.stack.layers import Stack


def _find_filesystem(stack: Stack) -> FilesystemKind:
    return find_filesystem(stack.filesystem.kind if stack.filesystem else "")


def quiet_after_trim(stack: Stack) -> float:
    """Return the quiet seconds to wait for after opwatch's own FITRIM: 0 if nothing can arrive later."""
    inline = all(find_kind(layer).is_inline or not layer.below for layer in stack.layers)
    return 0.0 if _find_filesystem(stack).is_synchronous and inline else quiet_after_watch(stack)


def quiet_after_watch(stack: Stack) -> float:
    """Return the quiet seconds to wait for after watching other processes, whose calls may not have
    returned."""
    return _find_filesystem(stack).quiet_s
