"""Make one run: a drive, a base load, a cause at random times, and a recording of it all."""

from __future__ import annotations

import contextlib
import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from opwatch.errors import OpwatchError
from tests.kernel.support.drives import Drive, create_drive, run, run_plain_fio
from tests.why.bench import (
    DRIVE,
    SIZE,
    Bench,
    Injection,
    change_files,
    make_base_load,
    run_beside,
    watch_counter,
)
from tests.why.causes import CAUSES, Cause
from tests.why.plan import LOADS, SHAPES, Window, plan_phases, plan_windows

_MOST_ADDED = 0.05
_START_S = 30


@dataclass(frozen=True)
class WhyRun:
    """A recording, and when its cause acted."""

    cause: str
    seed: int
    load: str
    seconds: float
    recording: Path
    device: str
    injections: tuple[Injection, ...]
    truth: dict[str, Any]  # the drive's truth.json at the end
    late_share: float  # of the answers, by more than a tenth of their time
    late_time_share: float  # the delay of late answers, as a share of the time that all answers should take

    @property
    def is_usable(self) -> bool:
        """False if the host was too slow for the drive, so that it is a cause of its own."""
        return self.late_time_share <= _MOST_ADDED


def require_cause(name: str) -> Cause:
    if name not in CAUSES:
        raise OpwatchError(f"unknown cause {name!r}; available: {', '.join(CAUSES)}")
    return CAUSES[name]


def name_run(cause: str, seed: int, load: str, shape: str | None = None) -> str:
    """Return the name of a run's files, without their suffixes."""
    return "-".join((cause, load, *([shape] if shape else []), str(seed)))


def make_run(
    cause: str, seed: int, load: str, folder: Path, seconds: float = 120, shape: str | None = None
) -> WhyRun:
    """Make a run of `seconds`, and write NAME.opw and NAME.json into `folder`. Needs root. `shape` is that of
    the base load, None for the usual one of the cause."""
    if shape is not None and shape not in SHAPES:
        raise OpwatchError(f"unknown shape {shape!r}; available: {', '.join(SHAPES)}")
    if load not in LOADS:
        raise OpwatchError(f"unknown load {load!r}; available: {', '.join(LOADS)}")
    what, source = require_cause(cause), random.Random(f"{cause}/{seed}/{load}")
    recording = folder / f"{name_run(cause, seed, load, shape)}.opw"
    faults, windows = what.faults(source), plan_windows(source, seconds) if what.act else ()
    phases = plan_phases(shape or what.shape, source, seconds)
    with create_drive(SIZE, what.op, config=DRIVE | what.config, no_data=not what.on_filesystem,
                      words=("timing",)) as drive:  # fmt: skip
        _fill(drive, what)
        drive.inject_faults(*faults)
        before = drive.read_truth()
        with _open_target(drive, what) as target:
            bench = Bench(drive, load, seed, target, shape or what.shape, phases)
            found = _record_run(bench, what, windows, recording, seconds, source)
        truth = drive.read_truth()
        injections = _choose_truth(what, found, truth)
        late = _divide_growth("answers_late", "answers_timed", before, truth)
        delay = _divide_growth("answers_late_ns", "answers_due_ns", before, truth)
        made = WhyRun(cause, seed, load, seconds, recording, drive.device, injections, truth, late, delay)
    recording.with_suffix(".json").write_text(json.dumps(asdict(made), default=str))
    return made


def _divide_growth(part: str, whole: str, before: dict[str, Any], after: dict[str, Any]) -> float:
    grown = after[whole] - before[whole]
    return (after[part] - before[part]) / grown if grown else 0.0


def load_run(path: Path) -> WhyRun:
    """Return a run from the NAME.json that make_run() wrote."""
    fields = json.loads(path.read_text())
    injections = tuple(Injection(**each) for each in fields["injections"])
    return WhyRun(**fields | {"injections": injections, "recording": path.with_suffix(".opw")})


def _fill(drive: Drive, cause: Cause) -> None:
    run_plain_fio(drive.device, "--rw=write", "--bs=1m", f"--size={SIZE}", "--iodepth=8")
    if cause.prepare:
        run_plain_fio(drive.device, *cause.prepare)


@contextlib.contextmanager
def _open_target(drive: Drive, cause: Cause) -> Iterator[str]:
    """Yield the path that the base load uses."""
    if not cause.on_filesystem:
        yield drive.device
        return
    folder = Path("/run") / f"opwatch-why-{drive.name}"
    run("mkfs.ext4", "-q", "-F", drive.device)
    folder.mkdir()
    try:
        run("mount", "-o", "commit=5", drive.device, str(folder))
        try:
            yield str(folder / "base")
        finally:
            run("umount", str(folder))
    finally:
        folder.rmdir()


def _record_run(
    bench: Bench, cause: Cause, windows: tuple[Window, ...], recording: Path, seconds: float,
    source: random.Random,
) -> list[Injection]:  # fmt: skip
    """Run everything, and return the windows as they were, or the times in which the counter grew."""
    grown: list[Injection] = []
    with contextlib.ExitStack() as stack:
        stack.enter_context(_record(bench.drive.device, recording, cause.poll_s))
        if cause.counter:
            stack.enter_context(watch_counter(bench.drive, *cause.counter, grown))
        base = make_base_load(bench, cause.base_load, cause.least_write_rate, cause.processes, cause.depth)
        stack.enter_context(run_beside(base))
        if cause.on_filesystem:
            stack.enter_context(change_files(Path(bench.target).parent))
        begin, begin_ns = time.monotonic(), time.monotonic_ns()
        acted = [_act(bench, cause, window, begin, source) for window in windows]
        _sleep_until(begin + seconds)
    if cause.is_constant:
        return [Injection("run", begin_ns, time.monotonic_ns())]
    return grown if cause.counter else acted


def _act(bench: Bench, cause: Cause, window: Window, begin: float, source: random.Random) -> Injection:
    assert cause.act
    _sleep_until(begin + window.begin_s)
    with cause.act(bench, source):
        begin_ns = time.monotonic_ns()
        _sleep_until(begin + window.end_s)
        end_ns = time.monotonic_ns()
    return Injection("window", begin_ns, end_ns)


def _sleep_until(end: float) -> None:
    time.sleep(max(0.0, end - time.monotonic()))


@contextlib.contextmanager
def _record(device: str, path: Path, poll_s: int) -> Iterator[None]:
    words = ["record", "-o", str(path), "--dev", device, "--queue", "--slow", "20ms", "--by", "cgroup"]
    argv = [sys.executable, "-m", "opwatch", *words, "--waf", f"{poll_s}s", "-q"]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        try:
            end = time.monotonic() + _START_S
            while not path.exists() and process.poll() is None and time.monotonic() < end:
                time.sleep(0.05)
            # The first sample is taken when the programs are attached.
            time.sleep(1)
            yield
        finally:
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=60)
    if not path.exists():
        raise OpwatchError(f"opwatch record wrote no recording of {device}: {said}")


def _choose_truth(cause: Cause, found: list[Injection], truth: dict[str, Any]) -> tuple[Injection, ...]:
    """Return the drive's own episodes if the cause has them, else what the run found."""
    if not cause.episodes:
        return tuple(found)
    now_ns = time.monotonic_ns()
    chosen = [each for each in truth["episodes"] if each["kind"] in cause.episodes]
    return tuple(Injection(each["kind"], each["begin_ns"], each["end_ns"] or now_ns) for each in chosen)
