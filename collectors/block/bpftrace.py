"""Block tracer as a bpftrace script: converts maps printed as JSON to samples."""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from opwatch.collectors.block.bpftrace_script import (
    EVENTS,
    FIRST_MAP,
    LAST_MAP,
    PROBE,
    build_script,
    operation_key,
)
from opwatch.collectors.block.diskstats import StatReader
from opwatch.collectors.block.held_programs import HeldPrograms
from opwatch.errors import BadInput, OpwatchError, Unsupported, UsageError
from opwatch.foreign import decode_text, parse_json
from opwatch.host.capabilities import has_capability
from opwatch.host.device import Leaf
from opwatch.host.privilege import make_permission_error
from opwatch.trace import abi
from opwatch.trace.abi import LATENCY, OPS, SIZE, OpSample, TargetSample
from opwatch.trace.hist import Histogram
from opwatch.trace.tracing import SettledReadings, read_until_settled
from opwatch.trace.trust import Reading

QUEUE = "time in the queue: bpftrace does not attach where requests enter the queue"
MISSES = "runs skipped by the kernel: /proc does not report them for bpftrace's programs here"
# Attaching takes seconds on a slow machine. Printing the maps takes less than 0.1 s.
PATIENCE_S = 120.0

Maps = dict[str, Any]


class _Counts:
    """Values of printed maps, by target (from 0) and operation."""

    def __init__(self, maps: Maps) -> None:
        self._maps = maps

    def read_scalar(self, name: str, target: int, op: int, *rest: int) -> int:
        key = ",".join(map(str, (target + 1, operation_key(op), *rest)))
        return int(self._maps.get(name, {}).get(key, 0))

    def read_slots(self, name: str, target: int, op: int, size: int) -> list[int]:
        counts = [0] * size
        prefix = f"{target + 1},{operation_key(op)},"
        for key, count in self._maps.get(name, {}).items():
            if key.startswith(prefix):
                slot = int(key[len(prefix) :])
                if not 0 <= slot < size:
                    raise BadInput(f"{name}[{key}]: the slot is not between 0 and {size - 1}")
                counts[slot] = int(count)
        return counts


def _decode_op(counts: _Counts, target: int, op: int, map_full: int) -> OpSample:
    latency = Histogram(LATENCY, counts.read_slots("@latency", target, op, LATENCY.slots))
    sizes = Histogram(SIZE, counts.read_slots("@size", target, op, SIZE.slots))
    events = {name: counts.read_scalar("@event", target, op, index) for index, name in enumerate(EVENTS)}
    statuses = abi.view_words(counts.read_slots("@status", target, op, abi.STATUSES))
    left = latency.total + events["taken_back"] - events["refused"] + events["abandoned"]
    sum_ns = counts.read_scalar("@ns", target, op)
    return OpSample(
        completed=latency.total,
        in_flight=max(sizes.total - left - events["overwritten"], 0),
        # The script has no sums of times, so a request's time is added when it completes.
        in_flight_ns=sum_ns,
        issue_sum_ns=0,
        end_sum_ns=0,
        lost_sum_ns=0,
        first_ends=0,
        bytes=counts.read_scalar("@bytes", target, op),
        error_bytes=counts.read_scalar("@error_bytes", target, op),
        sum_ns=sum_ns,
        max_ns=counts.read_scalar("@max", target, op),
        unseen_bytes=counts.read_scalar("@unseen", target, op),
        stat_read_bytes=counts.read_scalar("@stat_read_bytes", target, op),
        stat_write_bytes=counts.read_scalar("@stat_write_bytes", target, op),
        issued=sizes.total,
        map_full=map_full,
        behind=0,
        behind_sum_ns=0,
        behind_max_ns=0,
        missed=0,
        queued=0,
        queue_sum_ns=0,
        queue_max_ns=0,
        throttle_known=0,
        throttled=0,
        throttle_sum_ns=0,
        throttle_max_ns=0,
        admission_known=0,
        admission_sum_ns=0,
        admission_max_ns=0,
        next_sector=0,
        latency=latency,
        queue=Histogram(LATENCY, [0] * LATENCY.slots),
        sizes=sizes,
        statuses=statuses,
        **events,
    )


def decode_maps(maps: Maps, targets: int, begin_ns: int, end_ns: int, map_full: int) -> list[TargetSample]:
    """Return the samples in one set of printed maps. Pure.

    `map_full` is the number of failed updates of all targets, because bpftrace reports no key. Each sample
    has them under the operation "other". Raises BadInput for unknown maps.
    """
    try:
        return _decode_samples(_Counts(maps), targets, begin_ns, end_ns, map_full)
    except BadInput:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise BadInput(f"bpftrace printed unexpected maps: {error}") from error


def _decode_samples(
    counts: _Counts, targets: int, begin_ns: int, end_ns: int, map_full: int
) -> list[TargetSample]:
    return [
        TargetSample(
            begin_ns,
            end_ns,
            {
                name: _decode_op(counts, target, op, map_full if name == "other" else 0)
                for op, name in enumerate(OPS)
            },
        )
        for target in range(targets)
    ]


class MapAssembler:
    """Assembles bpftrace's JSON lines into sets of maps, and counts reported losses."""

    def __init__(self) -> None:
        self.attached = False
        self.map_full = 0
        self._maps: Maps | None = None

    def parse_line(self, line: str) -> Maps | None:
        """Return the set of maps completed by a line, or None."""
        if not line.startswith("{"):
            return None
        event = parse_json(line, "a line from bpftrace")
        try:
            return self._parse_event(event["type"], event.get("data", {}), event)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise BadInput(f"unknown output of bpftrace: {line[:200]}: {error}") from error

    def _parse_event(self, kind: object, data: Maps, event: Maps) -> Maps | None:
        if kind == "attached_probes":
            self.attached = True
        elif kind == "helper_error":
            self.map_full += event["helper"] == "map_update_elem"
        elif kind == "lost_events":
            # Lost events of this script are failed updates.
            self.map_full += int(data["events"])
        elif kind == "map":
            return self._add_maps(data)
        return None

    def _add_maps(self, data: Maps) -> Maps | None:
        if FIRST_MAP in data:
            self._maps = {}
        if self._maps is None:
            raise BadInput(
                f"bpftrace printed {', '.join(data)} before {FIRST_MAP}: its maps are not sorted by name"
            )
        self._maps |= data
        if LAST_MAP not in data:
            return None
        done, self._maps = self._maps, None
        return done


def find_batch_head(definition: str) -> str | None:
    """Return the member path from a `struct io_comp_batch`, as bpftrace prints it, to its first request.

    Since v6.13 and stable updates of v6.12 the list has a head and a tail; before, it points to the first
    request. None if the kernel has no such struct.
    """
    if re.search(r"struct rq_list req_list;", definition):
        return "req_list.head"
    return "req_list" if re.search(r"struct request \* ?req_list;", definition) else None


def _require_bpftrace() -> str:
    path = shutil.which("bpftrace")
    if not path:
        raise Unsupported("bpftrace is not installed. Try: apt-get install bpftrace")
    if not has_capability("CAP_SYS_ADMIN") or os.geteuid() != 0:
        raise make_permission_error("bpftrace", "root, with CAP_SYS_ADMIN")
    if not Path("/sys/kernel/btf/vmlinux").exists():
        raise Unsupported("the bpftrace backend needs the kernel's BTF; without BTF, try --backend bcc")
    return path


def _read_definition(tool: str, name: str) -> str:
    argv = [tool, "-lv", f"struct {name}"]
    return subprocess.run(argv, capture_output=True, text=True, check=False).stdout


def _check_leaves(leaves: Sequence[Leaf]) -> None:
    if len(leaves) > abi.MAX_TARGETS:
        raise UsageError(f"{len(leaves)} disks are too many for one tracer (at most {abi.MAX_TARGETS})")
    for leaf in leaves:
        if not leaf.device.disk.is_request_based:
            raise Unsupported(
                f"{leaf.device.name}: the bpftrace backend traces requests, but this driver is bio-based"
            )


def find_held_programs(process: Path, probes: int) -> HeldPrograms | None:
    """Return the programs of an attached bpftrace, or None if the skipped runs of any probe are unknown."""
    try:
        programs = HeldPrograms(process)
    except OSError:
        return None
    return programs if len(programs.programs) == probes and programs.count_skipped() is not None else None


class BpftraceTracer:
    """bpftrace process, attached from construction until close()."""

    backend = "bpftrace"
    hooks = "fentry"
    notes: Sequence[str] = ()

    def __init__(self, leaves: Sequence[Leaf]) -> None:
        tool = _require_bpftrace()
        _check_leaves(leaves)
        self.leaves = list(leaves)
        self.lacks = [QUEUE]
        self._frames = MapAssembler()
        self._pending = b""
        self._attached = False
        self._errors = TemporaryFile()  # noqa: SIM115 - lives as long as bpftrace
        # Entries per map, for requests in flight and used slots. Older versions use the second name.
        room = str(8192 + 4096 * len(self.leaves))
        zone_resource = "required_elevator_features" in _read_definition(tool, "request_queue")
        batches = find_batch_head(_read_definition(tool, "io_comp_batch"))
        text = build_script(self.leaves, batches, zone_resource=zone_resource)
        self._process = subprocess.Popen(
            # bpftrace dies with us in any case. Ctrl-C must not reach bpftrace, because we still read the
            # maps.
            ["setpriv", "--pdeathsig", "KILL", tool, "-k", "-f", "json", "-e", text],
            process_group=0,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=os.environ | {"BPFTRACE_MAX_MAP_KEYS": room, "BPFTRACE_MAP_KEYS_MAX": room},
        )
        self._stats = [StatReader(leaf.device) for leaf in self.leaves]
        self._counted = [SettledReadings(stat.read_with_ticks) for stat in self._stats]
        try:
            while not self._frames.attached:
                self._next_line(time.monotonic() + PATIENCE_S)
            # bpftrace answers a signal once everything is attached.
            self._request_maps()
            self._attached = True
            self._programs = find_held_programs(Path("/proc") / str(self._process.pid), text.count(PROBE))
        except BaseException:
            self.close()
            raise
        if self._programs is None:
            self.lacks.append(MISSES)

    def read(self) -> list[Reading]:
        """Return one reading per leaf, all at the same moment, between two readings of the kernel's
        statistics."""
        before = [stat.read_stats() for stat in self._stats]
        begin = time.monotonic_ns()
        maps = self._request_maps()
        samples = decode_maps(maps, len(self.leaves), begin, time.monotonic_ns(), self._frames.map_full)
        return [
            counted.settle_reading(Reading(sample, then, stat.read_with_ticks(), stat.reason))
            for sample, then, stat, counted in zip(samples, before, self._stats, self._counted, strict=True)
        ]

    def read_settled(self, patience_s: float = 0.2) -> list[Reading]:
        """Return a reading without concurrent completions if one succeeds soon, else the last reading."""
        return read_until_settled(self.read, patience_s)

    def read_misses(self) -> int | None:
        """Return the skipped runs of the programs since attach, or None if not reported."""
        return self._programs.count_skipped() if self._programs else None

    def list_programs(self) -> list[tuple[str, int, int, int, int]]:
        return []

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        if self._process.stdout:
            self._process.stdout.close()
        self._errors.close()
        for stat in self._stats:
            stat.close()

    def _request_maps(self) -> Maps:
        """Request and return all maps."""
        self._process.send_signal(signal.SIGUSR1)
        deadline = time.monotonic() + PATIENCE_S
        while True:
            maps = self._frames.parse_line(self._next_line(deadline))
            if maps is not None:
                return maps

    def _next_line(self, deadline: float) -> str:
        """Return the next line. Until bpftrace is attached, the line also goes to the frames."""
        assert self._process.stdout
        descriptor = self._process.stdout.fileno()
        while b"\n" not in self._pending:
            ready, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise OpwatchError(f"bpftrace printed nothing for {PATIENCE_S:.0f} s")
            data = os.read(descriptor, 1 << 16)
            if not data:
                kind = OpwatchError if self._attached else Unsupported
                raise kind(f"bpftrace exited: {self._read_complaint()}")
            self._pending += data
        line, _, self._pending = self._pending.partition(b"\n")
        text = decode_text(line)
        if not self._frames.attached:
            self._frames.parse_line(text)
        return text

    def _read_complaint(self) -> str:
        self._process.wait()
        self._errors.seek(0)
        words = self._errors.read().decode(errors="replace").strip()
        return words[-2000:] or f"status {self._process.returncode}, without a message"
