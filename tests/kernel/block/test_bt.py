"""The bpftrace scripts on this kernel: each parses, runs and counts a known load correctly."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from opwatch.host.scratch import ScratchDisk
from tests.kernel.support.bpftrace import SCRIPTS, find_obstacle
from tests.kernel.support.scripts import CHECKS
from tests.kernel.support.watching import ATTEMPTS
from tests.requirements import skip_or_fail


@pytest.fixture(autouse=True)
def _bpftrace() -> None:
    reason = find_obstacle()
    if reason:
        skip_or_fail("kernel", reason)


@pytest.fixture
def splitting(disk: ScratchDisk) -> Iterator[ScratchDisk]:
    """Yield a disk with a discard limit of 256 KiB. The limit outlives the disk with its loop device, so
    restore the old limit."""
    queue = Path(f"/sys/block/{disk.name}/queue")
    limit, granularity = queue / "discard_max_bytes", int((queue / "discard_granularity").read_text())
    # The kernel's initial value may not be a multiple of the granularity, and then cannot be written back.
    before = int(limit.read_text()) // granularity * granularity
    limit.write_text(str(1 << 18))
    yield disk
    limit.write_text(str(before))


@pytest.mark.parametrize("script", CHECKS)
def test_script_counts_a_known_load_correctly(splitting: ScratchDisk, script: str) -> None:
    for attempt in range(ATTEMPTS):
        try:
            CHECKS[script](splitting.node)
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
