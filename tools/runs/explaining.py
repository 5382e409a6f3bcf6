"""What made a recording's requests slow, for the commands that answer it."""

from __future__ import annotations

import argparse
from contextlib import closing
from pathlib import Path

from opwatch.counters.catalogue.families import load_standard_catalogue
from opwatch.errors import NotEnoughData, OpwatchError
from opwatch.recording.reading.reader import RecordedRun
from opwatch.recording.ring.incidents import ANSWER_SUFFIX
from opwatch.safefile import safe_write
from opwatch.sinks.terminal import print_message
from opwatch.sinks.why import format_answer
from opwatch.times import format_duration
from opwatch.tools.runs.replay import Replay, open_run
from opwatch.why.answer import answer_why
from opwatch.why.minutes import MinuteChoice, choose_minutes
from opwatch.why.witnessed import WitnessedRun, gather_witnesses

# Of a longer recording, some minutes are read, so that the answer takes seconds.
_MAX_SAMPLES = 15_000
_MINUTE_NS = 60 * 10**9
# A longer interval, in recorded ones, is a gap between the minutes that are read.
_GAP_INTERVALS = 5
# More polls of drives add little.
_MAX_LOOKS = 2000


def examine_recording(run: RecordedRun, args: argparse.Namespace) -> WitnessedRun:
    """Return what a recording witnessed in the part that `args` select."""
    if imported := run.header.get("imported"):
        raise NotEnoughData(
            f"{run.name} is imported from {imported}, which has no intervals with latency histograms: record "
            "with opwatch record --queue --by cgroup"
        )
    if run.damage:
        # Its table of minutes may be incomplete.
        _choose_step(run, args)
    replay = Replay(run, args)
    choice = None if run.damage or run.sample_count <= _MAX_SAMPLES else _choose_minutes(run, replay)
    if choice is None:
        look_every_ns = run.sample_count * replay.step_ns // _MAX_LOOKS if args.interval else 0
        return gather_witnesses(replay.iter_entries(), look_every_ns)
    gap_ns = _GAP_INTERVALS * replay.step_ns
    witnessed = gather_witnesses(replay.iter_entries(choice.places), longest_ns=gap_ns)
    witnessed.parts = (
        f"{run.name} is long: {len(choice.places)} of {choice.minutes} minutes were examined, those with an "
        f"unusual mean latency, rate or error count ({choice.standing_out}, over all disks) and usual ones; "
        "shares are of these. --from and --to examine all of a part"
    )
    return witnessed


def _choose_minutes(run: RecordedRun, replay: Replay) -> MinuteChoice | None:
    """Return the minutes to read, or None to read all of them."""
    begin_ns, end_ns = replay.find_bounds()
    starts, disks = run.read_minute_starts(), run.list_disks()
    most = max(_MAX_SAMPLES * replay.step_ns // _MINUTE_NS, len(disks))
    choice = choose_minutes(starts, disks, most, begin_ns or 0, end_ns)
    return choice if choice.minutes * len(disks) > most else None


def _choose_step(run: RecordedRun, args: argparse.Namespace) -> None:
    """Choose longer intervals for a long damaged recording, unless a part of it was requested."""
    together = -(-run.sample_count // _MAX_SAMPLES)
    if together > 1 and args.begin is None and args.end is None:
        recorded = run.header.get("interval_ns")
        every_s = (recorded if isinstance(recorded, int) else 10**9) / 1e9
        args.interval = together * every_s
        print_message(
            f"{run.name} is long and damaged: it is examined in intervals of "
            f"{format_duration(args.interval)}; --from and --to examine a part in its own"
        )


def write_answer(path: Path) -> Path:
    """Write the answer for a recording, or the reason why there is none, beside it; return the file."""
    target = path.with_name(path.name + ANSWER_SUFFIX)
    whole = argparse.Namespace(interval=None, begin=None, end=None, at=None, speed=None, step=False)
    try:
        with closing(open_run(path)) as run:
            answer = answer_why(examine_recording(run, whole), load_standard_catalogue)
            lines = [*answer.not_examined, *answer.notes, *format_answer(answer, run.to_wall_time)]
    except OpwatchError as error:
        lines = [f"no answer: {error}"]
    try:
        safe_write(target, "".join(f"{line}\n" for line in lines).encode("utf-8", "replace"))
    except OSError as error:
        raise OpwatchError(f"cannot write {target}: {error.strerror}") from error
    return target
