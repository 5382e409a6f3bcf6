"""`opwatch trim audit [MOUNT... | --dev D | --all]`: trim, and follow the discards down to the drive."""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import TYPE_CHECKING

from opwatch.collectors.audit.discard_programs import Loading, make_loader
from opwatch.collectors.block.contexts import ContextProbe
from opwatch.errors import OpwatchError, RefusedError, UsageError
from opwatch.host.device import Devices, Presence
from opwatch.host.privilege import require_root
from opwatch.host.usage import Mount, Usage, read_usage
from opwatch.sinks.terminal import print_message
from opwatch.tools.acting.trim.fitrim import check_mount, require_mount
from opwatch.tools.arguments import Once, parse_byte_size, parse_file_name, time_between
from opwatch.trim.audit.fitrim import Asked
from opwatch.trim.audit.programs import ProgramOptions

if TYPE_CHECKING:
    from opwatch.tools.runs.audit_recorder import AuditRecorder
    from opwatch.trim.audit.audit import Audit, AuditEvidence, Verdict
    from opwatch.trim.stack.layers import Stack


# Seconds between checks that the watched disks still exist.
_PROBE_S = 1.0
_POLL_S = 1.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("mounts", nargs="*", metavar="MOUNT", help="mount points to trim")
    parser.add_argument("--all", action="store_true", help="trim every mounted filesystem on a block device")
    parser.add_argument(
        "--dev", action=Once, metavar="D", help="trim the filesystem that is mounted from this device"
    )
    parser.add_argument(
        "-m",
        "--minimum",
        type=parse_byte_size,
        metavar="SIZE",
        default=0,
        help="leave out shorter free extents, as fstrim --minimum does",
    )
    parser.add_argument(
        "--prove",
        action="store_true",
        help="first write files, free them, and read their place raw after the trim",
    )
    parser.add_argument(
        "--watch",
        action="store_true",
        help="trim nothing, and follow all discards on this mount or device until Ctrl-C or the end of CMD",
    )
    parser.add_argument(
        "--for",
        dest="seconds",
        type=time_between(0.01, 86400),
        metavar="T",
        help="with --watch: watch for this time",
    )
    parser.add_argument(
        "--wait",
        type=time_between(0.01, 86400),
        default=30.0,
        metavar="T",
        help="wait this long for the last discard (30s)",
    )
    parser.add_argument(
        "-o",
        "--output",
        type=parse_file_name,
        metavar="FILE",
        help="keep the observations in this new recording; opwatch replay FILE shows the same output",
    )
    parser.add_argument(
        "--json", action="store_true", help='print one JSON object per filesystem, "schema":"opwatch/1"'
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="print the verdict only")


def _choose_mounts(args: argparse.Namespace) -> list[Mount]:
    """Return the mounts to trim. With --all, print each skipped mount and its reason."""
    usage = read_usage()
    if args.mounts:
        return [check_mount(text, usage) for text in args.mounts]
    if args.dev:
        device = Devices().resolve(args.dev)
        mounts, refusals = _find_first_mounts(usage, usage.find_mounts(device))
        if mounts:
            return mounts[:1]
        if refusals:
            raise refusals[0]
        raise UsageError(f"{device.name} is not mounted; --watch follows blkdiscard and others on it")
    mounts, refusals = _find_first_mounts(
        usage, [mount for mount in usage.mounts if mount.source.startswith("/dev/")]
    )
    for refusal in refusals:
        print_message(f"left out: {refusal}")
    if not mounts:
        raise UsageError("no filesystem here can be trimmed")
    return mounts


def _find_first_mounts(usage: Usage, mounts: Sequence[Mount]) -> tuple[list[Mount], list[OpwatchError]]:
    """Return (the first trimmable mount of each filesystem, the errors for filesystems without one).

    A mount may be read-only, or covered by another mount.
    """
    chosen: dict[str, Mount] = {}
    refusals: dict[str, OpwatchError] = {}
    for mount in mounts:
        if mount.dev in chosen:
            continue
        try:
            top = check_mount(mount.point, usage)
            if top.dev != mount.dev:
                covered = f"{mount.point}: {mount.source} is hidden by another mount there, of {top.source}"
                raise RefusedError(f"{covered}; also mount it elsewhere")
            chosen[mount.dev] = top
        except (RefusedError, UsageError) as error:
            refusals.setdefault(mount.dev, error)
    return list(chosen.values()), [why for dev, why in refusals.items() if dev not in chosen]


def _import_remaining() -> None:
    """Import the modules for judging and printing.

    The import takes as long as a small trim, and therefore runs during the trim. For the same reason, the
    ledger and the sink are imported inside the functions below.
    """
    from opwatch.sinks import trim_audit  # noqa: F401
    from opwatch.trim.audit import ledger  # noqa: F401


def _is_early(evidence: AuditEvidence) -> bool:
    """Return whether a drive still counts trimmed space as in use, and may need more time."""
    from opwatch.trim.audit.ledger import is_contradicted

    return is_contradicted(evidence)


def audit_mount(
    mount: Mount,
    asked: Asked | None = None,
    patience_s: float = 30.0,
    *,
    minlen: int = 0,
    prove: bool = False,
    leaving: ExitStack | None = None,
) -> Audit:
    """Trim a filesystem, or the given part; follow and judge the trim.

    The BPF programs are detached on return, or when `leaving` is closed.
    """
    loading = Loading(make_loader(ProgramOptions(filesystem=mount.filesystem)))
    # Import this while the programs are being loaded.
    from opwatch.tools.runs import trimming

    evidence = trimming.trim_and_trace(
        mount,
        asked or Asked(minlen=minlen),
        patience_s,
        print_message,
        loading=loading,
        is_early=_is_early,
        prove=prove,
        meanwhile=_import_remaining,
        leaving=leaving,
    )
    from opwatch.trim.audit import ledger

    return ledger.build_audit(evidence, mount.point)


def _choose_exit_status(verdicts: Iterable[Verdict]) -> int:
    """Return the exit status for these verdicts."""
    from opwatch.trim.audit.verdicts import exit_status

    return exit_status(verdicts)


AuditRecorderContext = AbstractContextManager["AuditRecorder | None"]


def _make_recorder(args: argparse.Namespace, audited: Sequence[Mount | Stack]) -> AuditRecorderContext:
    """Return the recorder of the audits, created before anything is trimmed."""
    if not args.output:
        return nullcontext()
    # Imported here to start our own trim without the import.
    from opwatch.tools.runs.audit_recorder import AuditRecorder

    return AuditRecorder(args.output, audited)


def _print_audit(
    args: argparse.Namespace, audit: Audit, contexts: ContextProbe, kept: AuditRecorder | None = None
) -> None:
    from opwatch.sinks.trim_audit import write_json, write_lines

    # Wait for the probe if something is missing, because nothing can be printed after the document.
    wait_s = _PROBE_S if _choose_exit_status([audit.verdict]) != 0 else 0.0
    if not args.json:
        write_lines([audit], sys.stdout, quiet=args.quiet)
    blind = contexts.describe_effect(wait_s) if args.json or kept else None
    if kept:
        kept.record_audit(audit, blind)
    if args.json:
        write_json([audit], sys.stdout, blind)


def _trim_mounts(args: argparse.Namespace, contexts: ContextProbe) -> int:
    mounts = _choose_mounts(args)
    audits = []
    with ExitStack() as leaving, _make_recorder(args, mounts) as kept:
        for mount in mounts:
            try:
                audits.append(
                    audit_mount(
                        mount, None, args.wait, minlen=args.minimum, prove=args.prove, leaving=leaving
                    )
                )
            except OpwatchError as error:
                if len(mounts) == 1:
                    raise
                print_message(str(error))
                if kept:
                    kept.record_skipped(str(error))
                continue
            _print_audit(args, audits[-1], contexts, kept)

    status = _choose_exit_status(audit.verdict for audit in audits)
    status = 64 if len(audits) < len(mounts) and status == 0 else status
    return status or _choose_recording_status(kept)


def _choose_recording_status(kept: AuditRecorder | None) -> int:
    """Return the exit status for audits that could not be recorded."""
    return 1 if kept and kept.problem else 0


class _DiskPresence:
    """The disks below a stack, and whether each is still the same device."""

    def __init__(self, stack: Stack) -> None:
        devices = Devices()
        self._presences = {
            leaf.device: Presence(device)
            for leaf in stack.find_leaves()
            if (device := devices.by_name(leaf.device)) and device.size_bytes
        }

    def __enter__(self) -> _DiskPresence:
        return self

    def __exit__(self, *_: object) -> None:
        for presence in self._presences.values():
            presence.close()

    def list_vanished(self) -> list[str]:
        """Return the missing or replaced disks."""
        return [name for name, presence in self._presences.items() if not presence.is_same_device()]


def _resolve_watched(args: argparse.Namespace) -> tuple[Stack, Mount | None, str]:
    """Return the watched stack, the mount if any, and the name."""
    from opwatch.collectors.stack.layers import LayerReader  # as in _watch()

    if args.dev:
        device = Devices().resolve(args.dev)
        return LayerReader().read_device(device), None, device.name
    if len(args.mounts) != 1:
        raise UsageError("--watch follows one mount point, or one device with --dev")
    mount = require_mount(args.mounts[0])
    return LayerReader().read_mount(mount), mount, mount.point


def _watch_discards(args: argparse.Namespace, contexts: ContextProbe) -> int:
    # Imported here to start our own trim without the import.
    from opwatch.samples.end import End
    from opwatch.tools.runs import trimming
    from opwatch.tools.runs.waiting import Waiter
    from opwatch.trim.audit import ledger
    from opwatch.trim.audit.settling import quiet_after_watch

    if args.prove or args.minimum:
        raise UsageError("--prove and --minimum do not work with --watch, which trims nothing")
    stack, mount, name = _resolve_watched(args)
    gone, status = None, 0
    with _make_recorder(args, [stack]) as kept, Waiter() as waiter, _DiskPresence(stack) as presences:

        def wait_for_end() -> None:
            nonlocal gone, status
            waiter.start_command(args.command, quiet_stdout=args.json)
            print_message(
                f"following discards of {name}" + ("" if args.command or args.seconds else "; Ctrl-C ends it")
            )
            until = time.monotonic() + args.seconds if args.seconds else math.inf
            end = End.TICK
            while end is End.TICK and time.monotonic() < until and not gone:
                end = waiter.wait_until(min(until, time.monotonic() + _POLL_S))
                gone = next(iter(presences.list_vanished()), None)
            code = waiter.finish_command(stop=bool(args.seconds or gone))
            # The status of a command that we stopped ourselves is meaningless.
            status = code if end is not End.TICK else 0

        quiet_s = quiet_after_watch(stack)
        evidence = trimming.trace_other_trims(
            stack,
            mount,
            wait_for_end,
            args.wait,
            quiet_s,
            is_early=ledger.is_contradicted,
            list_vanished=presences.list_vanished,
        )
        audit = ledger.build_audit(evidence, name)
        _print_audit(args, audit, contexts, kept)
    if gone:
        print_message(f"{gone} is gone; the audit ends there")
        return 1
    return status or _choose_exit_status([audit.verdict]) or _choose_recording_status(kept)


def run(args: argparse.Namespace) -> int:
    require_root(
        "opwatch trim audit",
        "it trims (CAP_SYS_ADMIN) and traces (CAP_BPF, CAP_PERFMON)",
        "trim audit ...",
        "opwatch trim check needs no privileges",
    )
    if sum((bool(args.mounts), args.all, bool(args.dev))) != 1:
        raise UsageError("name mount points, one device with --dev, or --all")
    if not args.watch and (args.seconds or args.command):
        raise UsageError("--for and a command after -- work only with --watch")
    contexts = ContextProbe()
    contexts.start()
    status = _watch_discards(args, contexts) if args.watch else _trim_mounts(args, contexts)
    # Wait for the probe only if something is missing.
    if (blind := contexts.describe_effect(_PROBE_S if status else 0.0)) and not args.quiet:
        print_message(blind)
    return status
