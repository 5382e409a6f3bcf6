"""The machine that most tests of devices look at."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

from opwatch.host.usage import Usage, parse_mountinfo, parse_swaps
from tests.unit.support.mounts import MOUNTINFO, SWAPS
from tests.unit.support.sysfs import Tree, machine

# How long an example takes says how busy the machine is with others, and nothing of the property.
settings.register_profile("however long", deadline=None)
settings.load_profile("however long")


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return machine(tmp_path)


@pytest.fixture
def usage() -> Usage:
    return Usage(parse_mountinfo(MOUNTINFO), parse_swaps(SWAPS), {"sdb3": "btrfs 0123"})
