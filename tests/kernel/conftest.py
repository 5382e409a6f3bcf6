from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from opwatch.host.scratch import ScratchDisk
from tests.kernel.support.guard import enter_own_namespace
from tests.requirements import require_kernel

# Folders with the longest files. The workers take the files in order, so these come first.
_LONGEST = ("tests/kernel/sweep/", "tests/kernel/scenarios/")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the items so that the longest files come first."""
    items.sort(key=lambda item: not item.nodeid.startswith(_LONGEST))


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
