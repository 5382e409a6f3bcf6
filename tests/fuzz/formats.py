"""Formats without a separate target: settings, tables and reports with modified types.

    python -m tests.fuzz.formats [INPUTS [SEED]]

Each input must be read, or refused with OpwatchError, within 50 ms of CPU time.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from opwatch import foreign
from opwatch.collectors.block.bpftrace import MapAssembler, decode_maps
from opwatch.collectors.block.bpftrace_script import FIRST_MAP, LAST_MAP
from opwatch.collectors.block.diskstats import decode_stat
from opwatch.counters.catalogue.families import PACKAGED, Catalogue, parse_catalogue
from opwatch.counters.evidence import Evidence
from opwatch.counters.looks.smartctl import parse_output
from opwatch.counters.prove.report import make_report
from opwatch.cpu import parse_cpu_times
from opwatch.drive.place import Record
from opwatch.fio.logs import MAX_ROWS, FioLog, parse_log
from opwatch.fio.report import parse_report
from opwatch.ftl import profiles
from opwatch.host.usage import find_mount, find_mount_number, parse_mountinfo, parse_swaps
from opwatch.imports.blkparse import parse_blkparse
from opwatch.imports.fio import parse_fio
from opwatch.imports.fio_logs import parse_fio_logs
from opwatch.imports.iostat import parse_iostat
from opwatch.imports.source import ImportedFile
from opwatch.journal.state import parse_journal
from opwatch.load.options import REQUEST_OPTIONS
from opwatch.load.workload import parse_job_file, parse_workload
from opwatch.samples.presenter import RunPresenter
from opwatch.scenarios.experiment_journal import parse_experiment
from opwatch.settings import parse_toml
from opwatch.sinks.sweep.page import build_sweep_report, format_sweep_markdown, prepare_sweep, render_sweep
from opwatch.sinks.sweep.table import format_sweep as sweep_lines
from opwatch.trim.check.schedule import parse_fstab, parse_properties
from opwatch.trim.stack.causes import PACKAGED as CAUSES
from opwatch.trim.stack.causes import parse_causes

from .rules import RefusedOrValid, run_from_arguments

FIXTURES = Path(__file__).parents[1] / "fixtures" / "good" / "counters"
FIO = FIXTURES.parent / "fio"
JOURNAL = FIXTURES.parent / "sweeps" / "three-levels.journal"
EXPERIMENT = FIXTURES.parent / "scenarios" / "two-loads.experiment"
IMPORTS = FIXTURES.parent / "imports"
# Importer, and a file for it.
Import = tuple[Callable[[bytes, str], ImportedFile], bytes]
KEPT_SWEEP = Path(__file__).parents[1] / "fixtures" / "good" / "sweeps" / "two-levels.json"
_SWAPS = b"Filename\tType\n/dev/sdb1  partition\t5\t0\t-2\n"
_FSTAB = b"/dev/sda1 / ext4 rw 0 1\nLABEL=a\\040b /m xfs x 0 2\n"
_UNITS = b"Id=a\nLoadState=loaded\n\nId=b\n"
_VALUES = (
    *("-1", "0", "1", "255", "256", "1e999", "nan", "true", '""', '"x"', '"\u00b2"', "[]", "{}", "[[]]"),
    *("9" * 30, "9" * 5000, "[" * 70 + "]" * 70, "[" * 2000, '"' + "x" * 500 + '"', "1970-01-01", '"0:16"'),
)
_BYTES = (
    b"\xff",
    b"\x00",
    b"\xe2\x80\xa8",
    b"\xc2\x85",
    b"\r",
    b"\n",
    b"\t",
    b"\\040",
    b"\\777",
    b" - ",
    b" ",
)
_OTHERS: tuple[object, ...] = (None, -1, 0, 1e300, float("nan"), True, "", "x\n", [], {}, [[]], [None])
_MOUNTINFO = (
    b"30 27 8:1 / /boot\\040x rw,relatime shared:1 master:2 - ext4 /dev/sda1 rw,discard\n"
    b"31 1 0:45 /@ / rw - btrfs /dev/mapper/cryptroot rw,subvolid=256\n"
)
_CPU = (FIXTURES.parent / "cpu" / "stat").read_bytes()
_STAT = (
    b"      12       3     456      78      90      12     345      67       0      89      10  1  2  3  4\n"
)
_RECORD = b'{"name": "a", "device": "/dev/loop7", "pid": 5, "state": null, "no_data": false, "diskseq": 9}'
_WORKLOAD = (
    b'description = "x"\n[[job]]\nrw = "randrw"\nrwmixread = 40\nnumjobs = 2\nbssplit = "4k/67:8k/33"\n'
)
_JOB_FILE = b"[global]\nioengine=libaio\nsize=1g\n[a]\nrw=randwrite\nbs=4k\n[b]\nrw=rw\nnumjobs=3\n"
_BPFTRACE = (
    b'{"type": "attached_probes", "data": {"probes": 5}}\n'
    b'{"type": "lost_events", "data": {"events": 3}}\n'
    + f'{{"type": "map", "data": {{"{FIRST_MAP}": {{"1,1": 4096}}}}}}\n'.encode()
    + b'{"type": "map", "data": {"@latency": {"1,1,40": 3, "2,2,9": 1}, "@event": {"1,1,0": 2}}}\n'
    + f'{{"type": "map", "data": {{"{LAST_MAP}": {{"1,1": 7}}}}}}\n'.encode()
)


def _import_logs_with(
    logs: Sequence[tuple[str, bytes]], changed: str
) -> Callable[[bytes, str], ImportedFile]:
    """Return an importer for the logs of a job, including a modified log."""
    number = changed.split(".")[-2]
    others = [(name, raw) for name, raw in logs if name != changed and name.split(".")[-2] == number]
    return lambda raw, _: parse_fio_logs([(changed, raw), *others], average_ms=200)


def _import_logs_and_report(logs: Sequence[tuple[str, bytes]], raw: bytes, name: str) -> ImportedFile:
    """Import logs with a modified report."""
    return parse_fio_logs(logs, (name, raw))


def _list_runs() -> list[Import]:
    """Return fio reports that are imported with the logs of the same run."""
    runs: list[Import] = []
    for path in sorted(IMPORTS.glob("fio-*/*.json")):
        logs = [(log.name, log.read_bytes()) for log in sorted(path.parent.glob("*.log"))]
        runs.append((partial(_import_logs_and_report, logs), path.read_bytes()))
    return runs


def _shrink_report(path: Path) -> bytes:
    """Return a report with few rows per table."""

    def shrink_lists(value: object) -> object:
        if isinstance(value, dict):
            return {key: shrink_lists(member) for key, member in value.items()}
        return [shrink_lists(element) for element in value[:3]] if isinstance(value, list) else value

    return json.dumps(shrink_lists(json.loads(path.read_bytes()))).encode()


def _show_sweep(document: dict[str, Any]) -> None:
    """Show the document of a sweep in all its forms."""
    list(sweep_lines(document))
    sweep = prepare_sweep("mine", document)
    render_sweep(sweep)
    list(format_sweep_markdown(sweep))
    build_sweep_report(sweep)


class FormatFuzzer:
    """Sequence of inputs from a seed. `targets` are chosen at random."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._catalogues = [path.read_text().split("\n\n") for path in sorted(PACKAGED.glob("*.toml"))]
        self._causes = CAUSES.read_text().split("\n\n")
        folder = Path(profiles.__file__).parent / "profiles"
        self._profiles = [path.read_bytes() for path in sorted(folder.glob("*.toml"))]
        self._reports = [_shrink_report(path) for path in sorted(FIXTURES.glob("smartctl_exporter/*.json"))]
        self._fio = [_shrink_report(FIO / "mixed.json"), (FIO / "two.txt").read_bytes()]
        self._fio_logs = [(path.name, path.read_bytes()) for path in sorted(FIO.glob("*.log"))]
        self._imports = [*self._list_files(), *_list_runs()]
        self._kept = KEPT_SWEEP.read_bytes()
        begin = time.thread_time()
        _show_sweep(json.loads(self._kept))
        self._sound_s = time.thread_time() - begin
        self.targets: dict[str, Callable[[], object]] = {
            "mountinfo": self._fuzz_mountinfo,
            "swaps": lambda: parse_swaps(self._damage_text(_SWAPS)),
            "fstab": lambda: parse_fstab(self._damage_text(_FSTAB)),
            "units": lambda: parse_properties(self._damage_text(_UNITS)),
            "catalogue": self._fuzz_catalogue,
            "causes": lambda: parse_causes(self._damage_settings(self._causes), "causes"),
            "profile": self._fuzz_profile,
            "smartctl": self._fuzz_smartctl,
            "fio": lambda: parse_report(self._damage_text(self._random.choice(self._fio))).total,
            "fio log": self._fuzz_fio_log,
            "workload": self._fuzz_workload,
            "sweep": self._fuzz_sweep,
            "experiment": self._fuzz_experiment,
            "imports": self._fuzz_import,
            "kept sweep": self._fuzz_recorded_sweep,
            "stat": lambda: decode_stat(self._damage_text(_STAT)),
            "cpu": lambda: parse_cpu_times(self._damage_text(_CPU)),
            "record": lambda: Record.from_document(
                foreign.parse_json(self._damage_bytes(_RECORD), "drive.json")
            ),
            "bpftrace": self._fuzz_bpftrace,
            "json": lambda: foreign.parse_json(self._damage_bytes(self._fio[0]), "it"),
            "toml": lambda: parse_toml(self._damage_bytes(self._random.choice(self._profiles)), "it"),
        }

    def run_inputs(self, inputs: int, only: str | None = None) -> None:
        """Run this many inputs. Raises at the first failure."""
        names = [only] if only else list(self.targets)
        for _ in range(inputs):
            name = self._random.choice(names)
            with RefusedOrValid(name, self._sound_s if name == "kept sweep" else 0.0):
                self.targets[name]()

    def _list_files(self) -> list[Import]:
        """Return files that are imported separately, and logs with the others of their job."""
        trace = (IMPORTS / "blkparse.txt").read_bytes()
        return [
            (parse_fio, self._fio[1]),
            *((parse_fio, path.read_bytes()) for path in sorted(IMPORTS.glob("fio-*.json"))),
            *((parse_iostat, path.read_bytes()) for path in sorted(IMPORTS.glob("iostat*"))),
            *((_import_logs_with(self._fio_logs, name), raw) for name, raw in self._fio_logs),
            (parse_blkparse, trace[:4000]),
            # The last events and the totals.
            (parse_blkparse, trace[-6000:].partition(b"\n")[2]),
        ]

    def _damage_bytes(self, raw: bytes) -> bytes:
        """Return the bytes with changes, insertions, repetitions, and values of other types or sizes."""
        chance, changed = self._random, bytearray(raw)
        for _ in range(chance.randrange(1, 6)):
            at, kind = chance.randrange(len(changed) + 1), chance.random()
            if kind < 0.3:
                changed[at:at] = chance.choice(_BYTES)
            elif kind < 0.5:
                changed[at : at + 1] = bytes((chance.randrange(256),))
            elif kind < 0.7:
                end = at + chance.randrange(40)
                changed[at:at] = bytes(changed[at:end]) * chance.choice((1, 2, 50))
            elif kind < 0.9:
                value = chance.choice(_VALUES).encode("utf-8")
                changed[at : at + chance.randrange(12)] = value
            else:
                del changed[at : at + chance.randrange(40)]
        return bytes(changed)

    def _damage_text(self, raw: bytes) -> str:
        return foreign.decode_names(self._damage_bytes(raw))

    def _fuzz_mountinfo(self) -> None:
        text = self._damage_text(_MOUNTINFO)
        for mount in (table := parse_mountinfo(text)):
            assert find_mount(mount.point, table) is not None or not mount.point.startswith("/")
            find_mount_number(Path(mount.point), table)

    def _damage_settings(self, paragraphs: list[str]) -> str:
        """Return some tables of a file with values of other types, missing lines and damaged bytes."""
        chance, lines = self._random, []
        for line in "\n\n".join(chance.sample(paragraphs, min(3, len(paragraphs)))).split("\n"):
            key, equals, _ = line.partition(" = ")
            kind = chance.random()
            if equals and kind < 0.06:
                lines.append(f"{key} = {chance.choice(_VALUES)}")
            elif kind > 0.02:
                lines.append(line)
        text = "\n".join(lines)
        return text if chance.random() < 0.7 else self._damage_bytes(text.encode()).decode("utf-8", "replace")

    def _fuzz_catalogue(self) -> None:
        entries = parse_catalogue(self._damage_settings(self._random.choice(self._catalogues)), "mine")
        for entry in entries:
            counters = (entry.host, entry.nand, entry.trimmed, entry.trims)
            assert all(counter.quantum >= 1 and min(counter.units) >= 1 for counter in counters if counter)
        evidence = parse_output(0, self._random.choice(self._reports)) if entries else Evidence()
        make_report(evidence, Catalogue(entries))

    def _fuzz_recorded_sweep(self) -> None:
        """Show a sweep with damaged bytes, or with values of other types anywhere."""
        if self._random.random() < 0.3:
            document = foreign.parse_json(self._damage_bytes(self._kept), "it")
        else:
            document = json.loads(self._kept)
            place = document
            while isinstance(place, dict | list) and place:
                keys = list(place) if isinstance(place, dict) else list(range(len(place)))
                key = self._random.choice(keys)
                if not isinstance(place[key], dict | list) or self._random.random() < 0.3:
                    place[key] = self._random.choice(_OTHERS)
                    break
                place = place[key]
        _show_sweep(document)

    def _fuzz_profile(self) -> None:
        text = self._damage_settings([self._random.choice(self._profiles).decode()])
        profile = profiles.parse_profile("mine", text).scale_to(self._random.choice((1 << 20, 1 << 40)))
        assert all(value >= 0 for value in profile.drive.values())

    def _fuzz_workload(self) -> None:
        """Parse one of our workloads or a fio job file. Only options that shape requests may pass."""
        if self._random.random() < 0.5:
            pattern = parse_workload(self._damage_bytes(_WORKLOAD), "mine")
        else:
            pattern = parse_job_file(self._damage_bytes(_JOB_FILE), "mine")
        for job in pattern.jobs:
            assert set(job.options) <= REQUEST_OPTIONS
            assert not any(set(value) & set("\n\0 $\\") for value in job.options.values())
            assert job.thread_count >= 1
            assert job.write_share > 0

    def _fuzz_sweep(self) -> None:
        """Parse the journal of a sweep. Its levels and options must stay within the limits of a plan."""
        state = parse_journal(self._damage_bytes(JOURNAL.read_bytes()), "it")
        places = range(len(state.request.levels))
        assert set(state.records) | set(state.remaining_levels) == set(places)
        for place, record in state.records.items():
            record.make_outcome(state.request.levels[place])

    def _fuzz_experiment(self) -> None:
        """Parse the journal of a file system experiment. Results must belong to existing loads and places."""
        state = parse_experiment(self._damage_bytes(EXPERIMENT.read_bytes()), "it")
        names = [place.name for place in state.request.places]
        assert set(state.rates) <= set(names)
        for rates in state.rates.values():
            assert tuple(rate.load for rate in rates) == state.request.loads[: len(rates)]
            assert all(rate.iops >= 0 for rate in rates)

    def _fuzz_bpftrace(self) -> None:
        """Feed lines in bpftrace's format, some of them modified."""
        frames = MapAssembler()
        for line in _BPFTRACE.split(b"\n"):
            text = self._damage_text(line) if self._random.random() < 0.5 else line.decode()
            maps = frames.parse_line(text.replace("\n", " "))
            if maps:
                decode_maps(maps, 2, 5, 6, frames.map_full)

    def _fuzz_fio_log(self) -> None:
        name, raw = self._random.choice(self._fio_logs)
        log = parse_log(self._damage_bytes(raw), name)
        assert len(list(log.iter_rows() if isinstance(log, FioLog) else log.rows)) <= MAX_ROWS

    def _fuzz_import(self) -> None:
        """Import the first entries only, because a valid file may have one per second of a day."""
        read, raw = self._random.choice(self._imports)
        story, entries = RunPresenter(), iter(read(self._damage_bytes(raw), "it").entries)
        for entry in islice(entries, 4):
            story.process_entry(entry)

    def _fuzz_smartctl(self) -> None:
        proven = make_report(
            parse_output(0, self._damage_bytes(self._random.choice(self._reports))), Catalogue(())
        )
        assert all(reading.value is not None or reading.reason for reading in proven.readings.values())


def main() -> int:
    return run_from_arguments(lambda inputs, seed: FormatFuzzer(seed).run_inputs(inputs), 100_000)


if __name__ == "__main__":
    sys.exit(main())
