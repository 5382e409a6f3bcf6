"""Control groups in recorded histories."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from opwatch.collectors.history.recorder import HistoryRecorder
from opwatch.collectors.owners.cgroups import find_io_hierarchy
from opwatch.host.device import Devices
from opwatch.host.scratch import ScratchDisk
from opwatch.recording.reading.history import read_requests
from tests.kernel.support.watching import ATTEMPTS

_WRITES = {"first": 101, "second": 53}


@pytest.fixture
def groups() -> Iterator[list[Path]]:
    """Groups of the hierarchy that the kernel accounts I/O to."""
    root = find_io_hierarchy().root
    if root is None:
        pytest.skip("the I/O controller is not one of version 1 here; guests test version 2")
    made = [root / f"opwatch-{name}-{os.getpid()}" for name in _WRITES]
    for group in made:
        group.mkdir()
    yield made
    for group in made:
        group.rmdir()


def write_in_group(group: Path, node: str, count: int) -> None:
    write = f"dd if=/dev/zero of={node} bs=4k count={count} oflag=direct conv=notrunc status=none"
    subprocess.run(["sh", "-c", f"echo $$ >{group}/cgroup.procs && exec {write}"], check=True)


def count_writes(path: Path) -> Counter[str]:
    """Return the requests in a history by the name of their owner, or "" if it is unknown."""
    saved, requests = read_requests(path)
    names = ("", *saved.look.owners)
    return Counter(names[owner] for owner in requests.owners)


def test_recorded_requests_have_the_groups_of_their_writers(
    disk: ScratchDisk, groups: list[Path], tmp_path: Path
) -> None:
    for attempt in range(ATTEMPTS):
        path = tmp_path / f"{attempt}.history"
        # The second recording goes on with the file, and the group has the same name in both.
        for group, count in zip(groups, _WRITES.values(), strict=True):
            recorder = HistoryRecorder(Devices(), Devices().resolve(disk.node), path)
            try:
                write_in_group(group, disk.node, count)
                write_in_group(groups[0], disk.node, 7)
            finally:
                recorder.close()
        if not recorder.history.forgotten:
            break
    expected = Counter(
        {f"/{group.name}": count for group, count in zip(groups, _WRITES.values(), strict=True)}
    )
    expected[f"/{groups[0].name}"] += 14
    assert count_writes(path) == expected
