"""Block tracer compiled by bcc, for kernels with headers but without BTF."""

from __future__ import annotations

import ctypes
import importlib
import mmap
import os
import struct
import sys
import tempfile
import time
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from operator import add
from pathlib import Path
from typing import Any

from opwatch.collectors.block.bcc_source import build_source, cold_hists, make_constants, queue_hists
from opwatch.collectors.block.blk import make_plan
from opwatch.collectors.block.diskstats import StatReader
from opwatch.collectors.block.in_flight import MODULUS, TIME_SUMS, count_completed, measure_in_flight
from opwatch.errors import OpwatchError, ProbeRejected, Unsupported
from opwatch.host import privilege
from opwatch.host.capabilities import list_missing
from opwatch.host.device import Leaf
from opwatch.trace import abi
from opwatch.trace.abi import HOT_OPS, LATENCY, OPS, SIZE, STATUSES, OpSample
from opwatch.trace.tracing import SettledReadings, read_until_settled
from opwatch.trace.trust import Reading
from opwatch.trace.unavailable import ADMISSION, THROTTLE

# Path of Debian's python3-bpfcc. A virtual environment does not search it.
SYSTEM_PACKAGES = "/usr/lib/python3/dist-packages"
RELEASE = os.uname().release
INSTALL = f"apt-get install python3-bpfcc linux-headers-{RELEASE}"
# Words of struct ow_counts: the fields of OpSample between `in_flight_ns` and the histograms.
_FIRST, _LAST = OpSample._fields.index("issued"), OpSample._fields.index("latency")
_COUNTS = _LAST - _FIRST
_MAX_READS = 4
# Words of struct ow_cell (padded to 64-byte lines), ow_row and ow_hist.
_CELL = -(-_COUNTS // 8) * 8
_ROW = len(OPS) * _CELL
_HIST = LATENCY.slots + SIZE.slots
_NO_WAITS = tuple(f"{name}: the bcc backend does not trace bios" for name in (THROTTLE, ADMISSION))
_MAXIMUM_NAMES = ("max_ns", "queue_max_ns", "behind_max_ns", "throttle_max_ns", "admission_max_ns")
_MAXIMA = [OpSample._fields.index(name) - _FIRST for name in _MAXIMUM_NAMES]
_MARKER = OpSample._fields.index("next_sector") - _FIRST
_TIME_SUMS = [OpSample._fields.index(name) - _FIRST for name in TIME_SUMS]


def import_bcc() -> Any:  # noqa: ANN401 - an untyped module
    """Import bcc, from the system packages if necessary."""
    try:
        return importlib.import_module("bcc")
    except ImportError:
        sys.path.append(SYSTEM_PACKAGES)
    try:
        return importlib.import_module("bcc")
    except ImportError as error:
        raise Unsupported(f"bcc is not installed ({error}). Try: {INSTALL}") from error
    finally:
        sys.path.remove(SYSTEM_PACKAGES)


def sum_rows(rows: Sequence[Sequence[int]]) -> list[int]:
    """Merge struct ow_counts of all CPUs. Maxima are compared; the marker is meaningless in a sum."""
    total = [sum(column) % MODULUS for column in zip(*rows, strict=True)]
    for place in _MAXIMA:
        total[place] = max(row[place] for row in rows)
    total[_MARKER] = 0
    return total


def sum_lanes(lanes: Sequence[Sequence[int]]) -> list[int]:
    total = list(lanes[0])
    for lane in lanes[1:]:
        total = list(map(add, total, lane))
    return total


@contextmanager
def _capture_compiler_output() -> Iterator[list[str]]:
    """Collect the stderr output of clang and libbpf, which have no other error channel."""
    said: list[str] = []
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        try:
            yield said
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            file.seek(0)
            said.append(file.read().decode(errors="replace"))


class _MappedTable:
    """Words of a memory-mapped array."""

    def __init__(self, descriptor: int, entries: int, words: int) -> None:
        length = -(-entries * words * 8 // mmap.PAGESIZE) * mmap.PAGESIZE
        self._memory = mmap.mmap(descriptor, length, mmap.MAP_SHARED, mmap.PROT_READ)
        self._words = memoryview(self._memory).cast("Q")
        self._size = words

    def read_words(self, index: int, first: int = 0, words: int | None = None) -> list[int]:
        """Return the words of an entry, or some of them."""
        begin = index * self._size + first
        return self._words[begin : begin + (self._size if words is None else words)].tolist()

    def close(self) -> None:
        self._words.release()
        self._memory.close()


class BccTracer:
    """Tracer with bcc's programs, attached from construction until close(). Reads absolute samples, one per
    leaf."""

    backend = "bcc"
    hooks = "raw_tp"
    notes: Sequence[str] = ()

    def __init__(self, leaves: Sequence[Leaf], *, queue_time: bool = False) -> None:
        for leaf in leaves:
            if not leaf.device.disk.is_request_based:
                raise Unsupported(
                    f"{leaf.device.name}: the bcc backend traces requests, but this driver is bio-based"
                )
        lacking = list_missing()
        if lacking:
            raise privilege.make_permission_error("bcc", f"{' and '.join(lacking)}, or root")
        self.leaves = list(leaves)
        self._queue_time = queue_time
        self.lacks = _NO_WAITS if queue_time else ()
        # The kernel numbers possible CPUs from 0, and rows are indexed by that number.
        self._cpus = _count_possible_cpus(Path("/sys/devices/system/cpu/possible").read_text())
        self._plan = make_plan(self.leaves, may_share=False)
        own = queue_time and _has_tracepoint("block_io_start")
        known = make_constants(self._plan, self._cpus, queue_time=queue_time, own_queue_stamp=own)
        self._compile_programs(build_source(known))
        try:
            self._attach_programs(own)
            self._map_tables(known)
        except BaseException:
            self._bpf.cleanup()
            raise
        self._stats = [StatReader(leaf.device) for leaf in self.leaves]
        self._counted = [SettledReadings(stat.read_with_ticks) for stat in self._stats]

    def _compile_programs(self, text: str) -> None:
        bcc = import_bcc()
        self._lib = importlib.import_module("bcc.libbcc").lib
        self._raw_tracepoint = bcc.BPF.RAW_TRACEPOINT
        if not (
            Path(f"/lib/modules/{RELEASE}/build").exists() or Path("/sys/kernel/kheaders.tar.xz").exists()
        ):
            raise Unsupported(f"bcc needs this kernel's headers. Try: {INSTALL}")
        with _capture_compiler_output() as said:
            try:
                self._bpf = bcc.BPF(text=text.encode(), cflags=["-w"])
                return
            except Exception as error:
                failure = error
        refused = Unsupported(f"bcc cannot compile for this kernel ({failure})")
        refused.log = _extract_errors(said[0])
        raise refused from failure

    def _attach_programs(self, own_queue_stamp: bool) -> None:
        for index, target in enumerate(self._plan.targets):
            key, leaf = ctypes.c_uint32(index), ctypes.create_string_buffer(target.pack(index))
            table = self._find_table("target_table")
            if self._lib.bpf_update_elem(table, ctypes.byref(key), leaf, 0):
                raise OpwatchError(f"bcc: cannot write target {index}: {os.strerror(ctypes.get_errno())}")
        self._programs: dict[str, int] = {}
        hooks = ["complete", "issue", "requeue"] + (["queue"] if own_queue_stamp else [])
        for hook in hooks:
            name = f"owb_{hook}"
            event = "block_io_start" if hook == "queue" else f"block_rq_{hook}"
            with _capture_compiler_output() as said:
                try:
                    function = self._bpf.load_func(name.encode(), self._raw_tracepoint)
                    self._bpf.attach_raw_tracepoint(tp=event.encode(), fn_name=name.encode())
                    self._programs[name] = function.fd
                    continue
                except Exception as error:
                    failure = error
            raise ProbeRejected(f"bcc: {event}: {failure}", said[0]) from failure

    def _map_tables(self, known: dict[str, str | int]) -> None:
        def map_table(name: str, entries: str, words: int) -> _MappedTable:
            return _MappedTable(self._find_table(name), int(known[entries]), words)

        self._rows = map_table("rows", "OWB_ROWS", _ROW + HOT_OPS * _HIST)
        self._cold = map_table("cold_hists", "OWB_COLD_HISTS", _HIST)
        self._queue = map_table("queue_latency", "OWB_QUEUE_HISTS", LATENCY.slots)
        self._statuses = map_table("statuses", "OWB_STATUSES", STATUSES)

    def _find_table(self, name: str) -> int:
        descriptor: int = self._lib.bpf_table_fd(self._bpf.module, name.encode())
        return descriptor

    def read(self) -> list[Reading]:
        """Return one reading per leaf, each between two readings of the kernel's statistics."""
        readings = []
        for index, (stat, counted) in enumerate(zip(self._stats, self._counted, strict=True)):
            before = stat.read_stats()
            sample = abi.decode_sample(self._read_target(index))
            readings.append(
                counted.settle_reading(Reading(sample, before, stat.read_with_ticks(), stat.reason))
            )
        return readings

    def read_settled(self, patience_s: float = 0.2) -> list[Reading]:
        """Return a reading without concurrent completions if one succeeds soon, else the last reading."""
        return read_until_settled(self.read, patience_s)

    def _read_target(self, target: int) -> bytes:
        """Return one struct ow_sample, summed over CPUs."""
        begin = time.monotonic_ns()
        words = array("Q")
        for op in range(len(OPS)):
            words.extend(self._read_stable_op(target, op))
        return struct.pack("=QQ", begin, time.monotonic_ns()) + words.tobytes()

    def _read_stable_op(self, target: int, op: int) -> list[int]:
        """Return the words of one operation. Reads again after concurrent completions."""
        for _ in range(_MAX_READS):
            words = self._read_op(target, op)
            if words[0] == sum(words[_LAST : _LAST + LATENCY.slots]):
                break
        return words

    def _read_op(self, target: int, op: int) -> list[int]:
        """Return the words of one operation.

        Histograms are read first: the programs write counters before histograms, so a maximum is never too
        low.
        """
        rows = range(target * self._cpus, (target + 1) * self._cpus)
        if op < HOT_OPS:
            hists = [self._rows.read_words(row, _ROW + op * _HIST, _HIST) for row in rows]
        else:
            hists = [self._cold.read_words(index) for index in cold_hists(target, op, self._cpus)]
        total = sum_lanes(hists)
        latency, sizes = total[: LATENCY.slots], total[LATENCY.slots :]
        queue = [0] * LATENCY.slots
        if self._queue_time:
            queue = sum_lanes([self._queue.read_words(i) for i in queue_hists(target, op, self._cpus)])
        counts = sum_rows([self._rows.read_words(row, op * _CELL, _COUNTS) for row in rows])
        by_name = dict(zip(OpSample._fields[_FIRST:_LAST], counts, strict=True))
        flying = measure_in_flight(by_name, time.monotonic_ns())
        for place in _TIME_SUMS:
            counts[place] = 0
        statuses = self._statuses.read_words(target * len(OPS) + op)
        return [count_completed(by_name), *flying, *counts, *latency, *queue, *sizes, *statuses]

    def read_misses(self) -> int | None:
        """Return the skipped runs of our programs since attach, for all disks."""
        return sum(program[4] for program in self.list_programs())

    def list_programs(self) -> list[tuple[str, int, int, int, int]]:
        """Return (name, id, runs, run_ns, recursion misses) of each attached program."""
        return [(name, *_read_program_info(descriptor)) for name, descriptor in self._programs.items()]

    def close(self) -> None:
        for table in (self._rows, self._cold, self._queue, self._statuses):
            table.close()
        self._bpf.cleanup()
        for stat in self._stats:
            stat.close()


def _read_program_info(descriptor: int) -> tuple[int, int, int, int]:
    """Return id, runs, run_ns and recursion_misses from struct bpf_prog_info, whose layout only grows."""
    libbpf = ctypes.CDLL("libbpf.so.1", use_errno=True)
    info, length = ctypes.create_string_buffer(224), ctypes.c_uint32(224)
    if libbpf.bpf_obj_get_info_by_fd(descriptor, info, ctypes.byref(length)):
        raise OpwatchError(f"bcc: no information about a program: {os.strerror(ctypes.get_errno())}")
    number = struct.unpack_from("=I", info, 4)[0]
    run_ns, runs, misses = struct.unpack_from("=QQQ", info, 192)
    return number, runs, run_ns, misses


def _count_possible_cpus(text: str) -> int:
    """Return the highest number in a list such as 0-3,8, plus one."""
    return max(int(number) for number in text.replace("-", ",").split(",")) + 1


def _has_tracepoint(name: str) -> bool:
    wanted = f" __tracepoint_{name}\n"
    with Path("/proc/kallsyms").open() as symbols:
        return any(line.endswith(wanted) for line in symbols)


def _extract_errors(said: str) -> str:
    """Return the compiler's error lines, or else its last lines."""
    complaints = [line for line in said.splitlines() if "error:" in line or "fatal" in line]
    return "\n".join(complaints[:20] or said.strip().splitlines()[-20:])
