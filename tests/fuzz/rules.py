"""What every fuzz target is held to: one class of error, and a bound of CPU time an input."""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Iterator
from dataclasses import dataclass

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


@contextlib.contextmanager
def refused_or_sound(name: str) -> Iterator[None]:
    """One input. Every other class of error passes through, and ends the run."""
    with _without_pauses():
        begin = time.thread_time()
        with contextlib.suppress(OpwatchError):
            yield
        spent = time.thread_time() - begin
    assert spent < BOUND.seconds, f"{name} took {1000 * spent:.0f} ms"


@contextlib.contextmanager
def _without_pauses() -> Iterator[None]:
    """A pause of the collector of cycles is none of the input's."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
