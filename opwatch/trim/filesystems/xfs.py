"""XFS. Pure."""

from __future__ import annotations

from opwatch.trim.filesystems.base import FilesystemKind
from opwatch.trim.stack.layers import Filesystem


class Xfs(FilesystemKind):
    """XFS, on a data device and perhaps a realtime device."""

    names = ("xfs",)
    refusing_options = ("norecovery",)
    is_granularity_aware = True
    # It completes discards asynchronously.
    quiet_s = 0.5
    claims_request = True
    extent_program = "discard_xfs_extent"

    def find_doubts(self, filesystem: Filesystem) -> list[str]:
        return [
            "whether discards fail: XFS reports success even if they do",
            "how many free extents XFS skips in a group with a hundred or more (xfs-passes-over)",
        ]

    def explain_untraced(self, devices: int) -> str | None:
        if devices < 2:
            return None
        return "XFS discards on its realtime device with events that opwatch does not trace"

    def describe_untrimmed(self, device: str) -> str | None:
        words = f"XFS sent nothing to its realtime device {device}"
        return f"{words}: before Linux 6.11 it does not trim that device"
