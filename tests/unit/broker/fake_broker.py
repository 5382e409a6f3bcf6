"""A broker that sends prepared replies."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from opwatch.collectors.broker.protocol import RequestKind
from tests.fuzz.broker import make_hello, make_reply

# Gets the kind, the tag and the arguments of a request; returns the reply, or None to close the connection.
Answer = Callable[[RequestKind, int, bytes], bytes | None]


def answer_hello(kind: RequestKind, tag: int, arguments: bytes) -> bytes | None:
    return make_reply(tag, make_hello()) if kind is RequestKind.HELLO else None


class FakeBroker:
    """Serves each connection in a thread."""

    def __init__(self, path: Path, answer: Answer) -> None:
        self.path = str(path)
        self.requests: list[tuple[RequestKind, bytes]] = []
        self._answer = answer
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(self.path)
        self._listener.listen()
        threading.Thread(target=self._accept_clients, daemon=True).start()

    def _accept_clients(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            while packet := client.recv(1 << 16):
                _, kind, tag = struct.unpack_from("=HHI", packet)
                self.requests.append((RequestKind(kind), packet[8:]))
                reply = self._answer(RequestKind(kind), tag, packet[8:])
                if reply is None:
                    return
                client.send(reply)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@contextlib.contextmanager
def run_fake_broker(folder: Path, answer: Answer) -> Iterator[FakeBroker]:
    broker = FakeBroker(folder / "broker.sock", answer)
    try:
        yield broker
    finally:
        broker.close()
