"""Load and attach the tracer's programs briefly, to report the kernel's verdict on each."""

from __future__ import annotations

import os
from pathlib import Path

from opwatch.collectors.block.blk import BlockTracer, explain_probe_error
from opwatch.collectors.block.contexts import watch_switches
from opwatch.errors import OpwatchError, ProbeRejected
from opwatch.host.device import BlockDevice, Devices, Leaf
from opwatch.host.diagnosis import (
    REPORT_HINT,
    Attempt,
    Check,
    check_program,
    make_note,
    make_ok,
    make_problem,
)
from opwatch.trace.contexts import BLIND_CONTEXT
from opwatch.trace.programs import BIO_PROGRAMS, FLOORS, REQUEST_PROGRAMS, TWIN

# Device number that no disk has: the programs load and attach but match nothing.
NOBODY = BlockDevice("nobody", (0xFFF, 0xFFFFF), Path("/nonexistent"))


def try_attach(device: BlockDevice, *, raw_tp: bool) -> Attempt:
    """Load, attach and detach the programs for a device, including queue time."""
    try:
        tracer = BlockTracer([Leaf(device, device)], queue_time=True, raw_tp=raw_tp)
    except ProbeRejected as error:
        return Attempt("", {}, error, error.log)
    except OpwatchError as error:
        return Attempt("", {}, error)
    except OSError as error:
        return Attempt("", {}, OpwatchError(f"{device.name}: {error.strerror}"))
    try:
        return Attempt(tracer.hooks, {row[0].removesuffix(TWIN): row[4] for row in tracer.list_programs()})
    finally:
        tracer.close()


def first_disk(devices: Devices) -> BlockDevice | None:
    """Return a disk whose requests can be traced. Neither reading nor writing it is necessary."""
    disks = [disk for disk in devices.iter_disks() if disk.is_request_based and disk.size_bytes]
    return next(iter(disks), None)


def check_programs(devices: Devices) -> list[Check]:
    """Check each program of the tracer: loaded (variant), rejected (with log), or missing."""
    disk = first_disk(devices)
    checks = []
    if disk:
        first, twin = (try_attach(disk, raw_tp=raw) for raw in (False, True))
        checks += [check_program(name, first, twin) for name in REQUEST_PROGRAMS]
    else:
        checks.append(make_note("probes rq_*", "not tried: there is no request-based disk here"))
    first, twin = (try_attach(NOBODY, raw_tp=raw) for raw in (False, True))
    return checks + [check_program(name, first, twin) for name in BIO_PROGRAMS]


def check_floor() -> Check:
    """Check the empty programs, which opwatch overhead uses as the cost of any program."""
    # Imported late, because doctor must work without the extension.
    from opwatch._native import Floor, ProbeError

    try:
        Floor(FLOORS["empty"]).close()
    except ProbeError as error:
        explained = explain_probe_error(error)
        fix = REPORT_HINT if isinstance(explained, ProbeRejected) else None
        return make_problem(
            "empty programs", str(explained), fix, explained.exit_status, error.args[2] or None
        )
    return make_ok("empty programs", "loaded: opwatch overhead subtracts their cost")


def check_contexts() -> Check:
    """Check whether programs run in all contexts. Some kernels skip them while PID 1 is current."""
    switches = watch_switches()
    if isinstance(switches, str):
        return make_note("contexts", f"unknown: {switches}")
    if switches.is_skipping is None:
        return make_note("contexts", "unknown: PID 1 did not run during the check")
    if switches.is_skipping:
        return make_note(
            "contexts",
            f"{BLIND_CONTEXT} (it switched {switches.kernel} times, a program saw {switches.program}), and "
            "does not count the skipped runs: completions that interrupt PID 1 are missing, and show up as "
            "drift. Other kernels do not do this; docs/exactness.md has the figures",
        )
    return make_ok("contexts", "programs run while PID 1 is current")


def check_stats() -> Check:
    """Check whether the kernel's statistics of BPF programs can be enabled."""
    # Imported late, see above.
    from opwatch._native import enable_stats

    try:
        os.close(enable_stats())
    except OSError as error:
        return make_note(
            "bpf statistics", f"opwatch overhead cannot use them: {error.strerror} (needs CAP_SYS_ADMIN)"
        )
    return make_ok("bpf statistics", "can be enabled for opwatch overhead")
