"""The history map against a naive model, sector by sector."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import pairwise

import pytest

from opwatch.trim.history import history as module
from opwatch.trim.history.changes import RECORD, ChangeKind, decode_changes, is_harmless_command
from opwatch.trim.history.history import History
from opwatch.trim.history.sectormap import SECTOR, SectorMap, SectorState
from opwatch.trim.space.extents import Extents
from tests.fuzz import history as fuzz

U, W, T = SectorState.UNKNOWN, SectorState.WRITTEN, SectorState.TRIMMED


def encode_change(
    kind: ChangeKind, sector: int, sectors: int, begin: int = 0, end: int = 0, status: int = 0
) -> bytes:
    return RECORD.pack(sector, begin, end, sectors, kind, status, 0)


def list_states(map_: SectorMap) -> list[int]:
    picked: list[int] = []
    for start, end, state in map_.iter_runs():
        assert start == len(picked)
        picked += [state] * (end - start)
    return picked


# --- the map ---


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opwatch.trim.history.sectormap._SHIFT", 5)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.usefixtures("small_parts")
def test_map_lists_the_state_of_each_run(seed: int) -> None:
    rng = random.Random(seed)
    size = rng.choice((31, 32, 100, 257))
    map_, model = SectorMap(size), [int(U)] * size
    map_.log = []
    replayed = SectorMap(size)
    for _ in range(300):
        start = rng.randrange(size)
        end = start + rng.choice((1, 2, 7, 32, 64, size))
        state = rng.choice((U, W, T))
        if rng.random() < 0.2:
            other = rng.choice((U, W, T))
            map_.replace_state(start, end, state, other)
            model[start:end] = [other if old == state else old for old in model[start:end]]
        else:
            map_.set_state(start, end, state)
            model[start:end] = [state] * (min(end, size) - start)
        assert list_states(map_) == model
        for run in map_.log:
            replayed.set_state(*run)
        map_.log.clear()
        assert list_states(replayed) == model
        for one_state in SectorState:
            expected = Extents.from_pairs(
                (at * SECTOR, (at + 1) * SECTOR) for at in range(size) if model[at] == one_state
            )
            assert map_.collect_extents(one_state) == expected
        for starts, kept in map_._parts.values():
            assert list(starts) == sorted(set(starts))
            assert all(one != two for one, two in pairwise(kept))


def test_unchanged_runs_are_not_logged() -> None:
    map_ = SectorMap(1 << 24)
    map_.log = []
    map_.set_state(8, 16, W)
    map_.set_state(10, 12, W)
    map_.set_state(1 << 20, 1 << 24, U)
    assert map_.log == [(8, 16, W)]


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.usefixtures("small_parts")
def test_full_map_loses_detail_but_is_never_wrong(seed: int) -> None:
    rng = random.Random(seed)
    small, whole = SectorMap(1024, most_pieces=40), SectorMap(1024)
    small.log = []
    replayed = SectorMap(1024)
    for _ in range(600):
        start = rng.randrange(1024)
        run = (start, start + rng.choice((1, 3, 8)), rng.choice((W, T)))
        small.set_state(*run)
        whole.set_state(*run)
        assert small.pieces <= 40
        assert small.pieces == sum(len(starts) for starts, _ in small._parts.values())
        assert all(one in (U, two) for one, two in zip(list_states(small), list_states(whole), strict=True))
        for logged in small.log:
            replayed.set_state(*logged)
        small.log.clear()
        assert list_states(replayed) == list_states(small)
    assert small.given_up
    assert any(list_states(small))


def test_full_part_of_the_map_loses_detail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opwatch.trim.history.sectormap._MAX_IN_PART", 1000)
    map_ = SectorMap(1 << 19)
    for at in range(0, 1 << 14, 8):
        map_.set_state(at, at + 4, W)
    map_.set_state(1 << 18, 1 << 19, T)
    assert map_.given_up and map_.pieces < 1100
    assert list_states(map_)[1 << 18 :] == [T] * (1 << 18)


def test_full_history_reports_lost_detail() -> None:
    one = History(1 << 19)
    one.map = SectorMap(1 << 19, most_pieces=50)
    one.apply_changes(b"".join(encode_change(ChangeKind.WRITE, at * 8, 4, 0, 1) for at in range(100)))
    assert one.forgotten[module.NO_ROOM] > 0


# --- the rules ---


class NaiveMap:
    """Applies the same rules sector by sector and keeps every change."""

    def __init__(self, size: int, granule: int, offset: int) -> None:
        self.size, self.granule, self.offset = size, granule, offset
        self.state = [int(U)] * size
        self.past: list[tuple[str, int, int, int]] = []
        self.clock = 0

    def find_granule(self, at: int) -> range:
        first = at - (at - self.offset) % self.granule
        return range(max(first, 0), min(first + self.granule, self.size))

    def apply_change(
        self, kind: ChangeKind, first: int, last: int, begin: int, end: int, status: int
    ) -> None:
        self.clock = max(self.clock, end)
        frees = [past for past in self.past if past[0] in "fz" and past[3] > begin]
        writes = [past for past in self.past if past[0] in "wz" and past[3] > begin]
        if kind in (ChangeKind.WRITE, ChangeKind.ZEROES):
            good = kind is ChangeKind.WRITE and not status
            touched = {sector for at in range(first, last) for sector in self.find_granule(at)}
            for at in touched - set(range(first, last)):
                if self.state[at] == T:
                    self.state[at] = U
            for at in range(first, last):
                met = any(low <= at < high for _, low, high, _ in frees)
                self.state[at] = W if good and not met else U
            self.past.append(("w" if kind is ChangeKind.WRITE else "z", first, last, self.clock))
            return
        hit = {
            sector
            for _, low, high, _ in writes
            for at in range(low, high)
            for sector in self.find_granule(at)
        }
        for at in range(first, last):
            granule = self.find_granule(at)
            whole = granule.start >= first and granule.stop <= last and len(granule) == self.granule
            if whole and not status:
                self.state[at] = U if at in hit else T
            elif self.state[at] == W:
                self.state[at] = U
        self.past.append(("f", first, last, self.clock))


def generate_changes(rng: random.Random, size: int) -> Iterator[tuple[ChangeKind, int, int, int, int, int]]:
    now = 1000
    for _ in range(120):
        kind = rng.choice(
            (ChangeKind.WRITE,) * 5 + (ChangeKind.DISCARD,) * 3 + (ChangeKind.ERASE, ChangeKind.ZEROES)
        )
        first = rng.randrange(size)
        last = min(size, first + rng.choice((1, 3, 8, 16, 40)))
        now += rng.choice((0, 1, 10, -2))
        yield kind, first, last, now - rng.choice((1, 5, 30)), now, rng.choice((0,) * 9 + (10,))


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.usefixtures("small_parts")
def test_rules_match_the_naive_model(seed: int) -> None:
    rng = random.Random(seed)
    granule = rng.choice((1, 1, 4, 8, 10))
    # Whole granules, as on real disks: the naive model has no partial granule at the end.
    size, offset = 20 * granule, 0
    ours, naive = History(size, granule, offset), NaiveMap(size, granule, offset)
    for kind, first, last, begin, end, status in generate_changes(rng, size):
        ours.apply_changes(encode_change(kind, first, last - first, begin, end, status))
        naive.apply_change(kind, first, last, begin, end, status)
        assert list_states(ours.map) == naive.state, (kind, first, last, begin, end, status)


def test_misaligned_granules_are_respected() -> None:
    one = History(100, 10, 3)
    one.apply_changes(encode_change(ChangeKind.WRITE, 0, 100, 0, 1))
    one.apply_changes(encode_change(ChangeKind.DISCARD, 0, 100, 2, 3))
    assert [(run[0], run[1], run[2]) for run in one.map.iter_runs()] == [(0, 3, U), (3, 93, T), (93, 100, U)]
    one.apply_changes(encode_change(ChangeKind.WRITE, 15, 1, 4, 5))
    assert list(one.map.iter_runs())[1:4] == [(3, 13, T), (13, 15, U), (15, 16, W)]


def test_write_in_flight_at_the_start_is_unknown() -> None:
    one = History(100, since_ns=50)
    one.apply_changes(
        encode_change(ChangeKind.WRITE, 0, 10, 40, 60) + encode_change(ChangeKind.WRITE, 20, 10, 55, 60)
    )
    one.apply_changes(encode_change(ChangeKind.DISCARD, 20, 5, 45, 70))
    assert [run for run in one.map.iter_runs() if run[2]] == [(25, 30, W)]


def test_too_many_concurrent_changes_become_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_RECENT", 10)
    one = History(1000)
    for at in range(30):
        one.apply_changes(encode_change(ChangeKind.WRITE, at, 1, at, at + 1))
    one.apply_changes(encode_change(ChangeKind.DISCARD, 500, 10, 5, 40))
    one.apply_changes(encode_change(ChangeKind.DISCARD, 600, 10, 35, 41))
    assert [run for run in one.map.iter_runs() if run[2]] == [(0, 30, W), (600, 610, T)]


@pytest.mark.parametrize(
    ("writes", "discards", "kept"),
    [(True, False, W), (False, True, T), (True, True, None), (False, False, -1)],
)
def test_unseen_changes_make_sectors_unknown(writes: bool, discards: bool, kept: int | None) -> None:
    one = History(100)
    one.apply_changes(
        encode_change(ChangeKind.WRITE, 0, 10, 0, 1) + encode_change(ChangeKind.DISCARD, 10, 10, 2, 3)
    )
    one.forget_unrecorded(writes, discards, "a reason", 100)
    known = {state for _, _, state in one.map.iter_runs() if state}
    assert known == ({W, T} if kept == -1 else {kept} - {None})
    assert bool(one.forgotten) is (writes or discards)
    # Requests in flight at that moment may have met unseen changes.
    one.apply_changes(encode_change(ChangeKind.WRITE, 50, 10, 99, 101))
    assert (50, 60, W) in one.map.iter_runs() if kept == -1 else (50, 60, W) not in one.map.iter_runs()


def test_counts_match_the_kernels_statistics() -> None:
    one = History(100)
    raw = [
        encode_change(kind, 0, sectors, 0, 1, 5)
        for kind, sectors in zip(list(ChangeKind)[:4], (3, 5, 7, 11), strict=True)
    ]
    assert one.apply_changes(b"".join(raw)) == (3 + 5 + 11, 7)


def test_passthrough_commands_are_classified() -> None:
    def encode_scsi(*cdb: int) -> tuple[ChangeKind, int, int]:
        raw = bytes(cdb).ljust(16, b"\0")
        return ChangeKind.SCSI, int.from_bytes(raw[:8], "little"), int.from_bytes(raw[8:], "little")

    identify = [0] * 16
    identify[0], identify[14] = 0x85, 0xEC
    erase = [0] * 16
    erase[0], erase[14] = 0x85, 0xF4
    for command in (
        encode_scsi(0x12),
        encode_scsi(0x4D),
        encode_scsi(*identify),
        (ChangeKind.NVME, 2, 0),
        (ChangeKind.ADMIN, 2, 0),
    ):
        assert is_harmless_command(*command)
    for command in (
        encode_scsi(0x42),
        encode_scsi(0x2A),
        encode_scsi(*erase),
        (ChangeKind.NVME, 9, 0),
        (ChangeKind.ADMIN, 0x80, 0),
        (ChangeKind.OTHER, 34, 0),
    ):
        assert not is_harmless_command(*command)
        one = History(100)
        one.apply_changes(encode_change(ChangeKind.WRITE, 0, 10, 0, 1))
        one.apply_changes(RECORD.pack(command[1], command[2], 5, 0, command[0], 0, 0))
        assert not any(state for _, _, state in one.map.iter_runs())


@pytest.mark.parametrize(
    "raw", [b"x", bytes(31), encode_change(ChangeKind.WRITE, 0, 0), RECORD.pack(0, 0, 0, 8, 8, 0, 0)]
)
def test_bad_records_are_refused(raw: bytes) -> None:
    with pytest.raises(ValueError):
        list(decode_changes(raw))


@pytest.mark.parametrize("seed", range(3))
def test_fuzzed_records_are_applied_or_refused(seed: int) -> None:
    fuzz.run(1_000, seed)
