"""Contents of a sentinel's blocks, and their state after a trim. Pure."""

from __future__ import annotations

import hashlib

from opwatch.trim.stale.sentinel import BLOCK, ReadsAs

_ZEROS, _ONES = bytes(BLOCK), b"\xff" * BLOCK


def make_pattern(run: bytes, file: int, block: int) -> bytes:
    """Return incompressible contents, unique to a block of a run."""
    return hashlib.shake_128(b"opwatch sentinel" + run + b"%d %d" % (file, block)).digest(BLOCK)


def compute_digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


def classify_block(before: bytes, now: bytes | None) -> ReadsAs:
    """Return a block's state after the trim. `before` is the digest of its original contents."""
    if now is None:
        return ReadsAs.UNREADABLE
    # Most blocks read as zeros, and no original block was all zeros.
    if now == _ZEROS[: len(now)]:
        return ReadsAs.ZEROS
    if compute_digest(now) == before:
        return ReadsAs.UNCHANGED
    return ReadsAs.ONES if now == _ONES[: len(now)] else ReadsAs.OTHER
