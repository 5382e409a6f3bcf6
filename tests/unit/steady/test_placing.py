"""Drive writes are file writes, wherever the file is stored."""

from __future__ import annotations

import random

from opwatch.steady.placing import FileMap, FileRun, merge_runs


def test_runs_adjacent_in_file_and_disk_are_joined() -> None:
    runs = [FileRun(500, 200, 50), FileRun(100, 0, 100), FileRun(200, 100, 100), FileRun(300, 250, 10)]
    assert merge_runs(runs) == [FileRun(100, 0, 200), FileRun(500, 200, 50), FileRun(300, 250, 10)]


def test_empty_map_is_the_drive_itself() -> None:
    assert list(FileMap().map_write(8192, 4096)) == [(8192, 4096)]


def test_each_byte_of_a_write_maps_to_its_place_in_the_file() -> None:
    rng = random.Random(1)
    places = rng.sample(range(0, 2000, 20), 30)
    runs = [FileRun(place, 20 * at, 20) for at, place in enumerate(places)]
    byte_of = {
        run.disk_bytes + offset: run.file_bytes + offset for run in runs for offset in range(run.length)
    }
    placed = FileMap(runs)
    for _ in range(500):
        begin, length = rng.randrange(2000), rng.randrange(1, 200)
        parts = [
            byte for first, count in placed.map_write(begin, length) for byte in range(first, first + count)
        ]
        assert parts == [byte_of[byte] for byte in range(begin, begin + length) if byte in byte_of]
