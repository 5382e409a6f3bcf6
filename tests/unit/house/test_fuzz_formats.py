"""A short run of each typed fuzz target; `make fuzz-all` runs them longer."""

from __future__ import annotations

import pytest

from tests.fuzz.formats import FormatFuzzer

TARGETS = tuple(FormatFuzzer(0).targets)


@pytest.mark.parametrize("target", TARGETS)
def test_every_input_is_refused_or_sound(target: str) -> None:
    FormatFuzzer(5).run_inputs(400, target)
