"""Generate runs of a synthetic drive with bursts of slow reads.

The share of reads delayed by garbage collection is correlated from second to second, and so is the duration
of a collection.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator
from functools import cache
from statistics import NormalDist

from tests.unit.compare.counted_disk import Second

_RATE = 4000.0
_QUICK_NS, _QUICK_SPREAD = 90e3, 0.25
_SLOW_NS, _SLOW_SPREAD = 2e6, 0.4
_SLOW_SHARE = 0.03
# Standard deviation of the slow share's and the slow latency's logarithm between seconds.
_SHARE_SPREAD, _TIME_SPREAD = 0.15, 0.02
_STEPS = 200


@cache
def _make_latencies(middle: float, spread: float) -> tuple[float, ...]:
    """Return equally likely latencies."""
    law = NormalDist(math.log(middle), spread)
    return tuple(math.exp(law.inv_cdf((step + 0.5) / _STEPS)) for step in range(_STEPS))


def generate_run(seed: int, seconds: int, worse: float = 1.0, *, lasting: float = 0.5) -> Iterator[Second]:
    """Yield the seconds of a run.

    `lasting` is the correlation between consecutive seconds; `worse` multiplies the latency of slow reads.
    """
    chance = random.Random(seed)
    share_mood, time_mood = chance.gauss(0, 1), chance.gauss(0, 1)
    for _ in range(seconds):
        share_mood, time_mood = (
            lasting * mood + math.sqrt(1 - lasting**2) * chance.gauss(0, 1)
            for mood in (share_mood, time_mood)
        )
        count = round(_RATE + math.sqrt(_RATE) * chance.gauss(0, 1))
        share = _SLOW_SHARE * math.exp(_SHARE_SPREAD * share_mood)
        slow = sum(chance.random() < share for _ in range(count))
        longer = worse * math.exp(_TIME_SPREAD * time_mood)
        latencies = Counter(
            round(ns) for ns in chance.choices(_make_latencies(_QUICK_NS, _QUICK_SPREAD), k=count - slow)
        )
        latencies.update(
            round(ns * longer) for ns in chance.choices(_make_latencies(_SLOW_NS, _SLOW_SPREAD), k=slow)
        )
        yield {"read": latencies}
