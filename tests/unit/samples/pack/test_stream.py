"""Entries as bytes: equal when read back, and refused, with their place, when they are none."""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Iterable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from opwatch.counters.looks.sample import CommandKind, DriveAnswer, FirmwareSample, NvmeCommand
from opwatch.counters.reading import DriveFacts
from opwatch.errors import BadInput
from opwatch.samples.entries import Ended, Looked, RunEntry
from opwatch.samples.pack.entries import pack
from opwatch.samples.pack.stream import (
    MAGIC,
    entries_of,
    entry_from_bytes,
    entry_to_bytes,
    stream_of,
)
from tests.unit.support.run_entries import entries

_SLOW = settings(
    max_examples=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def written(run: Iterable[RunEntry]) -> bytes:
    return b"".join(stream_of(run))


def read(raw: bytes) -> list[RunEntry]:
    return list(entries_of(io.BytesIO(raw), "run"))


@_SLOW
@given(entries)
def test_what_is_read_back_is_what_was_written(entry: RunEntry) -> None:
    assert entry_from_bytes(entry_to_bytes(entry), "here") == entry


@_SLOW
@given(st.lists(entries, max_size=3))
def test_entries_keep_their_order(run: list[RunEntry]) -> None:
    assert read(written(run)) == run


def a_look(*pages: bytes) -> Looked:
    answers = tuple(
        DriveAnswer(NvmeCommand(CommandKind.LOG, 0xC0 + number), page) for number, page in enumerate(pages)
    )
    return Looked(FirmwareSample("nvme0n1", DriveFacts(), 1, 2, None, None, answers=answers))


def test_the_same_page_is_one_part() -> None:
    assert len(pack(a_look(b"one" * 99, b"two", b"one" * 99)).parts) == 2


def test_a_stream_that_was_cut_gives_what_was_whole() -> None:
    whole = written([a_look(b"one"), Ended({})])
    for length in range(len(whole) - 1, len(whole) - 9, -1):
        cut = entries_of(io.BytesIO(whole[:length]), "run")
        assert next(cut) == a_look(b"one")
        with pytest.raises(BadInput, match="run: entry 2 is cut"):
            next(cut)


def changed(entry: RunEntry, **changes: object) -> bytes:
    """An entry whose document says something else."""
    packed = pack(entry)
    head = json.dumps(json.loads(packed.head) | changes).encode()
    lengths = json.dumps({"head": len(head), "parts": [len(part) for part in packed.parts]}).encode()
    return zlib.compress(b"".join((lengths, b"\n", head, *packed.parts)))


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "cut"),
        (b"\x78\x9c nonsense", "damaged"),
        (zlib.compress(b'{"head": 2, "parts": [9]}\n{}'), "not the 11 that it says"),
        (zlib.compress(b'{"head": 2, "parts": []}\n{}'), "no entry"),
        (zlib.compress(b'{"head": 2, "parts": 5}\n{}'), "parts is no list"),
        (changed(Ended({}), type="later"), "no entry"),
        (changed(Ended({}), type=[1]), "no entry"),
        (changed(Ended({}), schema="opwatch/2"), "no entry"),
        (changed(Ended({}), samples=[[1, 0]]), "sample is part 0, of 0"),
        (changed(Ended({}), samples=[[1]]), "no list of 2 values"),
        (changed(Ended({}), samples=[["1", 0]]), "samples is no count"),
        (changed(Ended({}), with_rest=1), "with_rest is neither true nor false"),
        (changed(Ended({}), leaving=[[1, {"at": "2026-01-01T00:00:00"}]]), "at is no time with a zone"),
        (changed(Ended({}), leaving=[[1, 7]]), "leaving of place 1 is no table"),
        (changed(Ended({}), discards=[[1, {"disk": "sda", "flows": [[1]]}]]), "discards of place 1"),
        (changed(a_look(b"x"), look={"disk": "nvme0n1", "drive": {"model": 5}}), "model is no text"),
    ],
)
def test_what_is_no_entry_is_refused_by_name(raw: bytes, words: str) -> None:
    with pytest.raises(BadInput, match=words) as refused:
        entry_from_bytes(raw, "run: entry 7")
    assert "run: entry 7" in str(refused.value)


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "holds no entries"),
        (b"opwatch entries 2\n", "holds no entries"),
        (MAGIC + b"\xff\xff\xff\xff", "entry 1 has more than"),
        (MAGIC + bytes(4), "entry 1 is cut"),
    ],
)
def test_what_is_no_stream_is_refused(raw: bytes, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        read(raw)
    assert read(MAGIC) == []
