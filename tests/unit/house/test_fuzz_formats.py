"""A short run of each typed fuzz target; `make fuzz-all` runs them longer."""

from __future__ import annotations

import pytest

from tests.fuzz.formats import Fuzz

TARGETS = tuple(Fuzz(0).targets)


@pytest.mark.parametrize("target", TARGETS)
def test_every_input_is_refused_or_sound(target: str) -> None:
    Fuzz(5).run(400, target)
