"""Changes of an operation's counters: the extension writes the same bytes as the Python code."""

from __future__ import annotations

import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opwatch import _native
from opwatch.recording.coding.operations import encode_change, encode_change_python, list_slot_counts
from opwatch.trace.abi import SAMPLE_BYTES, SCALARS, SLOTS, OpSample, decode_sample, view_words
from opwatch.trace.hist import Histogram

_MAX_WORD = 2**64 - 1
_WIDTH = len(SCALARS) + sum(SLOTS)


def _make_sample(chance: random.Random, before: list[int]) -> OpSample:
    """Change some words: larger, smaller or arbitrary."""
    for _ in range(chance.choice((0, 1, 40, 3000))):
        at = chance.randrange(_WIDTH)
        before[at] = (
            chance.choice((before[at] + 1, before[at] + (1 << 40), before[at] - 1, _MAX_WORD)) & _MAX_WORD
        )
    count = SAMPLE_BYTES // 8 - 2 - _WIDTH
    return decode_sample(struct.pack(f"={2 + _WIDTH + count}Q", 1, 2, *before, *bytes(count))).ops["read"]


@given(st.integers(0, 1 << 32))
def test_extension_writes_the_same_bytes_as_python(seed: int) -> None:
    chance = random.Random(seed)
    values = [0] * _WIDTH
    then, now = (_make_sample(chance, values) for _ in range(2))
    for before in (None, then):
        plain = encode_change_python(before, now)
        assert encode_change(before, now) == plain
        counters, slots = (
            (None, None) if before is None else (before[: len(SCALARS)], list_slot_counts(before))
        )
        assert _native.encode_change(counters, slots, now[: len(SCALARS)], list_slot_counts(now)) == plain


def test_counters_in_another_format_are_written_equally() -> None:
    now = _make_sample(random.Random(1), [7] * _WIDTH)
    listed = now._replace(latency=Histogram(now.latency.scale, list(now.latency.slot_counts)))
    assert encode_change(listed, now) == encode_change(now, now) == encode_change_python(now, now)
    assert encode_change(None, listed) == encode_change(None, now)


_COUNTERS = (0,) * len(SCALARS)
_HISTOGRAMS = tuple(view_words([0] * slots) for slots in SLOTS)


@pytest.mark.parametrize(
    "wrong",
    [
        (_COUNTERS[1:], _HISTOGRAMS),
        (list(_COUNTERS), _HISTOGRAMS),
        (("1", *_COUNTERS[1:]), _HISTOGRAMS),
        (_COUNTERS, _HISTOGRAMS[1:]),
        (_COUNTERS, (_HISTOGRAMS[0][1:], *_HISTOGRAMS[1:])),
        (_COUNTERS, (*_HISTOGRAMS[:3], "statuses")),
        (None, _HISTOGRAMS),
        (_COUNTERS, None),
    ],
)
def test_malformed_operations_are_refused(wrong: tuple[object, object]) -> None:
    right = (_COUNTERS, _HISTOGRAMS)
    for arguments in ((*wrong, *right), (*right, *wrong)):
        with pytest.raises((ValueError, TypeError)):
            _native.encode_change(*arguments)
