"""Receive notes for a recording in progress from `opwatch note`.

The recorder listens on an abstract Unix socket whose name is derived from the file. No file is needed, so
another user cannot plant a link, and a killed recorder leaves nothing behind. Abstract names have no owner,
therefore each side asks the kernel for the user of the other.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable

from opwatch.errors import OpwatchError, RefusedError, UsageError
from opwatch.foreign import decode_text
from opwatch.times import format_duration

MAX_BYTES = 4096
# Fewer than the events that a recording can hold. In a ring this limits the notes within the kept time.
MAX_NOTES = 4096
_ANSWER_BYTES = 1024
# Timeout for clients that connect and send nothing.
_TIMEOUT_S = 1.0
# struct ucred: process, user, group.
_PEER = struct.Struct("@iII")
ACCEPTED = b"kept"
_now = time.monotonic


def _socket_name(device: int, inode: int) -> bytes:
    return f"\0opwatch-notes-{device:x}-{inode:x}".encode()


def _read_peer_uid(peer: socket.socket) -> int:
    """Return the user ID of the other side at the time of its connect() or listen()."""
    user: int = _PEER.unpack(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))[1]
    return user


def _create_socket() -> socket.socket:
    return socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)


class NoteTaker:
    """Takes notes in a separate thread, from construction to close().

    `take` returns the reason for refusing a note, or None. Notes are kept for `within_s`, or without limit if
    None. `problem` is the reason if no notes can be taken.
    """

    def __init__(
        self, device: int, inode: int, take: Callable[[str], str | None], within_s: float | None = None
    ) -> None:
        self._take, self._within_s = take, within_s
        # Times of the notes that are still kept.
        self._moments: deque[float] = deque()
        self.problem: str | None = None
        self._socket = _create_socket()
        try:
            self._socket.bind(_socket_name(device, inode))
            self._socket.listen(8)
        except OSError as error:
            self._socket.close()
            self.problem = f"the recorder cannot accept notes: {error.strerror}"
            return
        self._thread = threading.Thread(target=self._accept_notes, name="notes", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop taking notes. Every acknowledged note has been given to `take`."""
        if self.problem:
            return
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()

    def _accept_notes(self) -> None:
        while True:
            try:
                peer = self._socket.accept()[0]
            except OSError:
                return
            with peer, contextlib.suppress(OSError):
                peer.settimeout(_TIMEOUT_S)
                peer.send(self._answer_peer(peer)[:_ANSWER_BYTES])

    def _answer_peer(self, peer: socket.socket) -> bytes:
        if _read_peer_uid(peer) not in (0, os.geteuid()):
            return b"the recording belongs to another user"
        raw = peer.recv(MAX_BYTES + 1)
        if not raw or len(raw) > MAX_BYTES:
            return f"a note must have 1 to {MAX_BYTES} bytes".encode()
        reason = self._reserve_room() or self._take(decode_text(raw))
        return reason.encode("utf-8", "replace") if reason else ACCEPTED

    def _reserve_room(self) -> str | None:
        """Reserve room for a note, or return the reason for refusing the note."""
        now = _now()
        if self._within_s is not None:
            while self._moments and now - self._moments[0] > self._within_s:
                self._moments.popleft()
        if len(self._moments) >= MAX_NOTES:
            of_time = f" of the last {format_duration(self._within_s)}" if self._within_s is not None else ""
            return f"the recording already has {MAX_NOTES} notes{of_time}, which is the limit"
        self._moments.append(now)
        return None


def send_note(descriptor: int, name: str, text: str) -> None:
    """Send a note to the recorder of an open file; `name` is the file's name as given by the user."""
    raw = text.encode("utf-8", "replace")
    if not raw.strip() or len(raw) > MAX_BYTES:
        raise UsageError(f"a note must have 1 to {MAX_BYTES} bytes")
    status = os.fstat(descriptor)
    with _create_socket() as recorder:
        recorder.settimeout(10 * _TIMEOUT_S)
        try:
            recorder.connect(_socket_name(status.st_dev, status.st_ino))
            if _read_peer_uid(recorder) not in (0, status.st_uid):
                raise RefusedError(f"{name}: another user's process answers in place of its recorder")
            recorder.send(raw)
            answer = recorder.recv(_ANSWER_BYTES)
        except ConnectionRefusedError as error:
            raise OpwatchError(
                f"{name}: its recorder accepts no notes, or runs in another network namespace"
            ) from error
        except OSError as error:
            raise OpwatchError(f"{name}: its recorder does not answer: {error}") from error
    if answer != ACCEPTED:
        raise OpwatchError(f"{name}: {decode_text(answer) or 'its recorder has just ended'}")
