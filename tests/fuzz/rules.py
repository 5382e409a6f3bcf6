"""What every fuzz target is held to: one class of error, and a bound of CPU time an input."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType

from opwatch.errors import OpwatchError

# STRICT_S is for `make fuzz-all`. The short runs among the tests are on machines that may stand still for
# a moment; what grows with the square of the input is far above their bound, too.
STRICT_S = 0.05
LENIENT_S = 1.0


@dataclass
class Bound:
    """How long one input may take."""

    seconds: float = LENIENT_S


BOUND = Bound()


class TookTooLong(AssertionError):
    """An input was above the bound."""


class refused_or_sound:
    """One input. Every other class of error passes through, and ends the run. A pause of the collector of
    cycles is none of the input's."""

    # A class, not a generator: it is entered ten million times.
    __slots__ = ("_begin", "_name", "_sound_s", "_was_collecting")

    def __init__(self, name: str, sound_s: float = 0.0) -> None:
        """Where a sound input costs much of the bound itself, its own seconds are granted twice on top."""
        self._name, self._sound_s = name, sound_s

    def __enter__(self) -> None:
        self._was_collecting = gc.isenabled()
        gc.disable()
        self._begin = time.thread_time()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        spent = time.thread_time() - self._begin
        if self._was_collecting:
            gc.enable()
        if error is not None and not isinstance(error, OpwatchError):
            return False
        if spent >= BOUND.seconds + 2 * self._sound_s:
            raise TookTooLong(f"{self._name} took {1000 * spent:.0f} ms")
        return True


def run_by_words(run: Callable[[int, int], None], usual: int) -> int:
    """So many inputs, from that seed, as the command line has it: INPUTS [SEED], or as many as are usual."""
    inputs, seed = (int(word) for word in (sys.argv[1:3] + [str(usual), "0"][len(sys.argv) - 1 :]))
    run(inputs, seed)
    print(f"{inputs} inputs from seed {seed}: all refused or sound, none over {1000 * BOUND.seconds:.0f} ms")
    return 0
