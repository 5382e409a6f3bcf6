"""`opwatch trim record` and `trim stale --history` against the simulated drive's own map."""

from __future__ import annotations

import contextlib
import fcntl
import json
import mmap
import os
import random
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from opwatch.collectors import changes
from opwatch.collectors.changes import ChangeTracer
from opwatch.collectors.fitrim import fitrim, mounted_at
from opwatch.collectors.free_space import read_free_space
from opwatch.collectors.history_file import read_history
from opwatch.collectors.recording import Recording
from opwatch.device import Devices
from opwatch.scratch import ScratchDisk
from opwatch.trim.changes import Change, Kind, decode
from opwatch.trim.extents import Extents
from opwatch.trim.sectormap import State
from tests.requirements import require_drive

from .drives import MIB, Drive, drive, run
from .filesystems import KINDS, free_of, held, make, mounted, use
from .load import BLKDISCARD, BLKZEROOUT, discards, flushes, opened, reads, writes
from .watching import ATTEMPTS, opwatch

SIZE = 320 * MIB


def recorded(disk: str, path: Path, load: Callable[[], None]) -> Recording:
    """What a recording of a load knows at its end, once the host has lost nothing of it."""
    for _ in range(ATTEMPTS):
        path.unlink(missing_ok=True)
        recording = Recording(Devices(), Devices().resolve(disk), path)
        try:
            load()
            assert recording.look()
        finally:
            recording.close()
        if not recording.history.forgotten:
            break
    return recording


def command(*words: str, status: int = 0) -> dict[str, Any]:
    done = opwatch("trim", *words, "--json")
    assert done.returncode == status, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def map_of(one: Drive) -> Extents:
    """What the simulated drive holds, by its own map."""
    bits = (one.place.mount / "valid-map").read_bytes()
    units = (at * 8 + bit for at, byte in enumerate(bits) if byte for bit in range(8) if byte >> bit & 1)
    return Extents.in_order((unit * 4096, (unit + 1) * 4096) for unit in units)


# --- the programs ---


def seen(disk: ScratchDisk, load: Callable[[], None]) -> list[Change]:
    tracer = ChangeTracer(Devices().resolve(disk.node))
    try:
        load()
        return [Change(*fields) for fields in decode(tracer.drain()[0])]
    finally:
        tracer.close()


def test_every_kind_is_told_a_prime_number_of_times(disk: ScratchDisk) -> None:
    def load() -> None:
        writes(other.node, 5)
        reads(disk.node, 23)
        writes(disk.node, 29, size=8192, step=8192)
        writes(disk.node, 7, flags=os.O_DSYNC)
        discards(disk.node, 13)
        discards(disk.node, 1, request=BLKZEROOUT)
        flushes(disk.node, 11)

    with ScratchDisk(64 * MIB) as other:
        for _ in range(ATTEMPTS):
            found = seen(disk, load)
            if len(found) >= 29 + 7 + 13 + 1:
                break
    places: dict[int, list[tuple[int, int]]] = {}
    for each in found:
        if each.status == 0:
            places.setdefault(each.kind, []).append((each.sector, each.sectors))
        assert 0 < each.begin_ns < each.end_ns
    expected = [(at * 16, 16) for at in range(29)] + [(at * 8, 8) for at in range(7)]
    # What cannot be zeroed in place is written.
    [zeroed] = [each for each in found if each.kind == Kind.ZEROES]
    assert places[Kind.WRITE][:36] == expected
    assert places[Kind.DISCARD] == [(at * 2048, 1024) for at in range(13)]
    assert (zeroed.sector, zeroed.sectors, zeroed.status) == (0, 1024, 1)


def test_a_full_ring_is_a_loss_and_no_silence(
    disk: ScratchDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "_RING_BYTES", 4096)

    def load() -> None:
        discards(disk.node, 3)
        writes(disk.node, 500)

    recording = recorded(disk.node, tmp_path / "x", load)
    assert any("room" in why for why in recording.history.forgotten)
    assert not recording.history.map.extents(State.TRIMMED)
    # What was written stays written, whatever else was written.
    assert recording.history.map.extents(State.WRITTEN).total > 0
    assert recording.state().written_slack is not None


# --- against the drive ---


def scatter(device: str, seed: int) -> None:
    """Writes and discards of whole units of the drive, many on the same places."""
    rng = random.Random(seed)
    pattern = mmap.mmap(-1, MIB)
    pattern.write(rng.randbytes(MIB))
    with opened(device) as descriptor:
        fcntl.ioctl(descriptor, BLKDISCARD, struct.pack("=QQ", 0, SIZE))
        for _ in range(400):
            at = rng.randrange(SIZE // 4096) * 4096
            length = min(rng.choice((4096, 12288, 65536, MIB)), SIZE - at)
            if rng.random() < 0.6:
                os.pwritev(descriptor, [memoryview(pattern)[:length]], at)
            else:
                fcntl.ioctl(descriptor, BLKDISCARD, struct.pack("=QQ", at, length))


@pytest.mark.parametrize("seed", range(6))
def test_the_map_is_the_drives_own(seed: int, tmp_path: Path) -> None:
    require_drive()
    with drive(SIZE, "7%") as one:
        recording = recorded(one.device, tmp_path / "x", lambda: scatter(one.device, seed))
        assert not recording.history.forgotten
        truth = map_of(one)
        assert truth.total > MIB
        assert recording.history.map.extents(State.WRITTEN) == truth
        assert recording.history.map.extents(State.TRIMMED) == truth.gaps(0, SIZE)
        look = recording.state()
        assert (look.written_slack, look.discarded_slack) == (0, 0)
        saved, alive = read_history(tmp_path / "x")
        assert not alive
        assert saved.map.extents(State.WRITTEN) == truth


def churn(device: str, seed: int) -> None:
    """Writes and discards on few places, from several threads that know nothing of each other."""

    def one(number: int) -> None:
        rng = random.Random(seed * 10 + number)
        pattern = mmap.mmap(-1, 65536)
        pattern.write(rng.randbytes(65536))
        with opened(device) as descriptor:
            for _ in range(300):
                at, length = rng.randrange(512) * 4096, rng.choice((4096, 65536))
                if rng.random() < 0.6:
                    os.pwritev(descriptor, [memoryview(pattern)[:length]], at)
                else:
                    fcntl.ioctl(descriptor, BLKDISCARD, struct.pack("=QQ", at, length))

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(one, range(6)))


@pytest.mark.parametrize("seed", range(3))
def test_what_met_on_its_way_is_not_known_and_all_else_is_right(seed: int, tmp_path: Path) -> None:
    require_drive()
    with drive(SIZE, "7%") as one:
        recording = recorded(one.device, tmp_path / "x", lambda: churn(one.device, seed))
        assert not recording.history.forgotten
        truth, map_ = map_of(one), recording.history.map
        assert not map_.extents(State.WRITTEN) - truth
        assert not map_.extents(State.TRIMMED) & truth
        # And that is most of it.
        assert map_.extents(State.WRITTEN).total > MIB // 2
        assert map_.extents(State.TRIMMED).total > MIB // 4


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_systems_stale_space_is_exact(kind: str, tmp_path: Path) -> None:
    require_drive()
    path, point = tmp_path / "x", tmp_path / "mnt"
    point.mkdir()
    with drive(SIZE, "7%") as one:

        def load() -> None:
            if os.path.ismount(point):
                run("umount", str(point))
            discards(one.device, 1, length=SIZE)
            make(kind, one.device)
            run("mount", "-o", "nodiscard", one.device, str(point))
            use(point, 1)
            fitrim(mounted_at(str(point)))
            use(point, 2)

        try:
            recording = recorded(one.device, path, load)
            assert not recording.history.forgotten
            found = command("stale", str(point), "--history", str(path))
            truth = held(one, free_of(point))
            assert truth > 10 * MIB
            stale = found["stale_bytes"]
            assert stale["low"] <= truth <= stale["high"]
            # What is not known was zeroed, and lies where the file system was made.
            assert stale["high"] - stale["low"] == found["unknown_bytes"] <= MIB
            assert found["exact"] is (found["unknown_bytes"] == 0)
            assert found["exact"] is (stale["value"] is not None)
            [part] = found["drives"]
            assert (part["doubts"], part["history"]) == ([], str(path))
            assert found["physical_bytes"] == one.truth()["physical_bytes"]
        finally:
            run("umount", str(point))


def test_a_recording_that_goes_on_is_read(tmp_path: Path) -> None:
    """The reader waits for what it has just had written down."""
    require_drive()
    path, point = tmp_path / "x", tmp_path / "mnt"
    point.mkdir()
    with drive(SIZE, "7%") as one:
        for _ in range(ATTEMPTS):
            discards(one.device, 1, length=SIZE)
            with recorder(one.device, path) as process:
                discards(one.device, 1, length=SIZE)
                make("ext4", one.device)
                with mounted(one.device, point):
                    use(point, 3)
                    (point / "last").write_bytes(bytes(MIB))
                    found = command("stale", str(point), "--history", str(path))
                    truth = held(one, free_of(point))
                    assert process.poll() is None
            [part] = found["drives"]
            if not part["forgotten"]:
                break
            path.unlink()
        assert part["doubts"] == found["notes"] == []
        assert found["stale_bytes"]["low"] <= truth <= found["stale_bytes"]["high"]
        assert found["unknown_bytes"] <= MIB


@contextlib.contextmanager
def recorder(device: str, path: Path) -> Iterator[subprocess.Popen[str]]:
    """`opwatch trim record` in a process of its own, which has begun."""
    argv = [sys.executable, "-m", "opwatch", "trim", "record", "--dev", device, "-o", str(path)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        while "recording into" not in (line := process.stderr.readline()):
            assert line, "it ended before it began"
        try:
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            if not process.stderr.closed:
                process.communicate(timeout=30)


def test_each_disk_of_a_file_system_needs_its_own(tmp_path: Path) -> None:
    require_drive()
    point, files = tmp_path / "mnt", [tmp_path / "one", tmp_path / "two"]
    point.mkdir()
    with drive(SIZE, "7%") as one, drive(SIZE, "7%") as two:
        devices = Devices()
        found = [devices.resolve(each.device) for each in (one, two)]
        recordings = [Recording(devices, *pair) for pair in zip(found, files, strict=True)]
        try:
            for each in (one, two):
                discards(each.device, 1, length=SIZE)
            make("btrfs", one.device, two.device)
            with mounted(one.device, point):
                use(point, 4)
                assert all(recording.look() for recording in recordings)
                for recording in recordings:
                    recording.close()
                both = command("stale", str(point), "--history", str(files[0]), "--history", str(files[1]))
                alone = command("stale", str(point), "--history", str(files[0]))
                free = read_free_space(mounted_at(str(point))).extents
                truth = [held(each, free[at.dev]) for each, at in zip((one, two), found, strict=True)]
        finally:
            for recording in recordings:
                recording.close()
        assert both["stale_bytes"]["low"] <= sum(truth) <= both["stale_bytes"]["high"]
        assert sum(truth) > 10 * MIB
        # The host may have lost events, and then more is unknown.
        if not any(recording.history.forgotten for recording in recordings):
            assert both["unknown_bytes"] <= MIB
        [other] = [part for part in alone["drives"] if part["history"] is None]
        assert (other["stale_bytes"], other["unknown_bytes"]) == (None, free[found[1].dev].total)
        assert alone["stale_bytes"]["low"] <= truth[0]


# --- between recordings ---


def _known(path: Path) -> dict[State, int]:
    saved, _ = read_history(path)
    return {state: saved.map.extents(state).total for state in (State.WRITTEN, State.TRIMMED)}


def _prepared(disk: ScratchDisk, path: Path) -> dict[State, int]:
    def load() -> None:
        discards(disk.node, 3)
        writes(disk.node, 11, start=64 * MIB)

    recorded(disk.node, path, load)
    assert _known(path) == {State.WRITTEN: 11 * 4096, State.TRIMMED: 3 << 19}
    return _known(path)


def _both(node: str) -> None:
    writes(node, 1)
    discards(node, 1)


GAPS: dict[str, tuple[Callable[[str], None], set[State]]] = {
    "nothing": (lambda _: None, {State.WRITTEN, State.TRIMMED}),
    "reads": (lambda node: reads(node, 5), {State.WRITTEN, State.TRIMMED}),
    "flushes": (lambda node: flushes(node, 3), {State.WRITTEN, State.TRIMMED}),
    "writes": (lambda node: writes(node, 1), {State.WRITTEN}),
    "discards": (lambda node: discards(node, 1), {State.TRIMMED}),
    "both": (_both, set()),
}


@pytest.mark.parametrize("what", GAPS)
def test_what_a_gap_leaves(what: str, disk: ScratchDisk, tmp_path: Path) -> None:
    path = tmp_path / "x"
    before = _prepared(disk, path)
    load, kept = GAPS[what]
    load(disk.node)
    expected = {state: size if state in kept else 0 for state, size in before.items()}
    told = command("stale", "--dev", disk.node, "--history", str(path))
    assert told["stale_bytes"]["low"] == expected[State.WRITTEN]
    assert told["unknown_bytes"] == told["free_bytes"] - sum(expected.values())
    assert told["notes"] and bool(told["drives"][0]["doubts"]) is (len(kept) < 2)
    done = command("record", "--dev", disk.node, "-o", str(path), "--for", "0.3")
    assert (done["written_bytes"], done["trimmed_bytes"]) == tuple(expected.values())
    assert ("still" in done["kept"]) is (len(kept) == 2)
    assert _known(path) == expected


def test_a_recorder_that_was_killed_is_taken_up_where_it_was(disk: ScratchDisk, tmp_path: Path) -> None:
    path = tmp_path / "x"
    for _ in range(ATTEMPTS):
        with recorder(disk.node, path) as process:
            writes(disk.node, 11)
            time.sleep(2)
            process.kill()
            process.wait()
        if not read_history(path)[0].look.forgotten:
            break
        path.unlink()
    assert _known(path)[State.WRITTEN] == 11 * 4096
    done = command("record", "--dev", disk.node, "-o", str(path), "--for", "0.2")
    assert done["written_bytes"] == 11 * 4096
    with recorder(disk.node, path) as process:
        writes(disk.node, 1, start=MIB)
        process.kill()
        process.wait()
        # Nobody knows whether that was seen in time; what was written stays so.
    done = command("record", "--dev", disk.node, "-o", str(path), "--for", "0.2")
    assert done["written_bytes"] in (11 * 4096, 12 * 4096)


def test_another_life_of_the_disk(tmp_path: Path) -> None:
    path = tmp_path / "x"
    with ScratchDisk(64 * MIB) as disk:
        recorded(disk.node, path, lambda: writes(disk.node, 3))
        backing = Path(f"/sys/block/{disk.name}/loop/backing_file").read_text().strip()
        run("losetup", "--detach", disk.node)
        run("losetup", disk.node, backing)
        told = command("stale", "--dev", disk.node, "--history", str(path))
        assert told["stale_bytes"] == {"value": None, "low": 0, "high": 64 * MIB}
        assert told["drives"][0]["doubts"] == ["nothing is known: the disk was away"]
        done = command("record", "--dev", disk.node, "-o", str(path), "--for", "0.2")
        assert done["unknown_bytes"] == 64 * MIB
        assert "the disk was away" in done["kept"]


# --- refusals ---


def refused(*words: str) -> tuple[int, str]:
    done = opwatch("trim", *words)
    assert not done.stdout
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr


def test_refusals(disk: ScratchDisk, tmp_path: Path) -> None:
    path = tmp_path / "x"
    assert refused("record")[0] == 2
    assert refused("record", "--dev", "nonexistent")[0] == 2
    path.write_text("a letter")
    status, words = refused("record", "--dev", disk.node, "-o", str(path))
    assert (status, "no history" in words) == (3, True), words
    status, words = refused("stale", "--dev", disk.node, "--history", str(path))
    assert (status, "no history" in words) == (1, True), words
    status, words = refused("stale", "--dev", disk.node, "--history", str(tmp_path / "none"))
    assert (status, "No such file" in words) == (1, True), words
    path.unlink()
    with recorder(disk.node, path):
        status, words = refused("record", "--dev", disk.node, "-o", str(path))
        assert (status, "another opwatch" in words) == (3, True), words
    with ScratchDisk(64 * MIB) as other:
        status, words = refused("record", "--dev", other.node, "-o", str(path))
        assert (status, "another drive" in words) == (3, True), words
        status, words = refused("stale", "--dev", other.node, "--history", str(path))
        assert (status, "no history was given" in words) == (6, True), words


def test_without_the_kernels_counts_nothing_is_recorded(disk: ScratchDisk, tmp_path: Path) -> None:
    switch = Path(f"/sys/block/{disk.name}/queue/iostats")
    switch.write_text("0")
    try:
        status, words = refused("record", "--dev", disk.node, "-o", str(tmp_path / "x"))
    finally:
        switch.write_text("1")
    assert (status, "iostats" in words) == (5, True), words


def test_statistics_that_are_switched_off_end_it(disk: ScratchDisk, tmp_path: Path) -> None:
    """Whatever is written then, the counts stay as they were: nothing may be believed afterwards."""
    path = tmp_path / "x"
    switch = Path(f"/sys/block/{disk.name}/queue/iostats")
    try:
        with recorder(disk.node, path) as process:
            writes(disk.node, 3)
            switch.write_text("0")
            _, words = process.communicate(timeout=30)
    finally:
        switch.write_text("1")
    assert (process.returncode, "switched off" in words, "Traceback" in words) == (1, True, False), words
    assert _known(path) == {State.WRITTEN: 0, State.TRIMMED: 0}


def test_a_disk_that_goes_away_ends_it(tmp_path: Path) -> None:
    path = tmp_path / "x"
    with ScratchDisk(64 * MIB) as disk:
        with recorder(disk.node, path) as process:
            writes(disk.node, 3)
            time.sleep(1.5)
            disk.detach()
            _, words = process.communicate(timeout=30)
        assert process.returncode == 1
        assert "is gone" in words
        assert "Traceback" not in words
    read_history(path)


def test_a_command_is_followed_to_its_end(disk: ScratchDisk, tmp_path: Path) -> None:
    words = ["record", "--dev", disk.node, "-o", str(tmp_path / "x"), "--json", "--", "sh", "-c", "exit 7"]
    done = opwatch("trim", *words)
    assert done.returncode == 7
    assert json.loads(done.stdout)["file"] == str(tmp_path / "x")
