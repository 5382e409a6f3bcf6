"""Log pages D0h and C3h with modified fields, bytes and lengths: refused, or shown completely."""

from __future__ import annotations

import json
import random
import struct

from opwatch.counters.decode import amazon, monitor
from opwatch.counters.decode.amazon import AmazonLog
from opwatch.counters.decode.identify import Controller
from opwatch.counters.latency.comparison import (
    HostSlot,
    HostTimes,
    UnmatchedLimits,
    compare_latency,
    diff_counts,
)
from opwatch.counters.latency.drive_latency import DriveLatency, select_pages
from opwatch.counters.reading import DriveFacts
from opwatch.sinks.latency.drive_log import build_latency_document, format_drive_latency
from tests.unit.counters.latency import pages

from .rules import RefusedOrValid

_EDGES = (0, 1, 63, 64, 65, 0xFFFF, 0xFFFFFFFF, 1 << 32, (1 << 63) - 1, (1 << 64) - 2, (1 << 64) - 1)
# Offsets of 8-byte fields: totals, edges and counts of both histograms, histograms by size.
_AMAZON_FIELDS = (*range(8, 96, 8), *range(512, 3600, 8), *range(4096, 8192, 8))
_AMAZON_WORDS = (0, 4, *range(3600, 3640, 4))
_SOUND = (pages.encode_ebs_page(), pages.encode_storage_page())
_SLOW = pages.encode_slow_page()


def _choose_number(chance: random.Random) -> int:
    kind = chance.random()
    if kind < 0.4:
        return chance.choice(_EDGES)
    return chance.randrange(1 << chance.choice((4, 8, 16, 32, 64)))


def _fill_slots(chance: random.Random, raw: bytearray) -> None:
    """Write slots in valid order with counts of any size, to get past the layout checks."""
    for at in (512, 512 + 8 + 64 * 24):
        count = chance.randrange(65)
        edges = sorted(chance.randrange(1 << 40) for _ in range(count + 1))
        struct.pack_into("<Q", raw, at, count)
        for slot in range(count):
            struct.pack_into("<QQQ", raw, at + 8 + slot * 24, *edges[slot : slot + 2], _choose_number(chance))


def _make_amazon(chance: random.Random) -> bytes:
    raw = bytearray(chance.choice(_SOUND))
    if chance.random() < 0.4:
        _fill_slots(chance, raw)
    for _ in range(chance.randrange(6)):
        at = chance.choice(_AMAZON_FIELDS)
        if at + 8 <= len(raw):
            struct.pack_into("<Q", raw, at, _choose_number(chance))
    if chance.random() < 0.3:
        struct.pack_into("<I", raw, chance.choice(_AMAZON_WORDS), _choose_number(chance) & 0xFFFFFFFF)
    return _damage_page(chance, raw)


def _make_monitor(chance: random.Random) -> bytes:
    raw = bytearray(_SLOW)
    if chance.random() < 0.5:
        raw[6:10] = bytes(sorted(chance.sample(range(256), 4)))
    for _ in range(chance.randrange(12)):
        at, width = chance.randrange(0, 494), chance.choice((1, 2, 4, 8))
        raw[at : at + width] = (_choose_number(chance) & ((1 << 8 * width) - 1)).to_bytes(width, "little")
    return _damage_page(chance, raw[:512])


def _damage_page(chance: random.Random, raw: bytearray) -> bytes:
    if chance.random() < 0.1:
        raw[chance.randrange(len(raw))] = chance.randrange(256)
    return bytes(raw[: chance.choice((0, 64, 511, 4095, 4096))] if chance.random() < 0.05 else raw)


def _check_output(drive_latency: DriveLatency) -> None:
    json.dumps(build_latency_document(drive_latency), allow_nan=False)
    assert all(len(line) <= 160 for line in format_drive_latency(drive_latency))


def _check_with_host(chance: random.Random, log: AmazonLog) -> None:
    """Compare a page, as the later of two or as the only one, with a host that counted similar numbers."""
    sound = amazon.decode_amazon(chance.choice(_SOUND))
    early, late = chance.choice(((sound.read, log.read), (log.write, log.write), (sound.write, log.write)))
    drive = diff_counts(early, late)
    if isinstance(drive, str):
        return
    requests = max(0, drive.commands + chance.randrange(-3, 4))
    slot = HostSlot(1000, 1000 + chance.randrange(1 << 40), requests)
    host = HostTimes(requests, drive.bytes, slot.high_ns * requests, (slot,) if requests else ())
    times = compare_latency(host, drive, UnmatchedLimits(chance.randrange(4), chance.randrange(4)))
    for way in times.way.values():
        assert way.low >= 0 and (way.high is None or way.low <= way.high), (host, drive)


def _run_input(chance: random.Random) -> None:
    facts = DriveFacts(model="fuzz")
    if chance.random() < 0.5:
        log = amazon.decode_amazon(_make_amazon(chance))
        _check_with_host(chance, log)
        if chance.random() < 0.1:
            _check_output(DriveLatency(facts, amazon=log))
        return
    raw = _make_monitor(chance)
    select_pages(Controller(vendor_id=chance.randrange(1 << 16)), raw)
    _check_output(DriveLatency(facts, monitor=monitor.decode_monitor(raw)))


def run(inputs: int, seed: int) -> None:
    """Run this many inputs. Raises at the first failure."""
    chance = random.Random(seed)
    for _ in range(inputs):
        with RefusedOrValid("latency"):
            _run_input(chance)
