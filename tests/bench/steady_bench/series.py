"""Made-up series of rounds with a known long-run mean: noise, approaches, cycles and rare events.

Time is in drive writes. A series has a shape with a long-run mean of 1, and noise. Its rounds have WAF of
that shape and IOPS that are inversely proportional, or IOPS of that shape and a constant WAF, or no WAF.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from opwatch.steady.coverage import WriteSpread
from opwatch.steady.rounds import Round
from opwatch.steady.strict import VerdictInputs

USED = 10**9
KINDS = ("noise", "approach", "two approaches", "power law", "sinus", "throttle", "sawtooth", "heavy tails")
_IOPS, _IO_BYTES = 1e5, 4096


@dataclass(frozen=True)
class MadeSeries:
    """A series of rounds. `waf` and `iops` are the long-run means, None if not measured."""

    kind: str
    name: str
    rounds: tuple[Round, ...]
    ground: VerdictInputs
    waf: float | None
    iops: float
    shape: tuple[float, ...] = ()

    def is_visible(self, first: int, end: int, least: float = 0.01) -> bool:
        """Return True if the shape changes within these rounds, which thus do not look like the mean."""
        shape = self.shape[first:end]
        return not shape or max(shape) - min(shape) > least

    def iter_lengths(self) -> Iterator[int]:
        """Yield the numbers of rounds after which a sweep asks for a verdict."""
        yield from range(5, len(self.rounds) + 1)


def make_series(kind: str, seed: int, drive_writes: float = 0.0) -> MadeSeries:
    draw = random.Random(f"{kind} {seed}")
    round_ratio = draw.choice((0.05, 0.1, 0.1, 0.1, 0.25))
    length = drive_writes or draw.choice((6.0, 12.0, 30.0))
    name, shape = SHAPES[kind](draw)
    target = draw.choice(("WAF", "WAF", "IOPS", "IOPS without WAF"))
    noise = draw.choice((0.001, 0.003, 0.01)) * math.sqrt(0.1 / round_ratio)
    count, spare = round(length / round_ratio), draw.choice((0.07, 0.15, 0.28, 0.5))
    level = draw.uniform(1.2, 8.0)
    memory = draw.choice((0.0, 0.0, 0.5)) if kind == "noise" else 0.0
    shapes = tuple(shape((at + 0.5) * round_ratio) for at in range(count))
    values, rest = [], 0.0
    for one in shapes:
        rest = memory * rest + math.sqrt(1 - memory * memory) * draw.gauss(0, noise)
        values.append(max(one * (1 + rest), 0.01))
    host = round(USED * round_ratio)
    rounds = tuple(_make_round(value, host, target, level, draw.gauss(1, 0.001)) for value in values)
    ground = VerdictInputs(USED, round(spare * USED), WriteSpread(1.0, 0.0, "made up"))
    waf = None if target == "IOPS without WAF" else level
    name = f"{name}, {target}, noise {noise:.3f}, rounds {round_ratio}"
    return MadeSeries(kind, name, rounds, ground, waf, _IOPS, shapes)


def _make_round(value: float, host: int, target: str, level: float, jitter: float) -> Round:
    """Return a round of `value` times the mean. Equal rounds, so means over rounds and over time agree."""
    ios = host / _IO_BYTES
    if target == "WAF":
        return Round(host, ios / _IOPS * jitter, round(ios), 1e6, round(level * value * host))
    # The rate varies at a constant time, so that the long-run mean of IOPS is that of the shape.
    nand = None if target == "IOPS without WAF" else round(level * host * jitter)
    return Round(host, ios / _IOPS, round(ios * value), 1e6, nand)


Shape = Callable[[float], float]


def _make_noise(draw: random.Random) -> tuple[str, Shape]:
    return "noise", lambda at: 1.0


def _make_approach(draw: random.Random) -> tuple[str, Shape]:
    size, constant = (
        draw.choice((-1, 1)) * draw.uniform(0.03, 0.6),
        math.exp(draw.uniform(math.log(0.3), math.log(8))),
    )
    return f"approach {size:+.2f} in {constant:.2f}", lambda at: 1 + size * math.exp(-at / constant)


def _make_two_approaches(draw: random.Random) -> tuple[str, Shape]:
    first, one = _make_approach(draw)
    second, other = _make_approach(draw)
    return f"{first} and {second}", lambda at: max(one(at) + other(at) - 1, 0.05)


def _make_power_law(draw: random.Random) -> tuple[str, Shape]:
    size, constant = draw.choice((-1, 1)) * draw.uniform(0.05, 0.6), draw.uniform(0.2, 2)
    return f"power law {size:+.2f} in {constant:.2f}", lambda at: 1 + size / (1 + at / constant) ** 1.5


def _make_sinus(draw: random.Random) -> tuple[str, Shape]:
    size, period, phase = (
        draw.uniform(0.02, 0.3),
        math.exp(draw.uniform(math.log(0.3), math.log(8))),
        draw.random(),
    )
    return (
        f"sinus ±{size:.2f} in {period:.2f}",
        lambda at: 1 + size * math.sin(2 * math.pi * (at / period + phase)),
    )


def _make_throttle(draw: random.Random) -> tuple[str, Shape]:
    size, period, share = draw.uniform(0.05, 0.6), draw.uniform(0.5, 3), draw.uniform(0.1, 0.7)
    phase, mean = draw.random(), 1 - size * share

    def shape(at: float) -> float:
        return (1 - size if (at / period + phase) % 1 < share else 1) / mean

    return f"throttle -{size:.2f} for {share:.2f} of {period:.2f}", shape


def _make_sawtooth(draw: random.Random) -> tuple[str, Shape]:
    size, period, phase = (
        draw.uniform(0.04, 0.5),
        math.exp(draw.uniform(math.log(0.5), math.log(6))),
        draw.random(),
    )
    way = draw.choice((-1, 1))
    return (
        f"sawtooth {way * size:+.2f} in {period:.2f}",
        lambda at: 1 + way * size * ((at / period + phase) % 1 - 0.5),
    )


def _make_heavy_tails(draw: random.Random) -> tuple[str, Shape]:
    """Rounds with rare large excesses: Pareto with a finite mean, or stalls."""
    if draw.random() < 0.5:
        power, scale = draw.uniform(1.5, 3), draw.choice((0.003, 0.01, 0.03, 0.1))
        mean = 1 + scale * power / (power - 1)
        return (
            f"Pareto {power:.2f} x {scale}",
            lambda at: (1 + scale * draw.paretovariate(power)) / mean,
        )
    chance, size = draw.uniform(0.02, 0.2), draw.uniform(0.05, 0.9)
    mean = 1 - chance * size
    return (
        f"stalls -{size:.2f} in {chance:.2f}",
        lambda at: (1 - size * (draw.random() < chance)) / mean,
    )


SHAPES: dict[str, Callable[[random.Random], tuple[str, Shape]]] = {
    "noise": _make_noise,
    "approach": _make_approach,
    "two approaches": _make_two_approaches,
    "power law": _make_power_law,
    "sinus": _make_sinus,
    "throttle": _make_throttle,
    "sawtooth": _make_sawtooth,
    "heavy tails": _make_heavy_tails,
}
