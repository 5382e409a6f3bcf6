"""Findings of a recording as sentences."""

from __future__ import annotations

from collections.abc import Iterator

from opwatch import units
from opwatch.report.drive_timeline import DriveTimeline
from opwatch.report.run_picture import DiskPicture
from opwatch.report.subject import ReportedRun
from opwatch.samples.observation import Observation
from opwatch.sinks.report.change_text import describe_changes, describe_pauses
from opwatch.sinks.report.owner_table import describe_owners
from opwatch.sinks.report.plots import amounts
from opwatch.trace.derive import OpInterval
from opwatch.trace.unavailable import TRUST
from opwatch.waf.span import MODE_CHANGED

_PLURALS = {
    **{"read": "reads", "write": "writes", "flush": "flushes", "discard": "discards"},
    **{"write_zeroes": "write-zeroes requests", "secure_erase": "secure erases", "other": "other requests"},
}


# A shorter stall cannot be distinguished from a slow request between two samples.
_MIN_STALL_NS = 10**9


def pluralize_op(op: str) -> str:
    return _PLURALS.get(op, op)


def _describe_op(name: str, op: OpInterval, seconds: float) -> str:
    rate = amounts.format_rate(op.count / seconds if seconds else 0.0)
    words = f"{op.count:,} {pluralize_op(name)} ({rate} per second"
    if op.bytes:
        words += f", {amounts.format_megabytes(op.bytes / seconds if seconds else 0.0)} MB/s"
    p50, p99 = (op.latency.quantiles[name] for name in ("p50", "p99"))
    if p50 is not None and p99 is not None:
        words += (
            f"; median latency {amounts.format_latency(p50)}, 99th percentile {amounts.format_latency(p99)}"
        )
    return words + ")"


def describe_disk(final: Observation) -> Iterator[str]:
    """Yield the activity and the errors of a disk."""
    seconds = final.interval.seconds
    ops = [_describe_op(name, op, seconds) for name, op in final.interval.ops.items() if op.count]
    head = f"{final.label}, {amounts.format_duration(seconds)}: "
    if not ops:
        yield f"{head}no I/O."
    elif len(ops) == 1:
        yield f"{head}{ops[0]}."
    else:
        yield f"{head}{', '.join(ops[:-1])} and {ops[-1]}."
    for name, op in final.interval.ops.items():
        if op.errors:
            kinds = ", ".join(f"{count:,} {status}" for status, count in op.statuses.items())
            yield f"{op.errors:,} {pluralize_op(name)} of {final.label} failed: {kinds}."


def describe_drive(course: DriveTimeline) -> Iterator[str]:
    """Yield the write amplification of the whole recording, and its components."""
    measured = course.measured
    if course.waf is None or course.error is None or not measured or not measured.stretch:
        yield f"Write amplification of {course.name} is unknown: {course.reason}."
        return
    amplification = measured.stretch.amplification
    host, nand = (int(span.best_estimate) for span in (amplification.host, amplification.nand))
    yield (
        f"{course.name} wrote {units.format_capacity(nand)} to NAND for "
        f"{units.format_capacity(host)} from the host: write "
        f"amplification {units.format_with_error(course.waf, course.error)}."
    )
    split = measured.split
    if course.is_even and split.a is not None and split.b_bytes_per_s is not None:
        a = units.format_with_error(split.a, split.a_error or 0.0)
        b, error = (f"{value / 1e6:.2f}" for value in (split.b_bytes_per_s, split.b_error or 0.0))
        yield (
            f"Each host byte caused {a} NAND bytes, and the drive wrote {b} ± {error} MB/s on its own, "
            "whatever the host wrote (a fit over the whole run)."
        )
    elif split.a is not None or split.reason == MODE_CHANGED:
        yield (
            f"{course.name} changed its behaviour during the run, so the run's NAND bytes cannot be split "
            "into those that the host caused and those that the drive wrote on its own."
        )
    background = measured.background
    if background.bytes_per_s is not None and background.error is not None:
        yield (
            f"While the host wrote nothing ({background.idle_s:.0f} s in total), {course.name} wrote "
            f"{background.bytes_per_s / 1e6:.2f} ± {background.error / 1e6:.2f} MB/s to NAND."
        )


def describe_stalls(run: ReportedRun, disk: DiskPicture) -> Iterator[str]:
    """Yield the longest time without completions while requests were in flight."""
    stall = disk.stall
    if not stall or stall.least_ns < _MIN_STALL_NS:
        return
    began = run.to_wall_time(stall.since_ns)
    since = f" from {began:%H:%M:%S}" if began else ""
    yield (
        f"{disk.label} stalled for at least {amounts.format_duration(stall.least_ns / 1e9)}{since}: "
        f"no request completed, with {stall.in_flight:,} in flight."
    )


def describe_slow_requests(run: ReportedRun, disk: DiskPicture) -> Iterator[str]:
    """Yield the slowest request, if slow requests were recorded."""
    if disk.slow_limit_ns is None:
        return
    limit = amounts.format_latency(disk.slow_limit_ns)
    if not disk.slow_count:
        yield f"No request of {disk.label} took longer than {limit}."
        return
    words = f"{disk.slow_count:,} requests of {disk.label} took longer than {limit}"
    if disk.slow:
        longest = max(disk.slow, key=lambda request: request.latency_ns)
        at = run.to_wall_time(longest.end_ns)
        words += f"; the slowest, a {longest.op}, took {amounts.format_latency(longest.latency_ns)}"
        words += f" and ended at {at:%H:%M:%S}" if at else ""
    yield f"{words}."


def summarize_run(run: ReportedRun) -> list[str]:
    """Return all sentences, disk by disk."""
    sentences: list[str] = []
    for disk in run.picture.disks.values():
        sentences += describe_pauses(run, disk.label, run.changes[disk.label])
        sentences += describe_stalls(run, disk)
        for final in disk.finals:
            sentences += describe_disk(final)
        sentences += describe_owners(disk)
        sentences += describe_changes(run, disk.label, run.changes[disk.label])
        sentences += describe_slow_requests(run, disk)
    for course in () if run.is_of_sweep else run.drives.values():
        sentences += describe_drive(course)
    return sentences


def describe_trust(run: ReportedRun) -> tuple[list[str], bool]:
    """Return (sentences about the accounting of requests, whether all are accounted for)."""
    explained = [f"{words}." for words in run.picture.explained]
    if run.picture.unexplained:
        return [*explained, *(f"Unexplained: {words}." for words in run.picture.unexplained)], False
    finals = [final for disk in run.picture.disks.values() for final in disk.finals]
    imported = [final for final in finals if TRUST in final.missing_fields]
    if imported:
        return [f"Not available: {words}" for final in imported[:1] for words in final.lacks], False
    issued = sum(final.trust.issued for final in finals)
    completed = sum(final.trust.completed for final in finals)
    if not finals:
        return ["No disk was traced to the end of the recording."], False
    counts = f"{issued:,} issued, {completed:,} completed"
    if explained:
        return [*explained, f"Every other request is accounted for: {counts}."], True
    words = f"Every request is accounted for: {counts}, none lost"
    if all(final.trust.drift for final in finals):
        words += "; the kernel's own count agrees"
    return [f"{words}."], True
