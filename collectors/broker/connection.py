"""A connection to opwatch-broker: send a request, and wait for its reply."""

from __future__ import annotations

import errno
import os
import socket
import threading

from opwatch.collectors.broker.protocol import (
    REPLY_MAX_BYTES,
    Hello,
    Reply,
    RequestKind,
    decode_hello,
    decode_reply,
    pack_request,
)
from opwatch.errors import OpwatchError, PermissionMissing


class BrokerError(OSError):
    """The broker's answer to a request is an errno. `log` has the kernel's reasons, if there are any."""

    def __init__(self, number: int, log: str = "") -> None:
        super().__init__(number, os.strerror(number))
        self.log = log


class BrokerConnection:
    """One connection. Requests of several threads take turns."""

    def __init__(self, path: str, timeout_s: float) -> None:
        """Raise PermissionMissing if the broker refuses this user, OpwatchError if no broker listens."""
        self.path = path
        self._tag = 0
        self._lock = threading.Lock()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.settimeout(timeout_s)
        try:
            self._socket.connect(path)
        except PermissionError as error:
            self.close()
            raise _make_refusal(path) from error
        except (OSError, ValueError) as error:
            self.close()
            reason = getattr(error, "strerror", None) or str(error)
            raise OpwatchError(
                f"no broker listens on {path} ({reason}): start it with systemctl start opwatch-broker.socket"
            ) from error

    def greet(self) -> Hello:
        """Return what the broker says about itself. Raise OpwatchError if it is of another version."""
        return decode_hello(self.call(RequestKind.HELLO).data)

    def call(self, kind: RequestKind, arguments: bytes = b"", timeout_s: float | None = None) -> Reply:
        """Return the broker's reply. Raise BrokerError for an errno, OpwatchError if the connection is lost,
        and TimeoutError after `timeout_s`, after which the connection cannot be used any more."""
        with self._lock:
            reply = self._exchange(kind, arguments, timeout_s)
        if reply.error:
            raise BrokerError(reply.error, reply.data.decode(errors="replace"))
        return reply

    def _exchange(self, kind: RequestKind, arguments: bytes, timeout_s: float | None) -> Reply:
        self._tag = self._tag % 0xFFFFFFFF + 1
        if timeout_s is not None:
            self._socket.settimeout(timeout_s)
        try:
            self._socket.sendall(pack_request(kind, self._tag, arguments))
            packet = self._socket.recv(REPLY_MAX_BYTES)
        except TimeoutError:
            # A late reply must not be taken for the next one.
            self.close()
            raise
        except (BrokenPipeError, ConnectionResetError) as error:
            packet = self._read_refusal(error)
        except OSError as error:
            raise OpwatchError(f"the connection to {self.path} is lost: {error.strerror}") from error
        if not packet:
            raise OpwatchError(f"opwatch-broker has closed the connection to {self.path}")
        reply = decode_reply(packet)
        if reply.tag == 0:
            raise _make_refusal(self.path) if reply.error == errno.EACCES else _make_full_error(self.path)
        if reply.tag != self._tag:
            raise OpwatchError("opwatch-broker sent a reply to another request")
        return reply

    def _read_refusal(self, error: OSError) -> bytes:
        """Return what the broker sent before it closed the connection."""
        try:
            return self._socket.recv(REPLY_MAX_BYTES)
        except OSError:
            raise OpwatchError(f"opwatch-broker has closed the connection to {self.path}") from error

    def close(self) -> None:
        self._socket.close()


def _make_refusal(path: str) -> PermissionMissing:
    return PermissionMissing(
        f"opwatch-broker at {path} does not serve this user: run as the user opwatch-exporter, "
        "join its group, or start the broker with --user"
    )


def _make_full_error(path: str) -> OpwatchError:
    return OpwatchError(f"opwatch-broker at {path} has too many clients")
