from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from opwatch.host.scratch import ScratchDisk
from tests.kernel.support.guard import enter_own_namespace
from tests.requirements import require_kernel


@pytest.fixture(scope="session", autouse=True)
def _own_namespace() -> None:
    """Enter a private mount namespace, so that mounts disappear with this process even after a kill."""
    if os.geteuid() == 0:
        enter_own_namespace()


@pytest.fixture(autouse=True)
def _kernel() -> None:
    require_kernel()


@pytest.fixture
def disk() -> Iterator[ScratchDisk]:
    """Yield a loop device of 256 MiB for exclusive use."""
    with ScratchDisk(256 << 20) as scratch:
        yield scratch
