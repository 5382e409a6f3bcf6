"""Damaged log pages and reports: no crash, and no value without a proof.

    python -m tests.fuzz.counters [INPUTS [SEED]]

Pages are built from their layouts; texts and documents are fixtures with modified bytes, numbers and lines.
Prints failures with the command to reproduce them.
"""

from __future__ import annotations

import gc
import json
import random
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from opwatch.collectors.firmware.recorded import decode_evidence
from opwatch.counters.catalogue.families import load_catalogue
from opwatch.counters.catalogue.fingerprints import PACKAGED, parse_rules
from opwatch.counters.decode import identify, ocp
from opwatch.counters.decode.sanitize_log import SanitizeState, decode_sanitize_log
from opwatch.counters.decode.smart_log import SmartLog
from opwatch.counters.decode.vendor_page import LAYOUTS
from opwatch.counters.evidence import Evidence, Statistics, VendorPage
from opwatch.counters.looks.pages import decode_page_evidence
from opwatch.counters.prove.report import make_report
from opwatch.counters.reading import DriveFacts, Proof
from opwatch.sinks.counters import build_counters_document, format_counters
from opwatch.sweep.namespace.sanitize import (
    SanitizeOffer,
    find_sanitize_failure,
    format_sanitize_progress,
    list_sanitize_objections,
)
from tests.bench.figure import choose_size
from tests.learning.rows import read_rows

from .rules import BOUND, LENIENT_S, STRICT_S, RefusedOrValid

GOOD = Path(__file__).parents[1] / "fixtures" / "good" / "counters"
ROWS = GOOD.parent / "smart_rows" / "drives.jsonl"
_LIDS = (0x02, 0x07, 0x08, 0x09, 0x22, 0xC0, 0xCA, 0xD0, 0xFB, 0xC4)
# Models with a known vendor page, and the (offset, width) of its counters.
_PAGES = (
    (None, 0xCA, ((0, 16),)),
    ("INTEL SSDPEDME016T4F", 0xCA, ((137, 6), (149, 6))),
    ("XM1441-1AB112048", 0xC4, ((6, 8), (18, 8))),
    ("Micron_9300_MTFDHAL3T8TDP", 0xD0, ((176, 8),)),
    ("HFS512GDE9X083N", 0xFB, ((0, 16), (16, 16))),
    ("Micron_7300_MTFDHBA960TDF", 0xFB, ((0, 16), (16, 16))),
    ("WDC PC SN730 SDBQNTY-512G-1001", 0xFB, ((0, 16), (16, 16))),
    ("WUS4BB038D7P3E1", 0xD0, ((16, 4), (68, 8), (80, 8))),
    ("SAMSUNG MZQLB960HAJR-00007", 0xCA, ((256, 4), (264, 16), (280, 16))),
    ("SOLIDIGM SSDPF2KX038T1", 0xCA, ((5, 6), (17, 6))),
)
_MODELS = tuple(model for model, _, _ in _PAGES)
_VENDOR_UNITS = (1, 512, 4096, 512_000, 10**6, 1 << 25, 10**9, 1 << 30)
_EDGES = (0, 1, 0x7F, 0x80, 0xFE, 0xFF)
_NUMBERS = ("0", "-1", "18446744073709551616", "281474976710655", "1e9", "0x7fffffffffffffff", "NaN", "1,2,3")


class CounterFuzzer:
    """Sequence of inputs from a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._catalogue = load_catalogue(system=Path("/nonexistent"))
        self._learned = PACKAGED.read_bytes().splitlines(keepends=True)[8:-1]
        self._rows = list(read_rows(ROWS))
        texts = [path for path in sorted(GOOD.rglob("*")) if path.is_file() and path.suffix != ".json"]
        self._lines = [path.read_bytes().splitlines(keepends=True) for path in texts]
        self._documents = [json.loads(path.read_text()) for path in sorted(GOOD.rglob("*.json"))]

    def run_inputs(self, inputs: int) -> None:
        """Run this many inputs. Raises at the first failure."""
        targets: list[Callable[[], Evidence | None]] = [self._make_page] * 10 + [self._make_text] * 3
        targets += [self._make_vendor_page, self._make_vendor_page, self._fuzz_sanitize]
        targets += [self._make_json, self._fuzz_rules, self._change_drive]
        for index in range(inputs):
            target = self._random.choice(targets)
            with RefusedOrValid(target.__name__):
                evidence = target()
                if evidence and (target != self._make_page or index % 8 == 0):
                    self._check_report(evidence)

    def _check_report(self, evidence: Evidence) -> None:
        proven = make_report(evidence, self._catalogue)
        readings = [
            *proven.readings.values(),
            *(reading for some in proven.others.values() for reading in some),
        ]
        for reading in readings:
            if reading.value is None:
                assert reading.reason, reading
            else:
                assert reading.reason is None and reading.proof is not Proof.CANDIDATE, reading
                assert isinstance(reading.value, int) and -300 <= reading.value < 1 << 128, reading
                assert reading.unit != "bytes" or reading.value <= 10**20, reading
                assert reading.quantum >= 1, reading
        if self._random.random() < 0.05:
            json.dumps(build_counters_document(proven, None))
            assert all(len(line) <= 80 for line in format_counters(proven))

    def _make_page(self) -> Evidence | None:
        chance = self._random
        raw = bytearray(chance.randbytes(512) if chance.random() < 0.5 else bytes(512))
        for _ in range(chance.randrange(1, 12)):
            at = chance.randrange(512)
            raw[at : at + chance.choice((1, 2, 8))] = bytes((chance.choice(_EDGES),))
        if chance.random() < 0.5:
            raw[496:512] = chance.choice((ocp.CLOUD_GUID, ocp.BOOT_GUID))
        cut = bytes(raw[: chance.choice((len(raw), 512, 500, 64, 0))])
        kind = chance.random()
        if kind < 0.1:
            identify.decode_controller(cut * 8)
            identify.decode_namespace(cut * 8)
            identify.find_uuid_index(cut * 8, ocp.CLOUD_GUID)
            identify.decode_namespace_list(cut * 8)
            assert min(identify.decode_granularity(cut * 8, chance.randrange(64))) >= 1
            identify.decode_controller_list(cut * 8)
            return None
        if kind < 0.3:
            LAYOUTS[chance.choice(tuple(LAYOUTS))](cut)
            return None
        evidence = decode_page_evidence(chance.choice(_LIDS), cut)
        model = chance.choice(_MODELS)
        return replace(
            evidence,
            drive=DriveFacts(protocol="nvme", model=model, capacity_bytes=chance.choice((None, 10**12))),
        )

    def _make_vendor_page(self) -> Evidence:
        """Return a vendor page with counters close to log 02h in some unit, sometimes modified."""
        chance = self._random
        model, lid, places = chance.choice(_PAGES)
        units = chance.randrange(1, 1 << chance.choice((8, 20, 34, 50)))
        unit = chance.choice(_VENDOR_UNITS)
        raw = bytearray(512)
        ratio = chance.choice((100, 130, 250, 1000))
        for place, (offset, width) in enumerate(places):
            value = ratio if width == 4 else units * 512_000 // unit * (ratio if place else 100) // 100
            if chance.random() < 0.1:
                value = chance.choice((0, 1, value * 7, (1 << 8 * width) - 1))
            raw[offset : offset + width] = (value & ((1 << 8 * width) - 1)).to_bytes(width, "little")
        for at, key in ((0, 0xF4), (12, 0xF5)) if model == "SOLIDIGM SSDPF2KX038T1" else ():
            raw[at] = key
        if chance.random() < 0.2:
            raw[chance.randrange(512)] = chance.choice(_EDGES)
        smart = SmartLog(
            data_units_written=units,
            write_commands=chance.choice((None, units * 8, 1)),
            power_on_hours=chance.choice((None, 0, 9000, 1 << 70)),
        )
        drive = DriveFacts(protocol="nvme", model=model, capacity_bytes=chance.choice((None, 10**12)))
        cut = bytes(raw[: chance.choice((512, 512, 512, 290, 128))])
        return Evidence(drive, smart=smart, vendor=(VendorPage(lid, cut),))

    def _fuzz_sanitize(self) -> None:
        """Decode log 81h with extreme states, kinds and times. Accepted pages must be judged and shown."""
        chance = self._random
        raw = bytearray(512)
        raw[0:2] = chance.choice((0, 1, 0x8000, 0xFFFF, chance.randrange(1 << 16))).to_bytes(2, "little")
        raw[2:4] = chance.choice((*range(8), chance.randrange(1 << 16))).to_bytes(2, "little")
        raw[4:8] = chance.choice((*range(8), chance.randrange(1 << 32))).to_bytes(4, "little")
        for at in range(8, 32, 4):
            seconds = chance.choice((0, 1, 3600, (1 << 32) - 1, chance.randrange(1 << 32)))
            raw[at : at + 4] = seconds.to_bytes(4, "little")
        log = decode_sanitize_log(bytes(raw[: chance.choice((512, 512, 512, 511, 20, 0))]))
        is_under_way = log.state is SanitizeState.UNDER_WAY
        assert (log.progress_ratio is not None) == is_under_way
        assert 0 <= (log.progress_ratio or 0) < 1 and 0 <= log.action < 8
        assert all(0 <= seconds < (1 << 32) - 1 for seconds in log.seconds.values())
        assert len(format_sanitize_progress(log)) < 200
        failure = find_sanitize_failure(log, chance.choice((2, 4)), "nvme0", "opwatch sweep resume X")
        assert failure or log.state in (
            SanitizeState.DONE,
            SanitizeState.DONE_DEALLOCATED,
            SanitizeState.UNDER_WAY,
        )
        controller = identify.Controller(can_sanitize=True, erases_blocks=True, most_namespaces=1)
        offer = SanitizeOffer(controller, identify.Namespace(), 1, (1,), log)
        stops = log.state in (SanitizeState.UNDER_WAY, SanitizeState.FAILED)
        assert bool(list_sanitize_objections(offer)) == stops

    def _damage_line(self, line: bytes) -> bytes:
        chance, damaged = self._random, bytearray(line)
        for _ in range(chance.randrange(3)):
            if damaged:
                damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        if chance.random() < 0.3:
            words = bytes(damaged).split(b" ")
            words[chance.randrange(len(words))] = chance.choice(_NUMBERS).encode()
            return b" ".join(words)
        return bytes(damaged)

    def _make_text(self) -> Evidence | None:
        chance, lines_ = self._random, self._random.choice(self._lines)
        begin = chance.randrange(len(lines_))
        chosen = lines_[begin : begin + chance.randrange(1, 25)]
        if chance.random() < 0.6:
            chosen = lines_[:10] + chosen
        return decode_evidence(
            "text", b"".join(self._damage_line(line) if chance.random() < 0.2 else line for line in chosen)
        )

    def _damage_value(self, value: object, depth: int = 0) -> object:
        chance = self._random
        if chance.random() < 0.01:
            return chance.choice((None, True, -1, 1 << 200, 1.5, "x", [], {}, *_NUMBERS))
        if isinstance(value, dict) and value:
            # At the top level all members are damaged, below only one or two.
            keys = value if depth == 0 else chance.choices(tuple(value), k=chance.choice((1, 2)))
            changed = {**value, **{key: self._damage_value(value[key], depth + 1) for key in keys}}
            if chance.random() < 0.2:
                del changed[chance.choice(tuple(changed))]
            return changed
        if isinstance(value, list) and value:
            some = value[: chance.choice((1, 6, len(value)))]
            at = chance.randrange(len(some))
            return [*some[:at], self._damage_value(some[at], depth + 1), *some[at + 1 :]]
        if isinstance(value, int) and not isinstance(value, bool) and chance.random() < 0.3:
            return value * chance.choice((0, -1, 512, 1 << 25, 1 << 60))
        return value

    def _fuzz_rules(self) -> None:
        """Parse learned rules with damaged lines. Accepted rules must answer queries."""
        chance = self._random
        begin = chance.randrange(len(self._learned))
        lines_ = self._learned[begin : begin + 5]
        damaged = b"".join(self._damage_line(line) if chance.random() < 0.3 else line for line in lines_)
        rules = parse_rules(b"core = [\n" + damaged + b"]\n", "fuzz")
        ids = next(iter(rules.core), frozenset())
        assert rules.find_rule(ids) in (None, rules.core.get(ids)) and rules.find_similar_rule(ids) is None

    def _change_drive(self) -> Evidence:
        """Return a real drive with attributes and statistics modified, duplicated or of another drive."""
        chance = self._random
        drive, other = chance.choice(self._rows), chance.choice(self._rows)
        some = [
            replace(
                attribute,
                raw=chance.choice((attribute.raw, None, 0, (1 << 48) - 1, chance.randrange(1 << 48))),
            )
            for attribute in drive.attributes
            if chance.random() < 0.97
        ]
        values = drive.statistics.values if drive.statistics else {}
        factor = chance.choice((0, 1, 1, 2, 10, 1 << 40))
        return replace(
            drive,
            drive=chance.choice((drive.drive, other.drive)),
            attributes=tuple(some + [chance.choice(drive.attributes)] * chance.randrange(2)),
            statistics=Statistics({where: value * factor for where, value in values.items()}),
            power_on_hours=chance.choice((drive.power_on_hours, None, 0, 1 << 70)),
        )

    def _make_json(self) -> Evidence | None:
        damaged = self._damage_value(self._random.choice(self._documents))
        return decode_evidence("json", json.dumps(damaged).encode())


def main() -> int:
    inputs = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000_000
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else time.time_ns()
    begun, done, step = time.monotonic(), 0, 100_000
    # Garbage collection must not count as time of an input.
    gc.disable()
    BOUND.seconds = choose_size(STRICT_S, LENIENT_S)
    while done < inputs:
        count = min(step, inputs - done)
        gc.collect()
        try:
            CounterFuzzer(seed + done).run_inputs(count)
        except Exception:
            print(f"failed; repeat with: python -m tests.fuzz.counters {count} {seed + done}")
            raise
        done += count
        print(f"{done:>10} of {inputs} inputs, seed {seed}: no failure", flush=True)
    print(f"{done} inputs from seed {seed} in {time.monotonic() - begun:.0f} s: no failure")
    return 0


if __name__ == "__main__":
    sys.exit(main())
