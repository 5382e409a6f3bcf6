"""The bpftrace scripts on this kernel: each is parsed, run, and right about a known load."""

from __future__ import annotations

from pathlib import Path

import pytest

from opwatch.scratch import ScratchDisk
from tests.requirements import unmet

from .bpftrace import SCRIPTS, missing
from .scripts import CHECKS
from .watching import ATTEMPTS


@pytest.fixture(autouse=True)
def _bpftrace() -> None:
    reason = missing()
    if reason:
        unmet("kernel", reason)


@pytest.mark.parametrize("script", CHECKS)
def test_script_is_right_about_a_known_load(disk: ScratchDisk, script: str) -> None:
    Path(f"/sys/block/{disk.name}/queue/discard_max_bytes").write_text(str(1 << 18))
    for attempt in range(ATTEMPTS):
        try:
            CHECKS[script](disk.node)
            return
        except AssertionError:
            # This machine may hide events from BPF programs; see watching.py.
            if attempt == ATTEMPTS - 1:
                raise


def test_every_script_has_a_check_and_an_example() -> None:
    assert {script.stem for script in SCRIPTS} == set(CHECKS)
    for script in SCRIPTS:
        example = script.with_name(script.stem + "_example.txt").read_text()
        assert f"# {script.name}" in example
