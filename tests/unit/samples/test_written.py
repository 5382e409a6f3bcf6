"""Samples as bytes: equal when read back, refused when they are none, and the same numbers either way."""

from __future__ import annotations

import io
import json
import struct
import zlib
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opwatch.clock import Anchor
from opwatch.errors import BadInput
from opwatch.samples.observe import observe
from opwatch.samples.sample import DiskSample, WatchedDisk
from opwatch.samples.written import MOST_BYTES, from_bytes, to_bytes
from opwatch.sinks.jsonl import JsonLines
from opwatch.sinks.lines import Lines
from opwatch.trace.abi import OPS, SCALARS, SLOTS, decode_sample
from opwatch.trace.stat import StatSample
from opwatch.trace.trust import Reading
from tests.unit.support.samples import Op, sample

FIXTURES = Path(__file__).parents[2] / "fixtures"
S = 10**9
DISK = WatchedDisk("nvme0n1", "dm-0", "requests by tp_btf", "bpftrace", ("no queue",), 3, 2)


def stat(at_s: int, reads: int, writes: int) -> StatSample:
    requests = {"read": reads, "write": writes, "flush": 0, "discard": 0}
    bytes_ = {"read": 4096 * reads, "write": 4096 * writes, "discard": 0}
    return StatSample(at_s * S, at_s * S + 5, requests, bytes_, in_flight=1)


def a_sample(at_s: int, reads: int, writes: int, *, misses: int | None = 0) -> DiskSample:
    ops = {
        "read": Op([17_000 + 31 * number for number in range(reads)], [4096] * reads),
        "write": Op([90_000] * writes, [4096] * writes, queue_ns=[7] * writes, statuses={10: 1}),
    }
    reading = Reading(sample(at_s * S, **ops), stat(at_s, reads, writes), stat(at_s, reads, writes))
    return DiskSample(DISK, reading, misses, Anchor(at_s * S, 1_760_000_000 * S + at_s * S, 40))


def test_what_is_read_back_is_what_was_written() -> None:
    for one in (a_sample(1, 0, 0), a_sample(2, 1009, 7), a_sample(3, 5, 5, misses=None)):
        assert from_bytes(to_bytes(one), "here") == one
    reading = Reading(sample(9), None, None, "statistics are off: echo 1 > there")
    unwitnessed = replace(a_sample(2, 1, 1), reading=reading)
    assert from_bytes(to_bytes(unwitnessed), "here") == unwitnessed
    assert a_sample(2, 3, 1) != a_sample(2, 3, 2)


@given(st.data())
def test_every_counter_comes_back(data: st.DataObject) -> None:
    words = [0] * (2 + len(OPS) * (len(SCALARS) + sum(SLOTS)))
    for place in data.draw(st.lists(st.integers(0, len(words) - 1), max_size=20)):
        words[place] = data.draw(st.integers(0, 2**64 - 1))
    raw = struct.pack(f"={len(words)}Q", *words)
    one = replace(a_sample(1, 0, 0), reading=Reading(decode_sample(raw), None, None, "none"))
    assert from_bytes(to_bytes(one), "here") == one


def printed(then: DiskSample, now: DiskSample) -> tuple[str, str]:
    """An interval and the summary, as lines and as JSON."""
    plain, documents = io.StringIO(), io.StringIO()
    for sink in (Lines(plain), JsonLines(documents)):
        for final in (False, True):
            sink.write(observe(then, now, final=final))
    return plain.getvalue(), documents.getvalue()


def test_all_that_is_printed_is_the_same_from_bytes() -> None:
    then, now = a_sample(1, 10, 3), a_sample(3, 1009, 57, misses=4)
    live = printed(then, now)
    assert printed(*(from_bytes(to_bytes(one), "here") for one in (then, now))) == live
    document = json.loads(live[1].splitlines()[0])
    assert document["ops"]["read"]["count"] == 999
    assert document["trust"]["misses"] == 4
    assert document["trust"]["drift"] == {"read": 0, "write": 0, "flush": 0, "discard": 0}


def test_the_wall_clock_is_that_of_the_later_sample() -> None:
    then, now = a_sample(1, 0, 0), a_sample(61, 5, 0)
    between = observe(then, now, final=False).at - observe(then, then, final=False).at
    assert between == timedelta(seconds=60)


def test_misses_that_nobody_tells_stay_unknown() -> None:
    then, now = a_sample(1, 0, 0, misses=None), a_sample(2, 5, 0, misses=9)
    assert observe(then, now, final=True).trust.misses is None


def rewritten(**changes: Any) -> bytes:  # noqa: ANN401
    """A sample whose head says something else; None takes a key away."""
    head, _, words = zlib.decompress(to_bytes(a_sample(2, 1009, 7))).partition(b"\n")
    document = json.loads(head) | changes
    kept = {key: value for key, value in document.items() if value is not None or key not in changes}
    return zlib.compress(json.dumps(kept).encode() + b"\n" + words)


def test_counters_of_another_version_are_read_as_far_as_both_know_them() -> None:
    names = [f"{name}_of_later" if name == "sequential" else name for name in SCALARS]
    ops = [*OPS[:-1], "copy"]
    later = from_bytes(rewritten(counters=names, ops=ops), "here")
    now = a_sample(2, 1009, 7)
    assert later.reading.sample.ops["read"] == now.reading.sample.ops["read"]._replace(sequential=0)
    assert later.reading.sample.ops["other"].completed == 0


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "cut"),
        (b"\x78\x9c nonsense", "damaged"),
        (to_bytes(a_sample(1, 1, 1))[:-9], "cut"),
        (to_bytes(a_sample(1, 1, 1)) + b"x", "cut"),
        (zlib.compress(b"{}\n"), "no sample"),
        (zlib.compress(bytes(MOST_BYTES + 1)), "more than"),
        (rewritten(schema="opwatch/2"), "no sample"),
        (rewritten(ops=["read", "read"]), "no list of names"),
        (rewritten(ops=["read"]), "bytes of counters"),
        (rewritten(slots=[1, 2]), "slots"),
        (rewritten(anchor={"mono_ns": -1}), "mono_ns is no count"),
        (rewritten(misses=1.5), "misses is no count"),
        (rewritten(misses=True), "misses is no count"),
        (rewritten(disk=None), "disk"),
        (rewritten(before={"requests": {"read": "9"}}), "begin_ns"),
    ],
)
def test_what_is_no_sample_is_refused_by_name(raw: bytes, words: str) -> None:
    with pytest.raises(BadInput, match=words) as refused:
        from_bytes(raw, "run.opw: sample 7")
    assert "run.opw: sample 7" in str(refused.value)


def test_a_sample_of_this_version_is_read_for_ever() -> None:
    for bad in sorted((FIXTURES / "bad" / "samples").iterdir()):
        with pytest.raises(BadInput):
            from_bytes(bad.read_bytes(), bad.name)
    kept = from_bytes((FIXTURES / "good" / "samples" / "1.sample").read_bytes(), "1.sample")
    assert kept == a_sample(2, 1009, 7)
