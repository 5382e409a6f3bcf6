"""`opwatch trim record`: follow what is written to a disk and discarded on it, for an exact `trim stale`."""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import sys
import time
from pathlib import Path

from opwatch.collectors.recording import TICK_S, Recording
from opwatch.device import BlockDevice, Devices
from opwatch.errors import OpwatchError, PermissionMissing
from opwatch.sinks.trim_history import Recorded, write_recorded
from opwatch.tools.trim_audit import say
from opwatch.tools.waiting import End, Waiter
from opwatch.trim.sectormap import State

_FOLDER = Path("/var/lib/opwatch")


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds") from None
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError("must be above 0")
    return value


def _file(text: str) -> Path:
    if not text:
        raise argparse.ArgumentTypeError("it names no file")
    return Path(text)


def _default(device: BlockDevice) -> Path:
    """Where a history is when nobody says where. This folder is ours to make."""
    try:
        _FOLDER.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OpwatchError(f"{_FOLDER}: {error.strerror}: name another file with -o") from error
    return _FOLDER / f"{device.name.replace('/', '!')}.history"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "opwatch trim record --dev D [-o FILE] [--for S] [-q] [--json] [-- CMD...]"
    parser.add_argument("--dev", required=True, metavar="D", help="the disk: a whole one")
    parser.add_argument(
        "-o", "--output", type=_file, metavar="FILE", help=f"the history ({_FOLDER}/D.history)"
    )
    parser.add_argument(
        "--for", dest="seconds", type=_seconds, default=math.inf, metavar="S", help="record so long"
    )
    parser.add_argument("--json", action="store_true", help='one document at the end, "schema":"opwatch/1"')
    parser.add_argument("-q", "--quiet", action="store_true", help="say nothing while recording")


def _follow(recording: Recording, waiter: Waiter, seconds: float) -> End:
    """Until something ends it."""
    end, until = End.TICK, time.monotonic() + seconds
    forgotten = dict(recording.history.forgotten)
    while end is End.TICK and time.monotonic() < until:
        end = waiter.wait(min(until, time.monotonic() + TICK_S))
        if not recording.look():
            return End.VANISHED
        recording.save()
        now = dict(recording.history.forgotten)
        for why in now if now != forgotten else ():
            if now[why] != forgotten.get(why):
                say(f"{recording.device.name}: less is known now: {why}")
        forgotten = now
    return end


def _let_go(recording: Recording, waiter: Waiter, command: list[str] | None, error: OpwatchError) -> int:
    """The recording cannot go on. The command has no part in that."""
    if not command:
        raise error
    with contextlib.suppress(OpwatchError):
        recording.close()
    say(f"{error}; the recording has ended, {command[0]} runs to its end")
    waiter.finish(stop=False)
    return OpwatchError.exit_status


def _result(recording: Recording, path: Path, seconds: float) -> Recorded:
    look, map_ = recording.state(), recording.history.map
    return Recorded(
        device=recording.device.name,
        file=str(path),
        seconds=seconds,
        kept=recording.kept,
        size_bytes=recording.device.size_bytes,
        written_bytes=map_.extents(State.WRITTEN).total,
        trimmed_bytes=map_.extents(State.TRIMMED).total,
        unknown_bytes=map_.extents(State.UNKNOWN).total,
        extents=sum(1 for _ in map_.runs()),
        look=look,
        missed_runs=recording.missed_runs(),
    )


def run(args: argparse.Namespace) -> int:
    if os.geteuid() != 0:
        raise PermissionMissing(
            "opwatch trim record traces: it needs root. Try: sudo opwatch trim record ..."
        )
    devices = Devices()
    device = devices.resolve(args.dev)
    path = args.output or _default(device)
    with Waiter() as waiter:
        begun = time.monotonic()
        recording = Recording(devices, device, path, say)
        try:
            if not args.quiet:
                say(f"{device.name}: {recording.kept}")
                say(f"recording into {path}" + ("" if args.command else "; Ctrl-C ends it"))
            waiter.start(args.command, quiet_stdout=args.json)
            try:
                end = _follow(recording, waiter, args.seconds)
            except OpwatchError as error:
                return _let_go(recording, waiter, args.command, error)
            status = waiter.finish(stop=end is not End.COMMAND)
            if end is not End.VANISHED:
                recording.look()
            result = _result(recording, path, time.monotonic() - begun)
        finally:
            recording.close()
    if end is End.VANISHED:
        raise OpwatchError(f"{device.name} is gone; {path} has what was known a second before")
    write_recorded(result, sys.stdout, as_json=args.json)
    return status if end is End.COMMAND else 0
