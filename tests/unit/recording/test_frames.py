"""Samples stored as differences: equal when read back, small, and refused if malformed."""

from __future__ import annotations

import random
import struct
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opwatch.clock import Anchor
from opwatch.cpu import CpuTimes
from opwatch.errors import BadInput
from opwatch.recording.coding.anchors import (
    AnchorWriter,
    SharedClocks,
    decode_anchors,
    encode_anchors,
    read_anchors,
)
from opwatch.recording.coding.blocks import (
    compress_streams,
    concatenate_streams,
    expand_streams,
    join_streams,
    make_readers,
    split_streams,
)
from opwatch.recording.coding.columns import Changes, iterate_rows, pack_columns, unpack_columns
from opwatch.recording.coding.frames import (
    FrameReader,
    FrameStreams,
    FrameWriter,
    References,
    Streams,
    has_decreased,
)
from opwatch.recording.coding.layout import Layout
from opwatch.recording.coding.varints import MODULUS, Varints, decode_changes, put_change, put_number
from opwatch.samples.sample import DiskSample, WatchedDisk
from opwatch.trace.abi import decode_sample
from opwatch.trace.derive import derive_op
from opwatch.trace.stat import KernelTicks, StatSample
from opwatch.trace.trust import Reading

DISK = WatchedDisk("nvme0n1", "dm-0", "requests by tp_btf", in_flight=3, flush_queues=2)
WORDS = Layout().count_words
NUMBERS = st.integers(0, MODULUS - 1)


def test_number_takes_the_fewest_bytes() -> None:
    for value, length in ((0, 1), (127, 1), (128, 2), (MODULUS - 1, 10)):
        out = bytearray()
        put_number(out, value)
        assert len(out) == length
        assert Varints(bytes(out), "it").read_number() == value
    out = bytearray()
    put_change(out, -1)
    assert bytes(out) == b"\x01"


@given(st.lists(NUMBERS), st.lists(st.integers(-(1 << 63), (1 << 63) - 1)))
def test_numbers_survive_a_round_trip(numbers: list[int], changes: list[int]) -> None:
    out = bytearray()
    for number in numbers:
        put_number(out, number)
    for change in changes:
        put_change(out, change)
    read = Varints(bytes(out), "it")
    assert [read.read_number() for _ in numbers] == numbers
    at = read.bytes_read
    assert [read.read_change() for _ in changes] == changes
    assert read.is_at_end
    assert decode_changes(bytes(out)[at:]) == changes


@pytest.mark.parametrize("raw", [b"", b"\x80", b"\xff" * 9 + b"\x02", b"\x80" * 10 + b"\x01", b"\xff" * 500])
def test_malformed_numbers_are_refused(raw: bytes) -> None:
    with pytest.raises(BadInput, match=r"run\.opw"):
        Varints(raw, "run.opw").read_number()


def make_random_sample(chance: random.Random, words: list[int]) -> DiskSample:
    """Some words grow, by a little or by a lot; statistics and clocks are arbitrary."""
    for _ in range(chance.randrange(40)):
        at = chance.randrange(2, WORDS)
        words[at] = min(words[at] + chance.choice((1, 5, 900, 1 << 40)), MODULUS - 1)
    words[0], words[1] = (chance.randrange(1 << 62) for _ in range(2))
    sample = decode_sample(struct.pack(f"={WORDS}Q", *words))

    def make_random_stat() -> StatSample | None:
        groups = [group for group in ("read", "write", "flush", "discard") if chance.random() < 0.9]
        counts = {group: chance.choice((0, 17, sample.ops["read"].ends, 1 << 63)) for group in groups}
        begin_ns, end_ns = (chance.randrange(1 << 62) for _ in range(2))
        made = StatSample(begin_ns, end_ns, counts, {"read": 1 << 50}, chance.randrange(9))
        return made if chance.random() < 0.8 else None

    def add_ticks(made: StatSample | None) -> StatSample | None:
        groups = {group: chance.randrange(1 << 32) for group in ("read", "flush") if chance.random() < 0.7}
        ticks = KernelTicks(groups, chance.randrange(1 << 32), chance.randrange(1 << 32), 4_000_000)
        return replace(made, ticks=ticks) if made and chance.random() < 0.7 else made

    misses = chance.choice((None, 0, 7))
    anchor = Anchor(*(chance.randrange(1 << 62) for _ in range(3)))
    reason = chance.choice((None, "statistics are off"))
    cpu = CpuTimes(chance.randrange(1, 512), *(chance.randrange(1 << 62) for _ in range(4)))
    cpu_or_none = chance.choice((None, cpu))
    return DiskSample(
        DISK,
        Reading(sample, make_random_stat(), add_ticks(make_random_stat()), reason),
        misses,
        anchor,
        cpu_or_none,
    )


def write_streams(samples: list[DiskSample], shared: SharedClocks) -> list[Streams]:
    writer = FrameWriter()
    return [
        writer.encode_sample(
            3 * at,
            sample,
            9 if sample.reading.no_witness else 0,
            shared.anchors.get(3 * at),
            shared.cpus.get(3 * at),
        )
        for at, sample in enumerate(samples)
    ]


def read_samples(streams: FrameStreams, count: int, shared: SharedClocks) -> list[tuple[int, DiskSample]]:
    reader = FrameReader(Layout(), streams, DISK)
    known = References(shared.anchors, {9: "statistics are off"}, shared.cpus)
    back = []
    for _ in range(count):
        number, end_ns = reader.advance()
        sample = reader.read_sample(known, "it")
        assert sample.reading.sample.end_ns == end_ns
        back.append((number, sample))
    assert reader.is_at_end
    return back


@settings(max_examples=25)
@given(st.integers(0, 1 << 32))
def test_random_samples_survive_a_round_trip(seed: int) -> None:
    chance, words = random.Random(seed), [0] * WORDS
    samples = [make_random_sample(chance, words) for _ in range(3)]
    others = CpuTimes(1, 2, 3, 4, 5)
    shared = SharedClocks(
        {3 * at: sample.anchor for at, sample in enumerate(samples) if chance.random() < 0.5},
        # An entry's shared value may come from another sample, even if this sample has none.
        {3 * at: sample.cpu or others for at, sample in enumerate(samples) if chance.random() < 0.5},
    )
    streams = concatenate_streams(write_streams(samples, shared))
    expected = [(3 * at, sample) for at, sample in enumerate(samples)]
    assert read_samples(make_readers([streams], "it"), 3, shared) == expected
    for quickly in (False, True):
        assert (
            read_samples(expand_streams(compress_streams(streams, quickly=quickly), 3, "it"), 3, shared)
            == expected
        )
    assert split_streams(join_streams(streams), "it") == streams


@given(st.data())
def test_every_counter_survives_a_round_trip(data: st.DataObject) -> None:
    """Any value, including decreases."""
    samples, places = [], st.lists(st.integers(2, WORDS - 1), max_size=20)
    for _ in range(2):
        words = [0] * WORDS
        for place in data.draw(places):
            words[place] = data.draw(NUMBERS)
        reading = Reading(decode_sample(struct.pack(f"={WORDS}Q", *words)), None, None)
        samples.append(DiskSample(DISK, reading, 0, Anchor(1, 1, 1)))
    alone = SharedClocks()
    back = read_samples(make_readers([concatenate_streams(write_streams(samples, alone))], "it"), 2, alone)
    assert [sample for _, sample in back] == samples


def test_unknown_group_is_not_silently_left_out() -> None:
    sample = make_random_sample(random.Random(3), [0] * WORDS)
    stat = StatSample(1, 2, {"zone_append": 3}, {})
    with pytest.raises(ValueError, match="zone_append"):
        FrameWriter().encode_sample(1, replace(sample, reading=replace(sample.reading, before=stat)), 0)


def test_growing_counters_do_not_go_back() -> None:
    words = [0] * WORDS
    words[0] = words[1] = 5
    first = DiskSample(
        DISK, Reading(decode_sample(struct.pack(f"={WORDS}Q", *words)), None, None), 0, Anchor(1, 1, 1)
    )
    words[2 + len(Layout().counters) + 1] = 1
    later = replace(first, reading=Reading(decode_sample(struct.pack(f"={WORDS}Q", *words)), None, None))
    assert not has_decreased(first, later)
    assert not has_decreased(first, first)
    assert has_decreased(later, first)


CPU_TIMES = st.builds(CpuTimes, st.integers(1, MODULUS - 1), NUMBERS, NUMBERS, NUMBERS, NUMBERS)


@given(st.lists(st.tuples(st.builds(Anchor, NUMBERS, NUMBERS, NUMBERS), st.none() | CPU_TIMES), max_size=5))
def test_anchors_survive_a_round_trip(values: list[tuple[Anchor, CpuTimes | None]]) -> None:
    writer = AnchorWriter()
    rows = [writer.encode_changes(7 + 2 * at, anchor, cpu) for at, (anchor, cpu) in enumerate(values)]
    moments = SharedClocks(
        {7 + 2 * at: anchor for at, (anchor, _) in enumerate(values)},
        {7 + 2 * at: cpu for at, (_, cpu) in enumerate(values) if cpu},
    )
    assert read_anchors(Varints(b"".join(rows), "it")) == moments
    assert decode_anchors(encode_anchors(rows), "it") == moments


def test_cpu_time_takes_two_bytes_and_some_a_moment() -> None:
    chance, writer = random.Random(4), AnchorWriter()
    user, system, irq = 10**8, 10**7, 10**6
    with_cpu, without = [], []
    for second in range(60):
        anchor = Anchor(second * 10**9, 10**18 + second * 10**9, 30)
        user, system = user + round(chance.gauss(50, 7)), system + round(chance.gauss(30, 5))
        irq += chance.randrange(5)
        with_cpu.append((second, anchor, CpuTimes(8, user, system, irq, 0)))
        without.append((second, anchor, None))
    sizes = []
    for rows in (with_cpu, without):
        writer.reset()
        sizes.append(len(encode_anchors([writer.encode_changes(*row) for row in rows])))
    assert sizes[0] - sizes[1] < 2.3 * 60


def pack_rows(rows: list[list[int]], width: int) -> bytes:
    out = bytearray()
    for row in rows:
        for value in row:
            put_change(out, value)
    return pack_columns(bytes(out), width)


@given(st.lists(st.lists(st.integers(-(1 << 63), (1 << 63) - 1), min_size=3, max_size=3), max_size=9))
def test_columns_survive_a_round_trip(rows: list[list[int]]) -> None:
    raw = pack_rows(rows, 3)
    columns = unpack_columns(raw, 3, len(rows), "it")
    values = [value for row in rows for value in row]
    assert [value % MODULUS for value in iterate_rows(columns)] == [value % MODULUS for value in values]
    changes = Changes(iterate_rows(columns), "it")
    assert [changes.read_change() % MODULUS for _ in values] == [value % MODULUS for value in values]
    assert changes.is_at_end
    with pytest.raises(BadInput, match=r"^it "):
        changes.read_change()


def test_packed_columns_need_the_bytes_of_their_noise() -> None:
    chance = random.Random(3)
    rows = [[1_000_000_000 + chance.randrange(-500, 500), 7] for _ in range(1000)]
    # About 10 bits of noise per row; the second column needs no bytes.
    assert 1250 < len(pack_rows(rows, 2)) < 1500


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "number, after 0 bytes"),
        (b"\x06\x40\x00", "rows is 6, .* 5 "),
        (b"\x02\x41\x00", "column is 65, .* 64 "),
        (b"\x02\x08\x00\x00", "inside a column"),
        (b"\x02\x08\x00" + b"\xff" * 9, "inside a column"),
        (b"\x02\x40\x00\x00", "extra data"),
        (b"\x02\x02\x00\x01", "extra data"),
    ],
)
def test_malformed_columns_are_refused(raw: bytes, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        unpack_columns(raw, 1, 5, "run.opw")


def test_counters_known_to_both_versions_are_read() -> None:
    sample = make_random_sample(random.Random(8), [0] * WORDS)
    sample = replace(sample, reading=replace(sample.reading, no_witness=None))
    streams = FrameWriter().encode_sample(4, sample, 0)
    ours = Layout()
    other = Layout((*ours.ops[:-1], "copy"), (*ours.counters[:-1], "another"))
    reader = FrameReader(other, make_readers([streams], "it"), DISK)
    assert reader.advance()[0] == 4
    read = reader.read_sample(References(), "it")
    assert read.reading.sample.ops["read"].latency == sample.reading.sample.ops["read"].latency
    assert getattr(read.reading.sample.ops["read"], ours.counters[-1]) == 0
    assert not any(read.reading.sample.ops[ours.ops[-1]].latency.slot_counts)
    assert list(read.reading.sample.ops) == list(ours.ops)


def test_recordings_from_before_the_waits_have_none() -> None:
    sample = make_random_sample(random.Random(8), [0] * WORDS)
    sample = replace(sample, reading=replace(sample.reading, no_witness=None))
    streams = FrameWriter().encode_sample(4, sample, 0)
    ours = Layout()
    first = ours.counters.index("throttle_known")
    unknown = [f"other{number}" for number in range(first, len(ours.counters))]
    other = Layout(ours.ops, (*ours.counters[:first], *unknown))
    reader = FrameReader(other, make_readers([streams], "it"), DISK)
    reader.advance()
    read = reader.read_sample(References(), "it").reading.sample
    write = derive_op(read.ops["write"], read.ops["write"], 1)
    assert write.throttle is None
    assert write.admission is None


def test_missing_anchor_is_reported() -> None:
    sample = make_random_sample(random.Random(5), [0] * WORDS)
    sample = replace(sample, reading=replace(sample.reading, no_witness=None))
    streams = FrameWriter().encode_sample(4, sample, 0, sample.anchor)
    with pytest.raises(BadInput, match=r"\bentry 4 .*\banchor\b"):
        reader = FrameReader(Layout(), make_readers([streams], "it"), DISK)
        reader.advance()
        reader.read_sample(References(), "it")
