"""The untrimmed cliff on a real file system of a simulated drive: foretold before, found by its counters."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from opwatch.collectors.scenarios.untrimmed import untrimmed_place
from opwatch.errors import Unsupported
from opwatch.host.device import Devices
from tests.kernel.support.drives import MIB, drive
from tests.kernel.support.trims import file_of, loop, mounted
from tests.unit.scenarios.test_untrimmed import problems

COMMAND = (sys.executable, "-m", "opwatch", "sweep", "run", "--scenario", "untrimmed-cliff", "-q", "--json")


@pytest.fixture
def point() -> Iterator[Path]:
    with drive(768 * MIB, "7%") as made, mounted(made.device, "ext4") as where:
        yield where


def test_it_comes_where_it_was_foretold(point: Path) -> None:
    argv = [*COMMAND, "--on", f"here={point}", "--set", "rounds=6"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    assert problems(document) == []
    untrimmed, shrunk, trimmed = document["runs"]
    assert abs(untrimmed["error_ratio"]) < 0.02
    assert untrimmed["stale_bytes"] > 0.3 * (768 << 20) and trimmed["stale_bytes"] == 0
    # What is stale is free for the file system, and no room for the drive.
    assert untrimmed["free_bytes"] > 2 * untrimmed["room_bytes"]
    assert shrunk["cliff_bytes"] is None and trimmed["cliff_bytes"] is None
    assert trimmed["room_bytes"] > 2 * untrimmed["room_bytes"]
    assert [one.name for one in point.iterdir()] == ["lost+found"]


def test_of_another_drive_nothing_is_foretold() -> None:
    with (
        file_of(96 * MIB) as image,
        loop(image) as node,
        mounted(node, "ext4") as where,
        pytest.raises(Unsupported, match="no simulated drive"),
    ):
        untrimmed_place(Devices(), where)
