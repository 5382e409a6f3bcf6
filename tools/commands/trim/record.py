"""`opwatch trim record`: record writes and discards on a disk, for an exact `trim stale`."""

from __future__ import annotations

import argparse
import contextlib
import math
import sys
import time
from pathlib import Path

from opwatch.collectors.block.contexts import ContextProbe
from opwatch.collectors.history.file import read_history
from opwatch.collectors.history.recorder import TICK_S, HistoryRecorder, identify
from opwatch.errors import OpwatchError
from opwatch.host.device import BlockDevice, Devices
from opwatch.host.privilege import require_root
from opwatch.samples.end import End
from opwatch.sinks.terminal import say
from opwatch.sinks.trim_history import HistoryState, write_state
from opwatch.tools.arguments import Once, file_name, time_between
from opwatch.tools.waiting import Waiter
from opwatch.trim.history.belonging import history_name, is_other
from opwatch.trim.history.history import NO_ROOM
from opwatch.trim.history.sectormap import SectorState

# Longest wait at the end for the context probe.
_PROBE_S = 1.0
_FOLDER = Path("/var/lib/opwatch")


def _default(devices: Devices, device: BlockDevice) -> Path:
    """Return the default path of a history, in a folder that opwatch creates.

    An older history named after the disk is continued.
    """
    try:
        _FOLDER.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise OpwatchError(f"{_FOLDER}: {error.strerror}: name another file with -o") from error
    drive = identify(devices, device)
    lasting, former = _FOLDER / history_name(drive), _FOLDER / f"{device.name.replace('/', '!')}.history"
    if not lasting.exists() and former.is_file():
        with contextlib.suppress(OpwatchError):
            if not is_other(read_history(former)[0].drive, drive):
                return former
    return lasting


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "opwatch trim record --dev D [-o FILE] [--for T] [-q] [--json] [-- CMD...]"
    parser.add_argument("--dev", action=Once, required=True, metavar="D", help="the disk: a whole one")
    parser.add_argument(
        "-o",
        "--output",
        type=file_name,
        metavar="FILE",
        help=f"the history ({_FOLDER}/WWID.history)",
    )
    parser.add_argument(
        "--for",
        dest="seconds",
        type=time_between(0.01, 3650 * 86400),
        default=math.inf,
        metavar="T",
        help="record so long",
    )
    parser.add_argument("--json", action="store_true", help='one document at the end, "schema":"opwatch/1"')
    parser.add_argument("-q", "--quiet", action="store_true", help="say nothing while recording")


def _follow(recorder: HistoryRecorder, waiter: Waiter, seconds: float) -> End:
    """Record until a signal, the end of the command, or the time limit."""
    end, until = End.TICK, time.monotonic() + seconds
    forgotten = dict(recorder.history.forgotten)
    while end is End.TICK and time.monotonic() < until:
        end = waiter.wait(min(until, time.monotonic() + TICK_S))
        if not recorder.look():
            return End.VANISHED
        recorder.save()
        now = dict(recorder.history.forgotten)
        for why in now if now != forgotten else ():
            # A full map would otherwise print this every second.
            if now[why] != forgotten.get(why) and not (why == NO_ROOM and why in forgotten):
                say(f"{recorder.device.name}: less is known now: {why}")
        forgotten = now
    return end


def _let_go(recorder: HistoryRecorder, waiter: Waiter, command: list[str] | None, error: OpwatchError) -> int:
    """Stop recording a history that cannot be followed any further. The command continues."""
    if not command:
        raise error
    with contextlib.suppress(OpwatchError):
        recorder.close()
    say(f"{error}; the recording has ended, {command[0]} runs to its end")
    waiter.finish(stop=False)
    return OpwatchError.exit_status


def _blind(recorder: HistoryRecorder, contexts: ContextProbe) -> str | None:
    """Return the note about blind contexts. Wait for the probe only if data was discarded from the
    history."""
    return contexts.note(_PROBE_S if recorder.history.forgotten else 0.0)


def _result(recorder: HistoryRecorder, path: Path, seconds: float, blind: str | None) -> HistoryState:
    look, map_ = recorder.state(), recorder.history.map
    return HistoryState(
        device=recorder.device.name,
        file=str(path),
        seconds=seconds,
        kept=recorder.kept,
        size_bytes=recorder.device.size_bytes,
        written_bytes=map_.extents(SectorState.WRITTEN).total,
        trimmed_bytes=map_.extents(SectorState.TRIMMED).total,
        unknown_bytes=map_.extents(SectorState.UNKNOWN).total,
        extents=sum(1 for _ in map_.runs()),
        look=look,
        missed_runs=recorder.missed_runs(),
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
    path = args.output or _default(devices, device)
    with Waiter() as waiter:
        begun, contexts = time.monotonic(), ContextProbe()
        recorder = HistoryRecorder(devices, device, path, say)
        try:
            if not args.quiet:
                say(f"{device.name}: {recorder.kept}")
                say(f"recording into {path}" + ("" if args.command else "; Ctrl-C ends it"))
            contexts.start()
            waiter.start(args.command, quiet_stdout=args.json)
            try:
                end = _follow(recorder, waiter, args.seconds)
            except OpwatchError as error:
                return _let_go(recorder, waiter, args.command, error)
            status = waiter.finish(stop=end is not End.COMMAND)
            if end is not End.VANISHED:
                recorder.look()
            result = _result(recorder, path, time.monotonic() - begun, _blind(recorder, contexts))
        finally:
            recorder.close()
    if end is End.VANISHED:
        raise OpwatchError(f"{device.name} is gone; {path} has what was known a second before")
    write_state(result, sys.stdout, as_json=args.json)
    return status if end is End.COMMAND else 0
