"""Kernel uevents of block devices: a hint to rescan, which may be lost."""

from __future__ import annotations

import socket

# NETLINK_KOBJECT_UEVENT, and the multicast group of the kernel.
_PROTOCOL = 15
_KERNEL_GROUP = 1
# Size of the kernel's uevent buffer, larger than one event.
_BYTES = 8192
_MAX_AT_ONCE = 1000


class BlockEvents:
    """Listens from construction until close().

    Without events (other network namespace) there are no hints, and nothing else changes.
    """

    def __init__(self, source: socket.socket | None = None) -> None:
        self._socket = source or _open_socket()

    def fileno(self) -> int:
        """Return a descriptor to wait for, or -1 without events."""
        return self._socket.fileno() if self._socket else -1

    def drain_events(self) -> bool:
        """Read all pending events, and return whether any may have been about a block device."""
        heard = False
        for _ in range(_MAX_AT_ONCE):
            try:
                message = self._socket.recv(_BYTES) if self._socket else b""
            except BlockingIOError:
                break
            except OSError:
                # ENOBUFS: events of unknown kind were dropped.
                heard = True
                continue
            if not message:
                break
            heard |= b"\0SUBSYSTEM=block\0" in message
        return heard

    def close(self) -> None:
        if self._socket:
            self._socket.close()
            self._socket = None


def _open_socket() -> socket.socket | None:
    """Return a socket for kernel events, or None if not permitted or without network support."""
    kind = socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
    try:
        listening = socket.socket(socket.AF_NETLINK, kind, _PROTOCOL)
    except OSError:
        return None
    try:
        listening.bind((0, _KERNEL_GROUP))
    except OSError:
        listening.close()
        return None
    return listening
