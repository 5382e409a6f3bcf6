"""What made a recording's requests slow, for the commands that answer it."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Mapping
from contextlib import closing
from pathlib import Path
from typing import TypeVar

from opwatch.counters.catalogue.families import load_standard_catalogue
from opwatch.errors import NotEnoughData, OpwatchError, UsageError
from opwatch.recording.reading.reader import RecordedRun
from opwatch.recording.ring.incidents import ANSWER_SUFFIX
from opwatch.safefile import safe_write
from opwatch.sinks.terminal import print_message
from opwatch.sinks.why import format_answer
from opwatch.times import format_duration
from opwatch.tools.runs.replay import Replay, open_run
from opwatch.why.answer import answer_why
from opwatch.why.minutes import MinuteChoice, choose_minutes
from opwatch.why.witnessed import WitnessedRun, format_label, gather_witnesses

_Key = TypeVar("_Key", int, str)

# Of a longer recording, some minutes are read, so that the answer takes seconds.
_MAX_SAMPLES = 15_000
_MINUTE_NS = 60 * 10**9
# An interval that is longer by this is a gap between the minutes that are read, or by four recorded ones.
_GAP_NS = 30 * 10**9
# More polls of drives add little.
_MAX_LOOKS = 2000


def examine_recording(
    run: RecordedRun, args: argparse.Namespace, devices: Collection[str] = ()
) -> WitnessedRun:
    """Return what a recording witnessed in the part that `args` select, on these disks or on all."""
    if imported := run.header.get("imported"):
        raise NotEnoughData(
            f"{run.name} is imported from {imported}, which has no intervals with latency histograms: record "
            "with opwatch record --queue --by cgroup"
        )
    if run.damage:
        # Its table of minutes may be incomplete.
        _choose_step(run, args)
    replay = Replay(run, args)
    choice = None
    if not run.damage and run.sample_count > _MAX_SAMPLES:
        choice = _choose_minutes(run, replay, devices)
    if choice is None:
        look_every_ns = run.sample_count * replay.step_ns // _MAX_LOOKS if args.interval else 0
        witnessed = gather_witnesses(replay.iter_entries(), look_every_ns)
    else:
        gap_ns = replay.step_ns + min(4 * replay.step_ns, _GAP_NS)
        witnessed = gather_witnesses(replay.iter_entries(choice.places), longest_ns=gap_ns)
        _describe_choice(witnessed, choice, run)
    select_disks(witnessed, devices, run.name)
    return witnessed


def select_disks(witnessed: WitnessedRun, devices: Collection[str], name: str) -> None:
    """Keep only these disks of a run, with the other members of their arrays; all of them without a name."""
    known = {label: (disk.device, disk.origin) for label, disk in witnessed.disks.items()}
    chosen = _find_named(known, devices, name)
    witnessed.is_partial = witnessed.is_partial or len(chosen) < len(known)
    witnessed.disks = {label: disk for label, disk in witnessed.disks.items() if label in chosen}


def _find_named(known: Mapping[_Key, tuple[str, str]], devices: Collection[str], name: str) -> set[_Key]:
    """Return the keys of disks that are named, or of all. `known` has the device and the origin of each, and
    `name` is the recording's."""
    wanted = {device.removeprefix("/dev/") for device in devices}
    names = {one for pair in known.values() for one in pair}
    if missing := sorted(wanted - names):
        raise UsageError(f"{name} has no disk {', '.join(missing)}; it has {', '.join(sorted(names))}")
    origins = {origin for device, origin in known.values() if not wanted or wanted & {device, origin}}
    return {key for key, (_, origin) in known.items() if origin in origins}


def _choose_minutes(run: RecordedRun, replay: Replay, devices: Collection[str]) -> MinuteChoice | None:
    """Return the minutes to read, or None to read all of them of all disks."""
    begin_ns, end_ns = replay.find_bounds()
    starts, known = run.read_minute_starts(), run.list_disks()
    named = _find_named(
        {place: (disk.device, disk.origin) for place, disk in known.items()}, devices, run.name
    )
    disks = {place: disk for place, disk in known.items() if place in named}
    most = _MAX_SAMPLES * replay.step_ns // _MINUTE_NS
    choice = choose_minutes(starts, disks, most, begin_ns or 0, end_ns)
    return None if choice.minutes * len(known) <= most else choice


def _describe_choice(witnessed: WitnessedRun, choice: MinuteChoice, run: RecordedRun) -> None:
    """Add to a run which of its minutes and disks were read, and why."""
    witnessed.is_partial = True
    read = [place for places in choice.places.values() for place in places]
    labels = {place: format_label(disk) for place, disk in run.list_disks().items()}
    read_labels = {labels[place] for place in read}
    share = f"{100 * choice.left_out_share:.2g} %"
    reasons = {
        choice.quiet: "no minute has an unusual mean latency, rate or error count",
        choice.left_out: f"other disks have more excess time, and these have {share} of all",
    }
    for places, reason in reasons.items():
        for label in [labels[place] for place in places if labels[place] not in read_labels]:
            witnessed.not_read[label] = f"{reason}; opwatch why {run.name} --dev D examines one"
    count, disks = len(read), len(set(read))
    if count < choice.minutes * disks:
        witnessed.parts = (
            f"{run.name} is long: {count / disks:.0f} of {choice.minutes} minutes per disk were examined, "
            "those with an unusual mean latency, rate or error count "
            f"({choice.standing_out}, over all disks) and usual ones; shares are of these. --from and --to "
            "examine all of a part, --dev D more of a disk"
        )


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
