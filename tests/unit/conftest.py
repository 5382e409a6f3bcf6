"""The fake machine for most device tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

from opwatch.host.usage import Usage, parse_mountinfo, parse_swaps
from tests.unit.support.mounts import MOUNTINFO, SWAPS
from tests.unit.support.sysfs import Tree, make_machine

# The duration of an example depends on other load on the machine, not on the property.
settings.register_profile("however long", deadline=None)
settings.load_profile("however long")


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return make_machine(tmp_path)


@pytest.fixture
def usage() -> Usage:
    return Usage(parse_mountinfo(MOUNTINFO), parse_swaps(SWAPS), {"sdb3": "btrfs 0123"})
