from __future__ import annotations

from collections.abc import Iterator

import pytest

from opwatch.scratch import ScratchDisk
from tests.requirements import require_kernel


@pytest.fixture(autouse=True)
def _kernel() -> None:
    require_kernel()


@pytest.fixture
def disk() -> Iterator[ScratchDisk]:
    """A loop device of 256 MiB that nobody else uses."""
    with ScratchDisk(256 << 20) as scratch:
        yield scratch
