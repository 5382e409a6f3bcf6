"""Recordings with a hostile structure, each read by a command in a separate process; `make fuzz-recordings`.

    python -m tests.fuzz.hostile [INPUTS [SEED [ONLY]]]

Each input must be shown or end with a message, within MOST_MIB and MOST_CPU_S. Failing inputs are kept in
build/hostile with their command, and the exit status is 1.
"""

from __future__ import annotations

import collections
import gc
import gzip
import os
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

from opwatch.tools import cli
from tests.fuzz import recordings
from tests.unit.support.recordings import generate_short_run, record_run

from .bombs import Bombs
from .pages import LogWriter, PageChanger, make_log_path
from .running import MOST_CPU_S, MOST_MIB, Cost, make_commands, run_child, run_children, silence_output

_KEPT = Path("build/hostile")
_MAX_KEPT = 200
# Shares of the kinds. Expensive kinds are rare.
_SHARES = {"page": 0.577, "log": 0.1, "typed": 0.32, "bomb": 0.003}
# Number of inputs that share a process, except bombs.
_TOGETHER = 50


class Inputs:
    """Sequence of recordings from a seed. Each recording depends only on the seed and its number."""

    def __init__(self, seed: int, folder: Path, only: str | None = None) -> None:
        self.path, self.good, self._folder = folder / "it.opw", folder / "good.opw", folder
        self._seed, self._only, self._chance = seed, only, random.Random()
        good = [gzip.decompress(name.read_bytes()) for name in sorted(recordings.GOOD.glob("*.opw.gz"))]
        record_run(self.good, generate_short_run())
        small = self.good.read_bytes()
        self._good = [*good, small]
        self._pages, self._logs = PageChanger(self._chance), LogWriter(self._chance)
        self._typed = recordings.RecordingFuzzer(seed, self._chance)
        self._bombs = Bombs(self._chance, small)

    def choose_kind(self, number: int) -> str:
        """Return the kind of a recording, and seed the generator for its number."""
        self._chance.seed(f"{self._seed} {number}")
        drawn = self._chance.choices([*_SHARES], [*_SHARES.values()])[0]
        return (self._only or drawn).partition(" ")[0]

    def write_recording(self, number: int) -> tuple[str, list[str]]:
        """Write a recording, and return a description and the command that reads the recording."""
        kind = self.choose_kind(number)
        name = (self._only or "").partition(" ")[2]
        make_log_path(self.path).unlink(missing_ok=True)
        if kind == "page":
            name = name or self._chance.choice([*self._pages.changes])
            raw = self._pages.change_pages(self._chance.choice(self._good), name)
        elif kind == "typed":
            name = name or self._chance.choice([*self._typed.targets])
            raw = self._typed.targets[name]()
        elif kind == "bomb":
            name = name or self._chance.choice([*self._bombs.changes])
            raw = self._bombs.make_recording(name)
        else:
            raw = self._chance.choice(self._good)
        self.path.write_bytes(raw)
        if kind == "log":
            self._logs.write_log(self.path)
        if kind != "bomb" and self._chance.random() < 0.05:
            size = self._chance.choice((self._chance.randrange(len(raw)), len(raw) * 3, 5 << 30))
            os.truncate(self.path, size)
        commands = make_commands(self.path, self.good, self._folder)
        return f"{kind} {name}".strip(), self._chance.choice(commands)


class Tally:
    """Costs of a run's inputs, by kind."""

    def __init__(self) -> None:
        self.broken = self.count = 0
        self._kinds: collections.Counter[str] = collections.Counter()
        self._statuses: collections.Counter[int] = collections.Counter()
        self._most_mib: collections.Counter[str] = collections.Counter()
        self._most_s: dict[str, float] = {}

    def add_run(self, kind: str, cost: Cost) -> None:
        self.count += 1
        self._kinds[kind] += 1
        self._statuses[cost.status] += 1
        self._most_mib[kind] = max(self._most_mib[kind], cost.mib)
        self._most_s[kind] = max(self._most_s.get(kind, 0.0), cost.cpu_s)

    def format_progress(self) -> str:
        """Return the progress of the run."""
        mib, cpu_s = max(self._most_mib.values()), max(self._most_s.values())
        return (
            f"{self.count} recordings: {self.broken} broke a bound; at most {mib} MiB (limit {MOST_MIB}) and "
            f"{cpu_s:.2f} s (limit {MOST_CPU_S:g})"
        )

    def format_costs(self) -> list[str]:
        """Return the maximum cost of each kind."""
        rows = [
            f"{count:>8} {kind:<24} at most {self._most_mib[kind]} MiB, {self._most_s[kind]:.2f} s"
            for kind, count in sorted(self._kinds.items())
        ]
        statuses = ", ".join(f"{status}: {count}" for status, count in sorted(self._statuses.items()))
        return [*rows, f"exit statuses: {statuses}"]


def main() -> int:
    words = sys.argv[1:4]
    count = int(words[0]) if words else 1000
    seed = int(words[1]) if len(words) > 1 else time.time_ns() % (1 << 32)
    # In memory if possible, because each input is a file.
    place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=place, prefix="opwatch-hostile-") as name:
        os.environ["TMPDIR"] = tempfile.tempdir = name
        return _run_inputs(Inputs(seed, Path(name), words[2] if len(words) > 2 else None), count)


def _run_inputs(inputs: Inputs, count: int) -> int:
    with silence_output():
        # Import the commands' modules before a child starts.
        for argv in make_commands(inputs.good, inputs.good, inputs.good.parent):
            cli.main(argv)
    gc.collect()
    gc.freeze()
    tally, begin, shown = Tally(), time.monotonic(), 0
    waiting: list[int] = []
    for number in range(1, count + 1):
        waiting.append(number)
        # A bomb gets a separate child, and its construction is excluded from the cost.
        is_bomb = inputs.choose_kind(number) == "bomb"
        if is_bomb:
            waiting.pop()
            _run_alone(inputs, number, tally)
        if len(waiting) == _TOGETHER or number == count:
            _run_together(inputs, waiting, tally)
            waiting = []
        if tally.count >= shown + 5000 or number == count:
            shown = tally.count
            print(f"{time.monotonic() - begin:.0f} s, {tally.format_progress()}", flush=True)
    print(*tally.format_costs(), sep="\n")
    return 1 if tally.broken else 0


def _run_alone(inputs: Inputs, number: int, tally: Tally) -> None:
    """Run one input in a separate child."""
    kind, argv = inputs.write_recording(number)
    cost = run_child(argv)
    tally.add_run(kind, cost)
    if cost.problem:
        tally.broken += 1
        line = cost.words.strip().splitlines()[-1:] or [""]
        print(f"input {number}, {kind}, {' '.join(argv[:2])}: {cost.problem}: {line[0][:150]}", flush=True)
        _keep_input(inputs.path, str(number), kind, argv, cost)


def _run_together(inputs: Inputs, numbers: list[int], tally: Tally) -> None:
    """Run several inputs in one child. If any fails, each is run separately."""
    costs = run_children(lambda: (inputs.write_recording(number)[1] for number in numbers))
    if len(costs) != len(numbers) or any(cost.problem for cost in costs):
        for number in numbers:
            _run_alone(inputs, number, tally)
        return
    for number, cost in zip(numbers, costs, strict=True):
        tally.add_run(inputs.choose_kind(number), cost)


def _keep_input(path: Path, name: str, kind: str, argv: list[str], cost: Cost) -> None:
    """Keep a failing input for reproduction."""
    _KEPT.mkdir(parents=True, exist_ok=True)
    if len(list(_KEPT.glob("*.txt"))) >= _MAX_KEPT or path.stat().st_blocks * 512 > 64 << 20:
        return
    for file, suffix in ((path, ".opw"), (make_log_path(path), ".opw-wal")):
        if file.exists() and file.stat().st_size < 64 << 20:
            shutil.copy(file, _KEPT / (name + suffix))
    (_KEPT / f"{name}.txt").write_text(f"{kind}\n{argv}\n{cost.problem}\n{cost.words[-8000:]}")


if __name__ == "__main__":
    sys.exit(main())
