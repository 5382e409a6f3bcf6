"""`opwatch trim audit [MOUNT... | --dev D | --all]`: trim, and follow what becomes of it."""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from opwatch import units
from opwatch.collectors import fitrim_process
from opwatch.collectors.discards import DiscardTracer
from opwatch.collectors.fitrim import check_mount
from opwatch.collectors.readback import held_by_count
from opwatch.collectors.sentinels import Sentinels, prove_sizes
from opwatch.collectors.trim_layers import LayerReader
from opwatch.device import BlockDevice, Devices
from opwatch.drive.spec import parse_size
from opwatch.errors import OpwatchError, PermissionMissing, RefusedError, UsageError
from opwatch.sinks.trim_audit import write_json, write_lines
from opwatch.trim import ledger, losses
from opwatch.trim.audit import Asked, Audit, Evidence, Held, ReadBack
from opwatch.trim.layers import Kind, Stack
from opwatch.trim.sentinel import BLOCK
from opwatch.usage import Mount, read_usage

LOCKS = Path("/run/lock")
# How long nothing must have moved before a trim is over. XFS ends its discards behind our back, f2fs and
# btrfs issue them from threads that take their time.
QUIET_S = {"xfs": 0.5, "f2fs": 2.0, "btrfs": 1.0}
QUIET_DEFAULT_S = 0.3
# A drive may put off what it was told: how long its old data are given to go away.
PROVE_WAIT_S = 5.0


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds") from None
    if not 0 < value <= 86400:
        raise argparse.ArgumentTypeError("must be above 0, and at most a day")
    return value


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("mounts", nargs="*", metavar="MOUNT", help="mount points to trim")
    parser.add_argument("--all", action="store_true", help="every mounted filesystem on a block device")
    parser.add_argument("--dev", metavar="D", help="the filesystem mounted from this device")
    parser.add_argument(
        "-m", "--minimum", metavar="SIZE", default="0", help="as fstrim's: leave out shorter free extents"
    )
    parser.add_argument(
        "--prove", action="store_true", help="write files of its own before, and read their place raw after"
    )
    parser.add_argument(
        "--wait", type=_seconds, default=30.0, metavar="S", help="how long for the last discard"
    )
    parser.add_argument("--json", action="store_true", help='one object a line, "schema":"opwatch/1"')
    parser.add_argument("-q", "--quiet", action="store_true", help="only the verdict")


def _chosen(args: argparse.Namespace) -> tuple[list[Mount], list[str]]:
    """What to trim, and with --all what was left out and why."""
    usage = read_usage()
    if sum((bool(args.mounts), args.all, bool(args.dev))) != 1:
        raise UsageError("name mount points, or one device with --dev, or --all")
    if args.mounts:
        return [check_mount(text, usage) for text in args.mounts], []
    if args.dev:
        device = Devices().resolve(args.dev)
        found = usage.mounts_of(device)
        if not found:
            raise UsageError(f"{device.name} is mounted nowhere; --watch follows blkdiscard and others on it")
        return [check_mount(found[0].point, usage)], []
    chosen: dict[str, Mount] = {}
    left_out = []
    for mount in usage.mounts:
        if mount.dev in chosen or not mount.source.startswith("/dev/"):
            continue
        try:
            chosen[mount.dev] = check_mount(mount.point, usage)
        except (RefusedError, UsageError) as error:
            left_out.append(f"left out: {error}")
    if not chosen:
        raise UsageError("no filesystem here can be trimmed" + "".join(f"; {each}" for each in left_out))
    return list(chosen.values()), left_out


@contextlib.contextmanager
def _alone_on(stack: Stack) -> Iterator[None]:
    """Two audits of one disk take turns: what kernel threads do below is not told apart."""
    with contextlib.ExitStack() as held:
        for leaf in sorted(stack.leaves(), key=lambda each: each.device):
            path = LOCKS / f"opwatch-trim-{leaf.device}"
            try:
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            except OSError as error:
                raise PermissionMissing(
                    f"{path}: {error.strerror}. Try: sudo opwatch trim audit ..."
                ) from error
            held.callback(os.close, descriptor)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                print(f"opwatch: waiting for another audit of {leaf.device}", file=sys.stderr)
                fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield


def _disks(stack: Stack) -> list[BlockDevice]:
    devices = Devices()
    return [
        device
        for layer in stack.layers
        if layer.kind is not Kind.PARTITION and (device := devices.by_name(layer.device))
    ]


def _held(stack: Stack) -> dict[str, int]:
    """What drives count as in use, those that tell."""
    devices = Devices()
    found = {
        leaf.device: held_by_count(device)
        for leaf in stack.leaves()
        if (device := devices.by_name(leaf.device))
    }
    return {name: count for name, count in found.items() if count is not None}


def _read_back(sentinels: Sentinels, patience_s: float) -> ReadBack:
    """What became of the sentinels; lazy drives are given the time that the user has."""
    seen: Counter[str] = Counter()
    notes = []
    for each in sentinels.judge(patience_s):
        for name, blocks in each.inside.items():
            seen[name.value] += blocks * BLOCK
        if each.reason:
            notes.append(f"the sentinel of {each.size_bytes} B: {each.reason}")
    judged = sum(count for name, count in seen.items() if name not in ("reallocated", "unreadable"))
    return ReadBack(dict(seen), None if judged else "no block of a sentinel could be judged", tuple(notes))


def audit_mount(mount: Mount, asked: Asked, patience_s: float = 30.0, *, prove: bool = False) -> Audit:
    """Trim one filesystem and follow it; with `prove`, write sentinels before and read them back after."""
    before = LayerReader().mount(mount)
    with _alone_on(before), contextlib.ExitStack() as held:
        sentinels = None
        unproven = None
        if prove:
            sentinels = held.enter_context(Sentinels(mount, before, prove_sizes(before)))
            try:
                sentinels.plant()
                sentinels.give_up()
            except OpwatchError as error:
                sentinels, unproven = None, ReadBack({}, str(error))
        counted = _held(before)
        granules = {layer.device: granule for layer in before.layers if (granule := losses.granule_of(layer))}
        with DiscardTracer(_disks(before), granules) as tracer:
            log = fitrim_process.log_tail()
            answer = fitrim_process.trim(mount, asked, tracer.follow)
            quiet = QUIET_S.get(mount.filesystem, QUIET_DEFAULT_S)
            settled = tracer.wait_quiet(quiet, patience_s)
            trace = tracer.read()
        read_back = _read_back(sentinels, PROVE_WAIT_S) if sentinels else unproven
        after, now = LayerReader().mount(mount), _held(before)
    drives = {name: Held(was, now[name]) for name, was in counted.items() if name in now}
    lines = tuple(log())
    evidence = Evidence(before, after, trace, asked, answer, settled, read_back, lines, drives)
    return ledger.audit(evidence, mount.point)


def run(args: argparse.Namespace) -> int:
    if os.geteuid() != 0:
        raise PermissionMissing(
            "opwatch trim audit trims and traces: it needs root. Try: sudo opwatch trim audit ... "
            "(opwatch trim check needs no privilege)"
        )
    mounts, left_out = _chosen(args)
    for line in left_out:
        print(f"opwatch: {units.printable(line)}", file=sys.stderr)
    asked = fitrim_process.whole(parse_size(args.minimum) if args.minimum != "0" else 0)
    audits = []
    for mount in mounts:
        try:
            audits.append(audit_mount(mount, asked, args.wait, prove=args.prove))
        except OpwatchError as error:
            if len(mounts) == 1:
                raise
            print(f"opwatch: {error}", file=sys.stderr)
            continue
        if args.json:
            write_json(audits[-1:], sys.stdout)
        else:
            write_lines(audits[-1:], sys.stdout, quiet=args.quiet)
    status = ledger.exit_status(each.verdict for each in audits)
    return 64 if len(audits) < len(mounts) and status == 0 else status
