"""Damaged replies of a broker: refused with OpwatchError, or decoded.

python -m tests.fuzz.broker [INPUTS [SEED]]
"""

from __future__ import annotations

import random
import struct
import sys
from collections.abc import Callable

from opwatch.collectors.broker import protocol
from opwatch.trace import abi
from tests.fuzz.history import damage_bytes
from tests.fuzz.rules import RefusedOrValid, run_from_arguments

_OP_BYTES = (abi.SAMPLE_BYTES - 16) // len(abi.OPS)


def make_hello(sample_bytes: int = abi.SAMPLE_BYTES) -> bytes:
    return struct.pack(
        "=4IQ24s", protocol.VERSION, sample_bytes, _OP_BYTES, protocol.OWNER_BYTES, 5, b"0.1.0"
    )


def make_reply(tag: int, data: bytes = b"", *, error: int = 0, status: int = 0) -> bytes:
    return struct.pack("=4I", tag, error, status, len(data)) + data


def make_packed_sample(present: int) -> bytes:
    """Return a packed sample whose operations have the bytes 1, 2, ... in the order of their bits."""
    ops = b"".join(bytes([number + 1]) * _OP_BYTES for number in range(present.bit_count()))
    return struct.pack("=QQII", 7, 9, present, 0) + ops


_DECODERS: tuple[tuple[bytes, Callable[[bytes], object]], ...] = (
    (make_reply(5, b"data"), protocol.decode_reply),
    (make_hello(), protocol.decode_hello),
    (
        struct.pack("=4I", 2, 2, 0, 0),
        lambda raw: protocol.decode_opened(protocol.Reply(1, 0, 3, raw)),
    ),
    (struct.pack("=32sI4xQQQ", b"rq_issue", 5, 1, 2, 3) * 2, protocol.decode_programs),
    (make_packed_sample(0b101), lambda raw: abi.decode_sample(protocol.unpack_sample(raw))),
)


def run(inputs: int, seed: int) -> None:
    """Run this many inputs. Raises at the first failure."""
    chance = random.Random(seed)
    for _ in range(inputs):
        raw, decode = chance.choice(_DECODERS)
        damaged = damage_bytes(raw, chance)
        with RefusedOrValid("reply of a broker"):
            decode(damaged)


if __name__ == "__main__":
    sys.exit(run_from_arguments(run, 100_000))
