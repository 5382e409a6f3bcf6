"""`python -m tests.bench.history_bench`: the cost of a recording. Needs root.

Measures the kernel's time per write by the kernel's own clock; the user side's time per change, for writes to
existing data and for writes that fragment the map; saving and loading a map with many pieces; and a disk with
more pieces than a map has room for.
"""

from __future__ import annotations

import random
import resource
import sys
import tempfile
import time
from pathlib import Path

from opwatch.collectors.history.changes import ChangeTracer
from opwatch.host.device import Devices
from opwatch.host.scratch import ScratchDisk
from opwatch.recording.reading.history import read_history
from opwatch.recording.writing.history import HistoryFile
from opwatch.tools.commands.overhead import enable_program_statistics
from opwatch.trim.history.changes import RECORD, ChangeKind, decode_changes
from opwatch.trim.history.history import History
from opwatch.trim.history.saved import Checkpoint, HistoryDrive
from opwatch.trim.history.sectormap import SectorState
from tests.kernel.support.load import writes

from .figure import Figure, choose_exit_status, choose_size, format_table
from .figures import describe_machine

# A 1 TiB disk in blocks of 4 KiB, and the number of changes to apply.
SECTORS, BLOCK, CHANGES = 1 << 31, 8, choose_size(200_003, 2003)
DRIVE = HistoryDrive("a disk", "S1", None, SECTORS, 1, 0)
CHECKPOINT = Checkpoint(1, 2, "boot", 3, 4, 5, 6, 0, 0, 7)


def measure_kernel_cost(count: int = choose_size(20_011, 211)) -> Figure:
    with ScratchDisk(256 << 20) as disk, enable_program_statistics():
        tracer = ChangeTracer(Devices().resolve(disk.node))
        writes(disk.node, count, step=0)
        recorded = sum(
            1 for change in decode_changes(tracer.drain_changes()[0]) if change[4] == ChangeKind.WRITE
        )
        [program] = tracer.list_programs()
        tracer.close()
    text = f"ns, {recorded} of {program[2]} events recorded; includes the kernel's timing"
    return Figure("BPF time of a write", program[3] / program[2], 500, text)


def _make_changes(seed: int, blocks: int) -> bytes:
    rng = random.Random(seed)
    return b"".join(
        RECORD.pack(rng.randrange(blocks) * BLOCK, at, at + 1, BLOCK, ChangeKind.WRITE, 0, 0)
        for at in range(CHANGES)
    )


def _time_apply(history: History, raw: bytes) -> float:
    begin = time.process_time()
    history.apply_changes(raw)
    return 1e9 * (time.process_time() - begin) / CHANGES


def measure_user_cost() -> tuple[Figure, Figure]:
    history, raw = History(SECTORS), _make_changes(1, SECTORS // BLOCK)
    history.map.set_state(0, SECTORS, SectorState.WRITTEN)
    over = _time_apply(history, raw)
    history.map.set_state(0, SECTORS, SectorState.TRIMMED)
    cut = _time_apply(history, raw)
    runs = sum(1 for _ in history.map.iter_runs())
    return (
        Figure("user side, write to existing data", over, 4000, f"ns, {1e9 / over:.0f} per second"),
        Figure("user side, write that splits the map", cut, 12000, f"ns, up to {runs} pieces of 1 TiB"),
    )


def measure_file_cost() -> tuple[Figure, Figure]:
    history = History(SECTORS)
    history.map.set_state(0, SECTORS, SectorState.TRIMMED)
    history.apply_changes(_make_changes(2, SECTORS // BLOCK))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.history"
        begin = time.monotonic()
        _write_history(path, history)
        written = time.monotonic()
        read_history(path)
        read = time.monotonic()
        size = path.stat().st_size
    text = f"s, {history.map.pieces} pieces, {size >> 10} KiB"
    return (
        Figure("rewrite of the map", written - begin, 3, text),
        Figure("read of the map", read - written, 8, "s, same map"),
    )


def _write_history(path: Path, history: History) -> None:
    file = HistoryFile(path)
    file.replace_map(DRIVE, CHECKPOINT, history.map)
    file.close()


def measure_fragmented_cost(changes: int = choose_size(3_000_000, 60_000)) -> tuple[Figure, Figure, Figure]:
    """Measure a disk with more pieces than the map can hold: scattered 2 KiB writes to trimmed space."""
    history, rng = History(SECTORS), random.Random(3)
    history.map.set_state(0, SECTORS, SectorState.TRIMMED)
    longest, batch = 0.0, 60_000
    for _ in range(changes // batch):
        raw = b"".join(
            RECORD.pack(rng.randrange(SECTORS // BLOCK) * BLOCK, 1, 2, BLOCK // 2, ChangeKind.WRITE, 0, 0)
            for _ in range(batch)
        )
        begin = time.process_time()
        history.apply_changes(raw)
        longest = max(longest, time.process_time() - begin)
    with tempfile.TemporaryDirectory() as folder:
        begin = time.process_time()
        _write_history(Path(folder) / "x.history", history)
        rewritten = time.process_time() - begin
    text = f"s at most for {batch} changes, {history.map.pieces} pieces"
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return (
        Figure("full map", longest, 4, text),
        Figure("rewrite of the full map", rewritten, 6, "s of CPU time"),
        Figure("peak memory", peak, 400, "MiB"),
    )


def main() -> int:
    figures = [measure_kernel_cost(), *measure_user_cost(), *measure_file_cost(), *measure_fragmented_cost()]
    print(f"on {describe_machine()}")
    print("\n".join(format_table(figures)))
    return choose_exit_status(holds=all(figure.is_within_bound for figure in figures))


if __name__ == "__main__":
    sys.exit(main())
