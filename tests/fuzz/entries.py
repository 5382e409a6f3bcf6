"""Entries of a run: damaged as they lie in a file, and by the types of their values. What is accepted is
written again, and shown."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from opwatch.samples.entries import Began, Looked, RunEntry
from opwatch.samples.observation import Event
from opwatch.samples.pack.entries import PackedEntry, pack, unpack
from opwatch.samples.pack.growth import growing
from opwatch.samples.pack.stream import (
    StreamSource,
    entries_of,
    entry_from_bytes,
    entry_to_bytes,
    stream_of,
)
from opwatch.samples.story import Story
from opwatch.sinks.jsonl import JsonLines
from opwatch.sinks.lines import Lines

RUN = Path(__file__).parents[1] / "fixtures" / "good" / "entries" / "1.run"
_VALUES: tuple[Any, ...] = (
    *(None, True, False, -1, 0, 1, 2, 7, 255, 2**31, 2**63, 2**64 - 1, 2**64, 10**39, 1.5, float("inf")),
    *("", "x", "nvme0n1", "discard", "\udc80", "\x1b[31m", "2026-01-01T00:00:00+00:00", "9" * 300, "0:16"),
    *("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", [], {}, [[]], [0, 0], [[0, 0]], {"a": 1}),
)


def _leaves(value: object, way: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to every value of a document, and to every list and table in it."""
    if isinstance(value, dict):
        inner = list(value.items())
    else:
        inner = list(enumerate(value)) if isinstance(value, list) else []
    return [way, *(leaf for key, inside in inner for leaf in _leaves(inside, (*way, key)))]


def _has(document: object, key: object) -> bool:
    if isinstance(document, list):
        return isinstance(key, int) and key < len(document)
    return isinstance(document, dict) and key in document


class RunFuzz:
    """`damaged` changes bytes in the ways of the other formats."""

    def __init__(self, chance: random.Random, damaged: Callable[[bytes], bytes]) -> None:
        self._chance, self._damaged = chance, damaged
        with RUN.open("rb") as file:
            self._entries = list(entries_of(file, RUN.name))
        self._raw = [entry_to_bytes(entry) for entry in self._entries]
        self._packed = [pack(entry) for entry in self._entries]
        self._ways = [_leaves(json.loads(packed.head)) for packed in self._packed]
        self._begun = [entry for entry in self._entries if isinstance(entry, Began)]
        self._stream = b"".join(stream_of(self._entries[:3]))
        # What is read and imported once is none of the first input's.
        Story().take(next(entry for entry in self._entries if isinstance(entry, Looked)))

    def stream(self) -> None:
        """The beginning of a file, changed."""
        for entry in StreamSource(io.BytesIO(self._damaged(self._stream)), "it").entries():
            assert entry_from_bytes(entry_to_bytes(entry), "it") == entry

    def entry(self) -> None:
        """One entry, changed, and what is shown of it after others."""
        kind, at = self._chance.random(), self._chance.randrange(len(self._entries))
        if kind < 0.1:
            entry = entry_from_bytes(self._damaged(self._raw[at]), "it")
        else:
            entry = unpack(self._changed(at, kind), "it")
        assert entry_from_bytes(entry_to_bytes(entry), "it") == entry
        self._show(entry)

    def _changed(self, at: int, kind: float) -> PackedEntry:
        packed = self._packed[at]
        if kind < 0.25:
            return PackedEntry(self._damaged(packed.head), packed.parts)
        if kind < 0.35 and packed.parts:
            which = self._chance.randrange(len(packed.parts))
            parts = [self._damaged(part) if n == which else part for n, part in enumerate(packed.parts)]
            return PackedEntry(packed.head, tuple(parts))
        document = json.loads(packed.head)
        for _ in range(self._chance.randrange(1, 4)):
            self._replace(document, self._chance.choice(self._ways[at]))
        return PackedEntry(json.dumps(document).encode(), packed.parts)

    def _replace(self, document: Any, way: tuple[Any, ...]) -> None:  # noqa: ANN401
        """Another value there; an earlier change may have taken the place away."""
        for key in way[:-1]:
            if not _has(document, key):
                return
            document = document[key]
        if way and _has(document, way[-1]):
            document[way[-1]] = self._chance.choice(_VALUES)

    def _show(self, entry: RunEntry) -> None:
        story, out, run = Story(), io.StringIO(), [*self._begun[:2], entry]
        sink = JsonLines(out) if self._chance.random() < 0.5 else Lines(out)
        for one in growing(run, "it"):
            for news in story.take(one):
                if isinstance(news, Event):
                    sink.tell(news)
                else:
                    sink.write(news)
