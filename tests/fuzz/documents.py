"""Documents of a recording with modified values: refused with OpwatchError, or shown."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from typing import Any

from .rules import RefusedOrValid

_OTHERS: tuple[Any, ...] = (
    *(-1, 0, 1, 2, 5, 255, 4096, 1 << 31, (1 << 63) - 1, 1 << 64, (1 << 64) - 1, -(1 << 63)),
    *(None, True, False, 1e300, 0.5, "", "x", "discard", "dm-0", "raid5", "md", "9" * 50),
    *([], {}, [[]], [None], ["x"], [0, 0], ["DiskFacts", []]),
)


class DocumentFuzzer:
    """Sequence of inputs from a seed: sound documents with this key, modified, which `show` gets."""

    def __init__(self, seed: int, key: str, good: Sequence[bytes], show: Callable[[bytes], None]) -> None:
        self._random = random.Random(seed)
        self._key, self._show = key, show
        self._good = [json.loads(raw) for raw in good]

    def run_inputs(self, inputs: int) -> None:
        """Run this many inputs. Raises at the first failure."""
        for _ in range(inputs):
            document = self._random.choice(self._good)
            for _ in range(self._random.randrange(1, 5)):
                part = self._key if self._random.random() < 0.9 else "shapes"
                document = document | {part: self._replace_value(document[part])}
            with RefusedOrValid(self._key):
                self._show(json.dumps(document).encode())

    def _replace_value(self, plain: Any) -> Any:  # noqa: ANN401
        """Return a copy with one value replaced at any depth."""
        chance = self._random
        if isinstance(plain, dict) and plain and chance.random() < 0.95:
            name = chance.choice(list(plain))
            return plain | {name: self._replace_value(plain[name])}
        if isinstance(plain, list) and plain and chance.random() < 0.95:
            at, kind = chance.randrange(len(plain)), chance.random()
            if kind < 0.05:
                return plain[:at] + plain[at + 1 :]
            if kind < 0.1:
                return [*plain[:at], plain[at], *plain[at:]]
            return [*plain[:at], self._replace_value(plain[at]), *plain[at + 1 :]]
        if type(plain) is int and chance.random() < 0.5:
            return plain + chance.choice((-1, 1, 4096, 1 << 40))
        return chance.choice(_OTHERS)
