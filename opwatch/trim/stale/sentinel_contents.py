"""What a block of a sentinel holds, and what became of it. Pure."""

from __future__ import annotations

import hashlib

from opwatch.trim.stale.sentinel import BLOCK, ReadsAs

_ZEROS, _ONES = bytes(BLOCK), b"\xff" * BLOCK


def pattern(run: bytes, file: int, block: int) -> bytes:
    """Contents that no other block of any run has, and that nothing compresses."""
    return hashlib.shake_128(b"opwatch sentinel" + run + b"%d %d" % (file, block)).digest(BLOCK)


def digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


def state_of(before: bytes, now: bytes | None) -> ReadsAs:
    """What became of a block: `before` is the digest of what it held."""
    if now is None:
        return ReadsAs.UNREADABLE
    # Most read as zeros, which none held.
    if now == _ZEROS[: len(now)]:
        return ReadsAs.ZEROS
    if digest(now) == before:
        return ReadsAs.UNCHANGED
    return ReadsAs.ONES if now == _ONES[: len(now)] else ReadsAs.OTHER
