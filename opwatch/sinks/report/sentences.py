"""Findings of a recording as sentences."""

from __future__ import annotations

from collections.abc import Iterator

from opwatch import units
from opwatch.report.drive_course import DriveCourse
from opwatch.report.gathering import DiskPicture
from opwatch.report.subject import ReportedRun
from opwatch.samples.observation import Observation
from opwatch.sinks.report.change_words import change_sentences, pause_sentences
from opwatch.sinks.report.owner_table import owner_sentences
from opwatch.sinks.report.plots import amounts
from opwatch.trace.derive import OpInterval
from opwatch.trace.lacking import TRUST
from opwatch.waf.span import CHANGED_WAY

_PLURALS = {
    **{"read": "reads", "write": "writes", "flush": "flushes", "discard": "discards"},
    **{"write_zeroes": "writes of zeroes", "secure_erase": "secure erases", "other": "other requests"},
}


# A shorter stall cannot be distinguished from a slow request between two samples.
_LEAST_STALL_NS = 10**9


def plural(op: str) -> str:
    return _PLURALS.get(op, op)


def _op(name: str, op: OpInterval, seconds: float) -> str:
    rate = amounts.rate(op.count / seconds if seconds else 0.0)
    words = f"{op.count:,} {plural(name)} ({rate} a second"
    if op.bytes:
        words += f", {amounts.megabytes(op.bytes / seconds if seconds else 0.0)} MB/s"
    p50, p99 = (op.latency.quantiles[name] for name in ("p50", "p99"))
    if p50 is not None and p99 is not None:
        words += f"; half of them within {amounts.latency(p50)}, 99 % within {amounts.latency(p99)}"
    return words + ")"


def disk_sentences(final: Observation) -> Iterator[str]:
    """Yield the activity and the errors of a disk."""
    seconds = final.interval.seconds
    ops = [_op(name, op, seconds) for name, op in final.interval.ops.items() if op.count]
    head = f"{final.label}, {amounts.span(seconds)}: "
    if not ops:
        yield f"{head}no I/O."
    elif len(ops) == 1:
        yield f"{head}{ops[0]}."
    else:
        yield f"{head}{', '.join(ops[:-1])} and {ops[-1]}."
    for name, op in final.interval.ops.items():
        if op.errors:
            kinds = ", ".join(f"{count:,} {status}" for status, count in op.statuses.items())
            yield f"{op.errors:,} {plural(name)} of {final.label} failed: {kinds}."


def drive_sentences(course: DriveCourse) -> Iterator[str]:
    """Yield the write amplification of the whole recording, and its components."""
    measured = course.measured
    if course.waf is None or course.error is None or not measured or not measured.stretch:
        yield f"Write amplification of {course.name} is not known: {course.reason}."
        return
    amplification = measured.stretch.amplification
    host, nand = (int(span.middle) for span in (amplification.host, amplification.nand))
    yield (
        f"{course.name} wrote {units.capacity(nand)} to NAND for {units.capacity(host)} of the host: write "
        f"amplification {units.with_error(course.waf, course.error)}."
    )
    split = measured.split
    if course.is_even and split.a is not None and split.b_bytes_per_s is not None:
        a = units.with_error(split.a, split.a_error or 0.0)
        b, error = (f"{value / 1e6:.2f}" for value in (split.b_bytes_per_s, split.b_error or 0.0))
        yield (
            f"Of that the host caused {a} bytes for each byte, and the drive {b} ± {error} MB/s on its own "
            "(a fit over the time; a write costs the former, an hour the latter)."
        )
    elif split.a is not None or split.reason == CHANGED_WAY:
        yield (
            f"{course.name} did not work in the same way throughout: what the host caused and what the drive "
            "did on its own cannot be told apart over the whole time."
        )
    background = measured.background
    if background.bytes_per_s is not None and background.error is not None:
        yield (
            f"While the host wrote nothing, {background.idle_s:.0f} s in all, {course.name} wrote "
            f"{background.bytes_per_s / 1e6:.2f} ± {background.error / 1e6:.2f} MB/s to NAND."
        )


def stall_sentences(run: ReportedRun, disk: DiskPicture) -> Iterator[str]:
    """Yield the longest time without completions while requests were in flight."""
    stall = disk.stall
    if not stall or stall.least_ns < _LEAST_STALL_NS:
        return
    began = run.wall(stall.since_ns)
    since = f" from {began:%H:%M:%S} on" if began else ""
    yield (
        f"{disk.label} stood still for at least {amounts.span(stall.least_ns / 1e9)}{since}: nothing "
        f"completed, with {stall.in_flight:,} in flight."
    )


def slow_sentences(run: ReportedRun, disk: DiskPicture) -> Iterator[str]:
    """Yield the slowest request, if slow requests were recorded."""
    if disk.slow_limit_ns is None:
        return
    limit = amounts.latency(disk.slow_limit_ns)
    if not disk.slow_count:
        yield f"No request of {disk.label} took more than {limit}."
        return
    words = f"{disk.slow_count:,} requests of {disk.label} took more than {limit}"
    if disk.slow:
        longest = max(disk.slow, key=lambda request: request.latency_ns)
        at = run.wall(longest.end_ns)
        words += f"; the slowest, a {longest.op}, {amounts.latency(longest.latency_ns)}"
        words += f" until {at:%H:%M:%S}" if at else ""
    yield f"{words}."


def summary(run: ReportedRun) -> list[str]:
    """Return all sentences, disk by disk."""
    sentences: list[str] = []
    for disk in run.picture.disks.values():
        sentences += pause_sentences(run, disk.label, run.changes[disk.label])
        sentences += stall_sentences(run, disk)
        for final in disk.finals:
            sentences += disk_sentences(final)
        sentences += owner_sentences(disk)
        sentences += change_sentences(run, disk.label, run.changes[disk.label])
        sentences += slow_sentences(run, disk)
    for course in run.drives.values():
        sentences += drive_sentences(course)
    return sentences


def trust_sentences(run: ReportedRun) -> tuple[list[str], bool]:
    """Return (sentences about the accounting of requests, whether all are accounted for)."""
    explained = [f"{words}." for words in run.picture.explained]
    if run.picture.unexplained:
        return [*explained, *(f"Unexplained: {words}." for words in run.picture.unexplained)], False
    finals = [final for disk in run.picture.disks.values() for final in disk.finals]
    imported = [final for final in finals if TRUST in final.absent]
    if imported:
        return [f"Not known: {words}" for final in imported[:1] for words in final.lacks], False
    issued = sum(final.trust.issued for final in finals)
    completed = sum(final.trust.completed for final in finals)
    if not finals:
        return ["Nothing was watched to its end."], False
    counts = f"{issued:,} were issued and {completed:,} completed"
    if explained:
        return [*explained, f"Every other request is accounted for: {counts}."], True
    words = f"Every request is accounted for: {counts}, none was lost"
    if all(final.trust.drift for final in finals):
        words += ", and the kernel's own count says the same"
    return [f"{words}."], True
