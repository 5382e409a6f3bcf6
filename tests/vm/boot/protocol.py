"""The frames between host and guest; agent/serve.c has the other end."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

_HEAD = struct.Struct("<IB")
FRAME_MAX = 1 << 20


class Kind(IntEnum):
    """What a frame is; capitals go to the guest."""

    RUN = ord("R")
    PING = ord("P")
    KILL = ord("K")
    READY = ord("r")
    OUT = ord("o")
    ERR = ord("e")
    EXIT = ord("x")
    PONG = ord("p")


@dataclass(frozen=True)
class Frame:
    """One message."""

    kind: Kind
    payload: bytes = b""

    def encode(self) -> bytes:
        """The bytes on the channel."""
        if len(self.payload) > FRAME_MAX:
            raise ValueError(f"a frame holds at most {FRAME_MAX} bytes, not {len(self.payload)}")
        return _HEAD.pack(len(self.payload), self.kind) + self.payload


def run_frame(argv: Sequence[str], cwd: str, env: Mapping[str, str]) -> Frame:
    """The request to run a command."""
    strings = [cwd, str(len(argv)), *argv, *(f"{k}={v}" for k, v in env.items())]
    if any("\0" in text for text in strings):
        raise ValueError("an argument or variable holds a NUL")
    return Frame(Kind.RUN, b"".join(text.encode("utf-8", "surrogateescape") + b"\0" for text in strings))


def exit_status(payload: bytes) -> int:
    """The command's status as a shell would have it: 128 + signal when killed."""
    wait = int.from_bytes(payload, "little")
    signal = wait & 0x7F
    return 128 + signal if signal else (wait >> 8) & 0xFF


class Decoder:
    """Cuts the stream into frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that are complete with these bytes."""
        self._buffer += data
        while len(self._buffer) >= _HEAD.size:
            length, kind = _HEAD.unpack_from(self._buffer)
            if length > FRAME_MAX:
                raise ValueError(f"a frame of {length} bytes: the channel is out of step")
            if len(self._buffer) < _HEAD.size + length:
                return
            payload = bytes(self._buffer[_HEAD.size : _HEAD.size + length])
            del self._buffer[: _HEAD.size + length]
            yield Frame(Kind(kind), payload)
