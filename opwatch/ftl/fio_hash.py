"""Ranks that fio's hash leads to the same block. Pure.

fio takes rank * G mod 2^64 mod N as block. Two ranks have the same block only if their difference d satisfies
d * G = k * N mod 2^64 with |k| < 2^64 / N. These (d, k) are the points of a lattice in a box of a few times
its determinant, so there are few, and a reduced basis finds them in constant time. How many ranks share a
block depends on N alone: none if it is a power of two.
"""

from __future__ import annotations

import functools

_GOLDEN_RATIO, _BITS = 0x61C8864680B583EB, 64
# More differences than this do not occur, unless N is very small.
_MOST = 4096
# Ranks are counted in this many parts, by samples of each.
_PARTS, _SAMPLES = 64, 64


def find_colliding_differences(blocks: int) -> list[int]:
    """Return the differences of two ranks below `blocks` that may have the same block, the largest first."""
    shift = (blocks & -blocks).bit_length() - 1
    odd, modulus = blocks >> shift, 1 << (_BITS - shift)
    # d is a multiple of 2^shift; lattice points are (d / 2^shift, k).
    slope = _GOLDEN_RATIO * pow(odd, -1, modulus) % modulus
    width, height = odd, modulus // odd + 1
    first, second = _reduce_basis((1, slope), (0, modulus), width, height)
    found: set[int] = set()
    reach = _find_reach(first, second, width, height)
    for a in range(-reach, reach + 1):
        low, high = _find_range(first, second, a, width, height)
        for b in range(low, high + 1):
            d, k = a * first[0] + b * second[0], a * first[1] + b * second[1]
            if 0 < d < width and abs(k) < height:
                found.add(d << shift)
            if len(found) >= _MOST:
                return sorted(found, reverse=True)
    return sorted(found, reverse=True)


@functools.lru_cache(256)
def measure_own_shares(blocks: int) -> tuple[float, ...]:
    """Return the share of ranks whose block no hotter rank has, for equal parts of the ranks, hottest first.

    The mean of the shares is the share of blocks that are ever written.
    """
    differences = find_colliding_differences(blocks)
    if not differences:
        return (1.0,) * _PARTS
    size = blocks / _PARTS
    shares = []
    for part in range(_PARTS):
        ranks = {int(size * (part + (at + 0.5) / _SAMPLES)) for at in range(_SAMPLES)}
        shares.append(sum(_has_own_block(rank, blocks, differences) for rank in ranks) / len(ranks))
    return tuple(shares)


def _has_own_block(rank: int, blocks: int, differences: list[int]) -> bool:
    block = _find_block(rank, blocks)
    return not any(
        _find_block(rank - difference, blocks) == block for difference in differences if difference <= rank
    )


def _find_block(rank: int, blocks: int) -> int:
    """Return the block to which fio's hash leads a rank."""
    return rank * _GOLDEN_RATIO % (1 << _BITS) % blocks


_Point = tuple[int, int]


def _reduce_basis(u: _Point, v: _Point, width: int, height: int) -> tuple[_Point, _Point]:
    """Return a basis by Gauss, reduced for lengths in units of the box: the longer vector first."""

    def multiply(a: _Point, b: _Point) -> int:
        # Scaled by (width * height)^2.
        return a[0] * b[0] * height * height + a[1] * b[1] * width * width

    if multiply(u, u) < multiply(v, v):
        u, v = v, u
    while True:
        factor = (2 * multiply(u, v) + multiply(v, v)) // (2 * multiply(v, v))
        u = (u[0] - factor * v[0], u[1] - factor * v[1])
        if multiply(u, u) >= multiply(v, v):
            return u, v
        u, v = v, u


def _find_reach(u: _Point, v: _Point, width: int, height: int) -> int:
    """Return the largest multiple of the longer vector in the box, from Cramer's rule."""
    determinant = abs(u[0] * v[1] - u[1] * v[0])
    return (width * abs(v[1]) + height * abs(v[0])) // determinant + 1


def _find_range(u: _Point, v: _Point, a: int, width: int, height: int) -> tuple[int, int]:
    """Return the multiples of the shorter vector that may be in the box, beside `a` times the longer one."""
    bounds = []
    for at, size in ((0, width), (1, height)):
        if v[at]:
            edges = sorted(((-size - a * u[at]) / v[at], (size - a * u[at]) / v[at]))
            bounds.append((int(edges[0]) - 1, int(edges[1]) + 1))
    return max(low for low, _ in bounds), min(high for _, high in bounds)
