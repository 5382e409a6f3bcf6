"""A short run of the fuzz target; `make fuzz-web` runs it longer."""

from __future__ import annotations

from tests.fuzz.web import WebFuzzer


def test_every_request_is_answered_or_refused() -> None:
    WebFuzzer(5).run_inputs(2000)
