"""Frames between host and guest; agent/serve.c implements the guest's side."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

_HEAD = struct.Struct("<IB")
FRAME_MAX = 1 << 20


class Kind(IntEnum):
    """Kinds of frames; those in capitals go to the guest."""

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
        """Return the frame as bytes for the channel."""
        if len(self.payload) > FRAME_MAX:
            raise ValueError(f"a frame holds at most {FRAME_MAX} bytes, not {len(self.payload)}")
        return _HEAD.pack(len(self.payload), self.kind) + self.payload


def make_run_frame(argv: Sequence[str], cwd: str, env: Mapping[str, str]) -> Frame:
    """Return the request to run a command."""
    strings = [cwd, str(len(argv)), *argv, *(f"{k}={v}" for k, v in env.items())]
    if any("\0" in text for text in strings):
        raise ValueError("an argument or variable holds a NUL")
    return Frame(Kind.RUN, b"".join(text.encode("utf-8", "surrogateescape") + b"\0" for text in strings))


def decode_exit_status(payload: bytes) -> int:
    """Return the command's exit status as a shell reports it: 128 + signal if the command was killed."""
    wait = int.from_bytes(payload, "little")
    signal = wait & 0x7F
    return 128 + signal if signal else (wait >> 8) & 0xFF


class Decoder:
    """Splits the byte stream into frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def decode_frames(self, data: bytes) -> Iterator[Frame]:
        """Yield the frames completed by `data`."""
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
