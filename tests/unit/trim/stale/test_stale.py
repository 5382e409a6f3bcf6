"""Stale space without a device: the estimate against a flash model, the path to the disks, calibration, and
costs."""

from __future__ import annotations

import contextlib
import json
import random
import struct
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opwatch._native import Ftl
from opwatch.errors import BadInput
from opwatch.ftl import models
from opwatch.sinks.trim_stale import build_stale_document, format_stale_report
from opwatch.trim.layers.remap import Landing, map_down, merge_landings
from opwatch.trim.space import fiemap, lba_status
from opwatch.trim.space.extents import Extents
from opwatch.trim.stack.dmtable import parse_table
from opwatch.trim.stack.layers import Kind, Layer, Stack
from opwatch.trim.stack.limits import QueueLimits
from opwatch.trim.stale.estimate import Share, estimate_share
from opwatch.trim.stale.judgement import ReadDevice
from opwatch.trim.stale.report import StaleReport
from opwatch.trim.stale.sampling import BatchCount, Blocks, sample_blocks
from opwatch.trim.stale.sentinel import BLOCK, ReadsAs, SentinelResult, find_common_state, is_near_boundary
from opwatch.trim.stale.sentinel_contents import classify_block, compute_digest, make_pattern
from opwatch.trim.stale.stale import (
    Bounds,
    Calibration,
    Count,
    MappedBytes,
    Spare,
    calibrate,
    estimate_spare,
    estimate_spare_by_history,
    find_contradiction,
    stale_bytes,
)
from tests.unit.support.trim_evidence import Said, make_facts

MIB = 1 << 20
USER = 128 * MIB


def make_layout(seed: int) -> tuple[Ftl, Extents]:
    """Return a drive after writes and trims of many sizes, and unrelated free extents."""
    rng = random.Random(seed)
    drive = Ftl({"user_bytes": USER, "physical_bytes": USER * 5 // 4})
    for _ in range(rng.randrange(1, 200)):
        start = rng.randrange(USER // BLOCK)
        length = min(rng.choice((1, 8, 64, 512, 4096)) * rng.randrange(1, 5), USER // BLOCK - start)
        act = drive.trim if rng.random() < rng.choice((0.0, 0.3, 0.6)) else drive.write
        act(start * BLOCK, length * BLOCK)
    edges = sorted(rng.sample(range(USER // BLOCK), 2 * rng.randrange(1, 60)))
    free = Extents.from_pairs(
        (low * BLOCK, high * BLOCK) for low, high in zip(edges[::2], edges[1::2], strict=True)
    )
    return drive, free


def is_covered(seed: int) -> bool:
    """Return True if the interval of a layout contains the drive's true value."""
    drive, free = make_layout(seed)
    blocks = Blocks([free], BLOCK)
    mapped = [drive.is_mapped(at) for start, end in free for at in range(start, end, BLOCK)]

    def read_batch(numbers: list[int]) -> BatchCount:
        places = (blocks[number] for number in numbers)
        return BatchCount(sum(drive.is_mapped(place.offset) for place in places), len(numbers))

    *_, last = sample_blocks(len(blocks), seed, 0.95, 0.02, read_batch)
    bounds = stale_bytes(last, free.total_bytes)
    return bounds.low <= sum(mapped) * BLOCK <= bounds.high


def test_the_interval_covers_the_drives_truth_in_95_of_100_layouts() -> None:
    assert sum(is_covered(seed) for seed in range(100)) >= 95


def make_layer(
    device: str, dev: str, kind: Kind, below: tuple[str, ...] = (), table: str = "", **facts: Said
) -> Layer:
    limits = QueueLimits(4096, 0, 1 << 30)
    return Layer(
        device,
        dev,
        kind,
        1 << 30,
        limits,
        below=below,
        table=tuple(parse_table(table)),
        facts=make_facts(kind, **facts),
    )


DISK = make_layer("sda", "8:0", Kind.DISK)
PART = make_layer("sda1", "8:1", Kind.PARTITION, ("sda",), start_bytes=MIB)
SECTORS = 2048 * 64


def test_through_partition_linear_and_crypt_to_the_disk() -> None:
    table = f"0 {SECTORS} linear 8:1 2048\n{SECTORS} {SECTORS} linear 8:0 409600"
    linear = make_layer("dm-0", "253:0", Kind.DM, ("sda1", "sda"), table=table)
    key = "0" * 64
    text = f"0 {2 * SECTORS} crypt aes-xts-plain64 {key} 0 253:0 4096 1 allow_discards"
    crypt = make_layer("dm-1", "253:1", Kind.CRYPT, ("dm-0",), table=text)
    stack = Stack(None, (crypt, linear, PART, DISK))
    end = SECTORS * 512 - 4096 * 512  # the crypt device continues in the second half of the linear device
    lowest = merge_landings(
        list(map_down(stack, "dm-1", Extents.from_pairs([(0, 8192), (end - 4096, end + 8192)])))
    )
    half = 409600 * 512
    expected = [(4 * MIB, 4 * MIB + 8192), (2 * MIB + SECTORS * 512 - 4096, 2 * MIB + SECTORS * 512)]
    assert lowest == [Landing("sda", Extents.from_pairs([*expected, (half, half + 8192)]), encrypted=True)]


def test_layer_that_cannot_be_followed_is_read_itself() -> None:
    thin = make_layer("dm-2", "253:2", Kind.THIN, ("dm-0",), table="0 2048 thin 253:0 1")
    extents = Extents.from_pairs([(0, 4096)])
    [landing] = map_down(Stack(None, (thin, DISK)), "dm-2", extents)
    assert landing == Landing("dm-2", extents, False, landing.stopped)
    assert landing.stopped and "pool" in landing.stopped
    raid = make_layer("md0", "9:0", Kind.MD, ("sda",))
    [landing] = map_down(Stack(None, (raid, DISK)), "md0", extents)
    assert landing.stopped and "mirror" in landing.stopped
    [landing] = map_down(Stack(None, (DISK,)), "sda", extents)
    assert landing.stopped is None
    mixed = make_layer("dm-3", "253:3", Kind.DM, ("sda",), table="0 8 linear 8:0 0\n8 8 error")
    assert [
        (landing.device, landing.extents.total_bytes)
        for landing in map_down(Stack(None, (mixed, DISK)), "dm-3", Extents.from_pairs([(0, 8192)]))
    ] == [
        ("sda", 4096),
        ("dm-3", 4096),
    ]


def encode_fiemap(extents: list[tuple[int, int, int, int]], count: int | None = None) -> bytes:
    head = struct.pack("=2Q4I", 0, 1 << 60, 1, len(extents), count or len(extents), 0)
    return head + b"".join(struct.pack("=3Q16xI12x", *extent) for extent in extents)


def test_file_maps_are_decoded() -> None:
    decoded = fiemap.decode_extents(
        encode_fiemap([(0, 1 << 20, 8192, 0), (8192, 1 << 30, 4096, 0x2001)]) + bytes(99)
    )
    assert decoded == [(0, 1 << 20, 8192, 0), (8192, 1 << 30, 4096, 0x2001)]
    assert [extent.unusable_reason for extent in decoded] == [None, "shared"]
    assert len(fiemap.encode_request(3)) == 32 + 3 * 56


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        encode_fiemap([(0, 1, 1, 0)])[:-1],
        encode_fiemap([(0, 1 << 63, 1, 0)]),
        encode_fiemap([(0, 0, 0, 0)]),
    ],
)
def test_damaged_file_maps_are_refused(damaged: bytes) -> None:
    with pytest.raises(BadInput):
        fiemap.decode_extents(damaged)


@given(st.binary(max_size=300))
def test_any_file_map_is_decoded_or_refused(raw: bytes) -> None:
    with contextlib.suppress(ValueError):
        assert all(extent.length > 0 for extent in fiemap.decode_extents(raw))


def encode_lba_status(*runs: tuple[int, int, int]) -> bytes:
    body = b"".join(struct.pack(">QIB3x", *run) for run in runs)
    return struct.pack(">I4x", 4 + len(body)) + body


def test_lba_status_is_decoded() -> None:
    runs = lba_status.decode_runs(encode_lba_status((8, 8, 1), (16, 4, 0), (20, 100, 2)) + bytes(50), 512)
    assert runs == [(4096, 8192, False), (8192, 10240, True), (10240, 61440, False)]
    assert (
        lba_status.encode_command(0x0102030405060708, 0x10000).hex()
        == "9e12010203040506070800010000" + "0000"
    )


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        encode_lba_status(),
        encode_lba_status((0, 0, 0)),
        encode_lba_status((0, 8, 0), (9, 8, 0)),
        encode_lba_status((1 << 63, 8, 0)),
    ],
)
def test_damaged_lba_status_is_refused(damaged: bytes) -> None:
    with pytest.raises(ValueError, match="LBA status"):
        lba_status.decode_runs(damaged, 512)


@given(st.binary(max_size=300))
def test_any_lba_status_is_decoded_or_refused(raw: bytes) -> None:
    with contextlib.suppress(ValueError):
        assert all(run.start < run.end for run in lba_status.decode_runs(raw, 512))


def test_state_of_a_block_after_a_trim() -> None:
    data = make_pattern(b"run", 1, 2)
    assert (
        len({data, make_pattern(b"run", 1, 3), make_pattern(b"run", 2, 2), make_pattern(b"nur", 1, 2)}) == 4
    )
    before = compute_digest(data)
    assert classify_block(before, data) is ReadsAs.UNCHANGED
    assert classify_block(before, bytes(BLOCK)) is ReadsAs.ZEROS
    assert classify_block(before, b"\xff" * BLOCK) is ReadsAs.ONES
    assert classify_block(before, data[:-1] + b"x") is ReadsAs.OTHER
    assert classify_block(before, None) is ReadsAs.UNREADABLE


def make_sentinel_result(device: str, **inside: int) -> SentinelResult:
    return SentinelResult(
        BLOCK, device, False, (), Counter({ReadsAs(name): n for name, n in inside.items()}), Counter()
    )


def test_verdict_covers_all_judged_blocks() -> None:
    zeros, mixed = (
        make_sentinel_result("sda", zeros=3, reallocated=1),
        make_sentinel_result("sdb", unchanged=2, unreadable=1),
    )
    assert (zeros.conclusive_blocks, mixed.conclusive_blocks) == (3, 2)
    assert find_common_state([zeros]) is ReadsAs.ZEROS
    assert find_common_state([zeros, mixed]) is ReadsAs.OTHER
    assert find_common_state([zeros, mixed], "sdb") is ReadsAs.UNCHANGED
    assert find_common_state([make_sentinel_result("sda", reallocated=1)]) is None


HONEST = Count(100 * MIB, 101 * MIB, 100 * MIB, MIB)
STATIC = Count(100 * MIB, 100 * MIB, 100 * MIB, MIB)
DEAF = Count(100 * MIB, 101 * MIB, 101 * MIB, MIB)


@pytest.mark.parametrize(
    ("promised", "sentinel", "count", "reads", "by"),
    [
        (None, ReadsAs.ZEROS, None, ReadsAs.ZEROS, "sentinel"),
        (None, ReadsAs.ONES, STATIC, ReadsAs.ONES, "sentinel"),
        (ReadsAs.ZEROS, ReadsAs.ZEROS, HONEST, ReadsAs.ZEROS, "sentinel"),
        (ReadsAs.ZEROS, ReadsAs.ZEROS, DEAF, None, None),
        (ReadsAs.ZEROS, ReadsAs.UNCHANGED, DEAF, ReadsAs.ZEROS, "promise"),
        (None, ReadsAs.UNCHANGED, None, None, None),
        (ReadsAs.ZEROS, ReadsAs.OTHER, None, None, None),
        (ReadsAs.ZEROS, None, None, ReadsAs.ZEROS, "promise"),
        (None, None, None, None, None),
    ],
)
def test_calibration_prefers_the_strongest_evidence(
    promised: ReadsAs | None,
    sentinel: ReadsAs | None,
    count: Count | None,
    reads: ReadsAs | None,
    by: str | None,
) -> None:
    calibration = calibrate(promised, "promise", sentinel, "sentinel", count)
    assert (calibration.reads, calibration.by, calibration.sentinel) == (reads, by, sentinel)


def test_count_is_believed_if_blocks_change_the_value() -> None:
    assert [count.has_followed_trim for count in (HONEST, STATIC, DEAF)] == [True, False, False]
    assert [count.has_ignored_trim for count in (HONEST, STATIC, DEAF)] == [False, False, True]


@pytest.mark.parametrize(
    ("in_use", "excluded"),
    [
        (None, False),  # no count
        (0, False),
        (1000 << 20, False),  # the whole disk: a constant
        (900 << 20, True),
        (500 << 20, False),  # 300 MiB in use, 200 MiB read as data
        (510 << 20, False),  # slightly late
    ],
)
def test_a_reading_that_the_drives_own_count_rules_out(in_use: int | None, excluded: bool) -> None:
    stale = Bounds(190.0 * (1 << 20), 180.0 * (1 << 20), 200.0 * (1 << 20))
    assert bool(find_contradiction(stale, 700 << 20, 1000 << 20, in_use)) is excluded


def make_spare(stale: Bounds, untrimmable: int = 0, in_use: int | None = None, physical: int = 1100) -> Spare:
    figures = estimate_spare(physical, 600, stale, untrimmable, in_use)
    assert isinstance(figures, Spare)
    return figures


def test_stale_space_costs_are_predicted() -> None:
    figures = make_spare(Bounds(300.0, 280.0, 320.0))
    assert figures.op == Bounds(1100 / 900 - 1, 1100 / 920 - 1, 1100 / 880 - 1)
    assert figures.op_trimmed.value == pytest.approx(1100 / 600 - 1)
    assert figures.waf_trimmed["greedy"].value == pytest.approx(models.predict_greedy(1100 / 600, 256))
    # Greedy collection packs static data, so the drive behaves as if its flash were smaller.
    assert figures.waf["greedy"].value == pytest.approx(models.predict_greedy(800 / 600, 256))
    for name, now in figures.waf.items():
        after = figures.waf_trimmed[name]
        assert now.value and after.value and now.low <= now.value <= now.high
        assert now.low > after.high


def test_untrimmable_bytes_widen_the_prediction() -> None:
    figures = make_spare(Bounds(300.0, 280.0, 320.0), untrimmable=50)
    assert figures.holding_trimmed == Bounds(None, 600, 650)
    assert make_spare(Bounds(30.0, 20.0, 40.0), untrimmable=50).holding_trimmed == Bounds(None, 600, 640)


def test_drives_own_count_is_preferred_to_used_space() -> None:
    figures = make_spare(Bounds(300.0, 280.0, 320.0), in_use=850)
    assert figures.holding == Bounds(850, 850, 850)
    assert figures.holding_trimmed == Bounds(550, 530, 570)
    nearly = make_spare(Bounds(300.0, 280.0, 320.0), in_use=310)
    assert (nearly.holding, nearly.holding_trimmed) == (Bounds(310, 310, 310), Bounds(30, 30, 30))
    nearly = make_spare(Bounds(650.0, 640.0, 660.0), in_use=655)
    assert (nearly.holding, nearly.holding_trimmed) == (Bounds(655, 655, 655), Bounds(600, 600, 600))
    # Only used space can contain data.
    assert make_spare(Bounds(100.0, 90.0, 110.0), in_use=850).holding_trimmed == Bounds(600, 600, 600)


def test_both_methods_agree_where_the_history_knows_all() -> None:
    """Of 600 bytes in use, 100 were never written, so the drive does not hold them by either method."""
    stale = Bounds(300.0, 300.0, 300.0)
    by_history = estimate_spare_by_history(1100, Bounds(800, 800, 800), stale, 0, 0)
    by_count = estimate_spare(1100, 600, stale, 0, 800)
    assert isinstance(by_history, Spare) and isinstance(by_count, Spare)
    assert by_history.op == by_count.op
    assert by_history.holding_trimmed == by_count.holding_trimmed == Bounds(500, 500, 500)
    assert by_history.waf_trimmed == by_count.waf_trimmed
    blind = estimate_spare(1100, 600, stale, 0)
    assert isinstance(blind, Spare)
    assert blind.op.high < by_count.op.low
    assert len({blind.counts, by_count.counts, by_history.counts}) == 3


def test_bounds_include_unknown_parts_of_the_history() -> None:
    figures = estimate_spare_by_history(1100, Bounds(None, 700, 900), Bounds(None, 250, 350), 100, 0)
    assert isinstance(figures, Spare)
    assert figures.holding_trimmed == Bounds(None, 450, 550)
    assert figures.op.value is None
    assert figures.op.low <= 1100 / 800 - 1 <= figures.op.high
    empty = estimate_spare_by_history(1100, Bounds(None, 0, 900), Bounds(None, 0, 9), 100, 0)
    assert isinstance(empty, str) and "ratio" in empty


def test_unknown_costs_are_refused_with_a_reason() -> None:
    small_flash = estimate_spare(900, 600, Bounds(300.0, 280.0, 320.0), 0)
    all_free = estimate_spare(900, 0, Bounds(300.0, 280.0, 320.0), 0)
    assert isinstance(small_flash, str) and " T " in small_flash
    assert isinstance(all_free, str) and " free " in all_free


def make_report(**changes: object) -> StaleReport:
    landing = Landing(
        "dm-0", Extents.from_pairs([(0, 600 * MIB)]), True, "thin volume dm-0: its pool holds its data"
    )
    drive = ReadDevice(landing, 1 << 30, MIB, 3 * MIB, Calibration(ReadsAs.ZEROS, "sentinel", ("one", "two")))
    stale = Bounds(300.0 * MIB, 280.0 * MIB, 320.0 * MIB)
    measured = StaleReport(
        subject="/a place",
        filesystem="ext4",
        confidence=0.95,
        seed=7,
        seconds=1.25,
        unit_bytes=4096,
        free_bytes=600 * MIB,
        judged_bytes=600 * MIB,
        drives=(drive,),
        share=Share(5, 10, 99, 0.4, 0.6),
        taken=1,
        unreadable=2,
        stale=stale,
        reason=None,
        lower_bound="zeros look trimmed",
        count=HONEST,
        mapped=MappedBytes(7, follows=False),
        spare=make_spare(Bounds(3.0, 2.0, 4.0)),
        spare_reason=None,
        physical_source="as given",
        notes=("a note",),
    )
    return replace(measured, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"stale": None, "reason": "no drive can be judged " * 8, "spare": None, "spare_reason": "unknown"},
        {"stale": Bounds(0.0, 0.0, 0.0), "share": estimate_share(0, 10, 10, 0.95), "count": None},
        {"subject": "/mnt/\x1b[31m", "filesystem": None},
    ],
)
def test_reports_fit_a_terminal_and_json(changes: dict[str, object]) -> None:
    printed = format_stale_report(make_report(**changes))
    assert all(len(line) <= 80 and line.isprintable() for line in printed), printed
    parsed = json.loads(json.dumps(build_stale_document(make_report(**changes))))
    assert parsed["schema"] == "opwatch/1"
    assert (parsed["stale_bytes"] is None) == (parsed["stale_reason"] is not None)
    assert (parsed["waf"] is None) == (parsed["spare_reason"] is not None)


@pytest.mark.parametrize(
    ("at", "cut"),
    [(0, True), (1024, True), (8192, False), ((8 << 20) - 4096, True), ((8 << 20) + 1024, True)],
)
def test_granule_across_two_groups_is_not_freed(at: int, cut: bool) -> None:
    """Groups of ext4 with blocks of 1 KiB start at the second block."""
    assert is_near_boundary(at, 4096, (8 << 20, 1024)) is cut
    assert not is_near_boundary(at, 4096, None)
    assert not is_near_boundary(at, 512, (8 << 20, 1024))
