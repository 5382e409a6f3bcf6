"""The kernel's announcements of block devices: a hint that it is time to look, which may be lost."""

from __future__ import annotations

import socket

# NETLINK_KOBJECT_UEVENT, and the group in which the kernel itself speaks.
_PROTOCOL = 15
_KERNEL_GROUP = 1
# We read as much as one buffer of the kernel's, which is more than one announcement takes.
_BYTES = 8192
_MOST_AT_ONCE = 1000


class BlockEvents:
    """Listens from construction to close(). Where nobody announces anything (another network namespace),
    there is no hint and nothing else is different."""

    def __init__(self, source: socket.socket | None = None) -> None:
        self._socket = source or _listen()

    def fileno(self) -> int:
        """What can be waited for; -1 where there is nothing to hear."""
        return self._socket.fileno() if self._socket else -1

    def drain(self) -> bool:
        """Take what was announced; returns whether any of it was about a block device. What was dropped
        because we were slow may have been."""
        heard = False
        for _ in range(_MOST_AT_ONCE):
            try:
                message = self._socket.recv(_BYTES) if self._socket else b""
            except BlockingIOError:
                break
            except OSError:
                # ENOBUFS: announcements were dropped, whatever they were of.
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


def _listen() -> socket.socket | None:
    """A socket that hears the kernel's events; None where it is not allowed, or there is no network at
    all."""
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
