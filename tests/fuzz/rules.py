"""Requirements on each fuzz target: one class of error, and a CPU time limit per input."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType

from opwatch.errors import OpwatchError

# STRICT_S is for `make fuzz-all`. The short runs in the test suite use LENIENT_S, because their machines may
# stall for a moment. Quadratic behaviour exceeds both limits by far.
STRICT_S = 0.05
LENIENT_S = 1.0


@dataclass
class Bound:
    """Time limit of one input."""

    seconds: float = LENIENT_S


BOUND = Bound()


class TimeLimitExceeded(AssertionError):
    """An input exceeded the limit."""


class RefusedOrValid:
    """Context of one input.

    Any error except OpwatchError passes through and ends the run. Garbage collection does not count as time
    of the input.
    """

    # A class instead of a generator, because it is entered ten million times.
    __slots__ = ("_begin", "_name", "_sound_s", "_was_collecting")

    def __init__(self, name: str, sound_s: float = 0.0) -> None:
        """Name the target. Twice `sound_s` is added to the limit, for targets with expensive valid inputs."""
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
            raise TimeLimitExceeded(f"{self._name} took {1000 * spent:.0f} ms")
        return True


def run_from_arguments(run: Callable[[int, int], None], usual: int) -> int:
    """Run inputs by the command line: INPUTS [SEED], with `usual` inputs by default."""
    inputs, seed = (int(word) for word in (sys.argv[1:3] + [str(usual), "0"][len(sys.argv) - 1 :]))
    run(inputs, seed)
    print(f"{inputs} inputs from seed {seed}: all refused or sound, none over {1000 * BOUND.seconds:.0f} ms")
    return 0
