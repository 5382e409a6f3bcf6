"""`opwatch trim record`: record writes and discards on a disk, for an exact `trim stale`."""

from __future__ import annotations

import argparse
import contextlib
import math
import sys
import time
from pathlib import Path

from opwatch.collectors.block.contexts import ContextProbe
from opwatch.collectors.history.recorder import TICK_S, HistoryRecorder, identify_drive
from opwatch.errors import OpwatchError
from opwatch.host.device import BlockDevice, Devices
from opwatch.host.privilege import require_root
from opwatch.recording.reading.history import read_history
from opwatch.samples.end import End
from opwatch.sinks.terminal import print_message
from opwatch.sinks.trim_history import HistoryState, write_state
from opwatch.tools.arguments import Once, parse_file_name, time_between
from opwatch.tools.runs.waiting import Waiter
from opwatch.trim.history.history import NO_ROOM
from opwatch.trim.history.sectormap import SectorState
from opwatch.trim.history.validity import is_other_drive, make_history_name

# Longest wait at the end for the context probe.
_PROBE_S = 1.0
_FOLDER = Path("/var/lib/opwatch")


def _choose_path(devices: Devices, device: BlockDevice) -> Path:
    """Return the default path of a history, in a folder that opwatch creates.

    An older history named after the disk is continued.
    """
    try:
        _FOLDER.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise OpwatchError(f"cannot create {_FOLDER}: {error.strerror}; name another file with -o") from error
    drive = identify_drive(devices, device)
    lasting, former = _FOLDER / make_history_name(drive), _FOLDER / f"{device.name.replace('/', '!')}.history"
    if not lasting.exists() and former.is_file():
        with contextlib.suppress(OpwatchError):
            if not is_other_drive(read_history(former)[0].drive, drive):
                return former
    return lasting


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "opwatch trim record --dev D [-o FILE] [--for T] [-q] [--json] [-- CMD...]"
    parser.add_argument("--dev", action=Once, required=True, metavar="D", help="the disk (not a partition)")
    parser.add_argument(
        "-o",
        "--output",
        type=parse_file_name,
        metavar="FILE",
        help=f"the history ({_FOLDER}/WWID.history)",
    )
    parser.add_argument(
        "--for",
        dest="seconds",
        type=time_between(0.01, 3650 * 86400),
        default=math.inf,
        metavar="T",
        help="record for this time",
    )
    parser.add_argument(
        "--json", action="store_true", help='print one JSON document at the end, "schema":"opwatch/1"'
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="while recording, print only losses")


def _record_until_end(recorder: HistoryRecorder, waiter: Waiter, seconds: float) -> End:
    """Record until a signal, the end of the command, or the time limit."""
    end, until = End.TICK, time.monotonic() + seconds
    forgotten = dict(recorder.history.forgotten)
    while end is End.TICK and time.monotonic() < until:
        end = waiter.wait_until(min(until, time.monotonic() + TICK_S))
        if not recorder.process_changes():
            return End.VANISHED
        recorder.save_changes()
        now = dict(recorder.history.forgotten)
        for why in now if now != forgotten else ():
            # A full map would otherwise print this every second.
            if now[why] != forgotten.get(why) and not (why == NO_ROOM and why in forgotten):
                print_message(f"{recorder.device.name}: a part is unknown now: {why}")
        forgotten = now
    return end


def _stop_recording(
    recorder: HistoryRecorder, waiter: Waiter, command: list[str] | None, error: OpwatchError
) -> int:
    """Stop recording a history that cannot be followed any further. The command continues."""
    if not command:
        raise error
    with contextlib.suppress(OpwatchError):
        recorder.close()
    print_message(f"{error}; the recording has ended, {command[0]} goes on")
    waiter.finish_command(stop=False)
    return OpwatchError.exit_status


def _find_blind_note(recorder: HistoryRecorder, contexts: ContextProbe) -> str | None:
    """Return the note about blind contexts. Wait for the probe only if data was discarded from the
    history."""
    return contexts.describe_effect(_PROBE_S if recorder.history.forgotten else 0.0)


def _build_state(recorder: HistoryRecorder, path: Path, seconds: float, blind: str | None) -> HistoryState:
    look, map_ = recorder.make_checkpoint(), recorder.history.map
    return HistoryState(
        device=recorder.device.name,
        file=str(path),
        seconds=seconds,
        kept=recorder.kept,
        size_bytes=recorder.device.size_bytes,
        written_bytes=map_.collect_extents(SectorState.WRITTEN).total_bytes,
        trimmed_bytes=map_.collect_extents(SectorState.TRIMMED).total_bytes,
        unknown_bytes=map_.collect_extents(SectorState.UNKNOWN).total_bytes,
        extents=sum(1 for _ in map_.iter_runs()),
        look=look,
        missed_runs=recorder.count_missed_runs(),
        blind=blind,
    )


def run(args: argparse.Namespace) -> int:
    require_root(
        "opwatch trim record",
        "it traces (CAP_BPF, CAP_PERFMON)",
        "trim record ...",
    )
    devices = Devices()
    device = devices.resolve(args.dev)
    path = args.output or _choose_path(devices, device)
    with Waiter() as waiter:
        begun, contexts = time.monotonic(), ContextProbe()
        recorder = HistoryRecorder(devices, device, path, print_message)
        try:
            if not args.quiet:
                print_message(f"{device.name}: {recorder.kept}")
                print_message(f"recording into {path}" + ("" if args.command else "; Ctrl-C ends it"))
            contexts.start()
            waiter.start_command(args.command, quiet_stdout=args.json)
            try:
                end = _record_until_end(recorder, waiter, args.seconds)
            except OpwatchError as error:
                return _stop_recording(recorder, waiter, args.command, error)
            status = waiter.finish_command(stop=end is not End.COMMAND)
            if end is not End.VANISHED:
                recorder.process_changes()
            result = _build_state(
                recorder, path, time.monotonic() - begun, _find_blind_note(recorder, contexts)
            )
        finally:
            recorder.close()
    if end is End.VANISHED:
        raise OpwatchError(f"{device.name} is gone; {path} has everything up to a second before")
    write_state(result, sys.stdout, as_json=args.json)
    return status if end is End.COMMAND else 0
