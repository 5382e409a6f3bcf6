"""Parse blkparse text: every request from issue to completion. Pure.

A line has device, CPU, sequence number, seconds, process, action and RWBS, then `SECTOR + COUNT` if data
moves.
"""

from __future__ import annotations

import io
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from opwatch.errors import BadInput
from opwatch.foreign import MAX_LINE_BYTES, decode_text
from opwatch.imports.disk import ImportedDisk, ImportedRun, OpCounts
from opwatch.imports.source import ImportedFile
from opwatch.samples.entries import RunEntry
from opwatch.trace.unavailable import CPU, SEQUENTIAL, TRUST

_SECOND, _SECTOR = 10**9, 512
_EVENT = re.compile(
    r"\s*([0-9]{1,4}),([0-9]{1,7})\s+[0-9]{1,6}\s+[0-9]{1,12}\s+([0-9]{1,9})\.([0-9]{9})\s+[0-9]{1,10}\s+"
    r"([A-Z]{1,2})\s+([A-Z]{1,8})(?:\s+([0-9]{1,19}) \+ ([0-9]{1,10}))?",
    re.ASCII,
)
_ERROR = re.compile(r"\[(-?[0-9]{1,6})\]\s*$", re.ASCII)
# Issued, completed, and requeued; a requeued request is issued again.
_ISSUE, _COMPLETION, _REQUEUE = "D", "C", "R"
_MAX_DISKS, _MAX_SECONDS, _MAX_IN_FLIGHT = 256, 86_400, 1 << 16
_MISSING = (
    f"{SEQUENTIAL}: only requests that complete are imported, so the order of issue is incomplete",
    f"{TRUST}: the text of blkparse does not report lost events",
    f"{CPU}: blktrace does not report it",
)
# The summary after the events, for one CPU or for a whole device.
_SUMMARY_HEADER = re.compile(r"(CPU[0-9]{1,6}|Total) \(([^\n]{1,64})\):\s*", re.ASCII)
_SUMMARY = re.compile(
    r"\s*(?:PC )?Reads Compl(?:eted|\.):\s+([0-9]{1,12})(?:,\s+([0-9]{1,15})KiB)?"
    r"\s+(?:PC )?Writes Compl(?:eted|\.):\s+([0-9]{1,12})(?:,\s+([0-9]{1,15})KiB)?\s*",
    re.ASCII,
)
_SECTORS_PER_KIB = 2
_NOTES = (
    "blkparse: times are relative to the start of the trace; the date is unknown (1970-01-01)",
    "blkparse: requests that were issued before the trace, or did not complete in it, are left out",
    "blkparse: the trace is assumed to end with its last event, because its length is not in the text",
)

# Issue time, remaining sectors and total sectors, by device, first remaining sector and operation.
_Issues = dict[tuple[str, int, str], tuple[int, int, int]]


@dataclass(frozen=True, slots=True)
class _Completion:
    """A completed request. `latency_ns` counts from its issue."""

    at_ns: int
    disk: str
    op: str
    bytes: int
    latency_ns: int
    is_error: bool


def parse_blkparse(raw: bytes, name: str) -> ImportedFile:
    """Parse blkparse text into entries.

    Raise BadInput, with the line, if the text is not from blkparse, or if its summary disagrees with the
    events.
    """
    trace = _Trace()
    completions = sorted(_parse_completions(raw, name, trace), key=lambda completion: completion.at_ns)
    if not completions:
        raise BadInput(f"{name}: no request in it was both issued and completed")
    disks = sorted({completion.disk for completion in completions})
    if len(disks) > _MAX_DISKS:
        raise BadInput(f"{name}: {len(disks)} disks, at most {_MAX_DISKS} can be imported")
    if trace.end_ns >= _MAX_SECONDS * _SECOND:
        raise BadInput(f"{name}: it lasts longer than {_MAX_SECONDS} s")
    if trace.end_ns <= trace.begin_ns:
        raise BadInput(f"{name}: all events have the same time, so there are no rates")
    _check_summary(trace, name)
    return ImportedFile("blkparse", _SECOND, _make_entries(completions, disks, trace), _NOTES)


def is_blkparse(raw: bytes) -> bool:
    """Return whether the first line is an event."""
    return _EVENT.match(decode_text(raw[:MAX_LINE_BYTES].partition(b"\n")[0])) is not None


def _parse_completions(raw: bytes, name: str, trace: _Trace) -> Iterator[_Completion]:
    issues, events = _Issues(), 0
    for number, line in enumerate(io.BytesIO(raw), 1):
        event = _EVENT.match(decode_text(line)) if len(line) <= MAX_LINE_BYTES else None
        if not event:
            # Summaries follow the events; messages of processes may appear between events.
            if not events and line.strip():
                raise BadInput(
                    f"{name}, line {number}: {decode_text(line[:60])!r} is not an event of blkparse"
                )
            trace.parse_summary(line)
            continue
        events += 1
        trace.add_event(event)
        completion = _find_completion(issues, event, decode_text(line))
        if len(issues) > _MAX_IN_FLIGHT:
            raise BadInput(
                f"{name}, line {number}: more than {_MAX_IN_FLIGHT} requests are issued and not completed"
            )
        if completion:
            yield completion


@dataclass(slots=True)
class _Trace:
    """Time range and completions of the events, and the counts of blkparse's summary.

    `totals` and `by_cpu` hold (completions, KiB) per device: the totals, and the sums over the CPUs.
    """

    begin_ns: int = _MAX_SECONDS * _SECOND
    end_ns: int = 0
    ends: int = 0
    sectors: int = 0
    totals: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict(lambda: [0, 0]))
    by_cpu: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict(lambda: [0, 0]))
    _sums_of: tuple[bool, str] | None = None

    def add_event(self, event: re.Match[str]) -> None:
        at_ns = int(event[3]) * _SECOND + int(event[4])
        self.begin_ns, self.end_ns = min(self.begin_ns, at_ns), max(self.end_ns, at_ns)
        if event[5] == _COMPLETION:
            self.ends += 1
            self.sectors += int(event[8] or 0)

    def parse_summary(self, line: bytes) -> None:
        text = decode_text(line[:MAX_LINE_BYTES])
        if of := _SUMMARY_HEADER.fullmatch(text):
            self._sums_of = of[1] == "Total", of[2]
        elif self._sums_of and (counts := _SUMMARY.fullmatch(text)):
            is_total, device = self._sums_of
            sums = self.totals if is_total else self.by_cpu
            if device in sums or len(sums) < _MAX_DISKS:
                sums[device][0] += int(counts[1]) + int(counts[3])
                sums[device][1] += int(counts[2] or 0) + int(counts[4] or 0)


def _check_summary(trace: _Trace, name: str) -> None:
    """Raise BadInput if the completions and the summary disagree."""
    # A device with a single CPU has no total.
    sums = {**trace.by_cpu, **trace.totals}.values()
    if not sums:
        return
    ends, kib = (sum(device[place] for device in sums) for place in (0, 1))
    # Each sum is rounded down, separately for reads and writes.
    rounding = 2 * len(sums)
    if trace.ends != ends or abs(trace.sectors / _SECTORS_PER_KIB - kib) > rounding:
        raise BadInput(
            f"{name}: it has {trace.ends} completions of {trace.sectors // _SECTORS_PER_KIB} KiB, but its "
            f"summary counts {ends} of {kib} KiB: import the whole output of blkparse"
        )


def _find_completion(issues: _Issues, event: re.Match[str], line: str) -> _Completion | None:
    """Return the request that an event completes, or None."""
    major, minor, seconds, fraction, action, flags, sector, count = event.groups()
    op = parse_operation(flags)
    if op is None or (sector is None and op != "flush"):
        return None
    disk, at_ns = f"{major}:{minor}", int(seconds) * _SECOND + int(fraction)
    # A flush has no sectors; its completion names sector 0.
    request = disk, int(sector or 0), op
    if action == _ISSUE:
        issues[request] = at_ns, int(count or 0), int(count or 0)
    elif action == _REQUEUE:
        issues.pop(request, None)
    elif action == _COMPLETION and request in issues:
        issued_ns, left, whole = issues[request]
        done = int(count or 0)
        if 0 < done < left:
            # Partial completion: the remaining sectors keep the original issue time.
            del issues[request]
            issues[disk, int(sector or 0) + done, op] = issued_ns, left - done, whole
            return None
        del issues[request]
        error = _ERROR.search(line)
        is_error = error is not None and error[1] != "0"
        latency_ns = max(at_ns - issued_ns, 0)
        return _Completion(at_ns, disk, op, whole * _SECTOR, latency_ns, is_error)
    return None


def parse_operation(flags: str) -> str | None:
    """Return the operation for an RWBS field, or None.

    A leading F is a preflush before the data, or a flush without data; a later F is FUA.
    """
    letters = flags.removeprefix("F")
    if letters.startswith("D"):
        return "discard"
    if letters.startswith("R"):
        return "read"
    if letters.startswith("W"):
        return "write_zeroes" if letters.startswith("WZ") else "write"
    return "flush" if flags.startswith("F") else None


def _make_entries(completions: list[_Completion], names: list[str], trace: _Trace) -> Iterator[RunEntry]:
    """Yield a sample for every second since the first event, and one at the last event."""
    disks = {
        name: ImportedDisk(place, name, "requests by blktrace", _MISSING) for place, name in enumerate(names)
    }
    # The clock starts at one second, because 0 means "no time".
    run = ImportedRun([*disks.values()], -_SECOND)
    due_ns, end_ns = trace.begin_ns + 2 * _SECOND, trace.end_ns + _SECOND
    yield from run.make_start_entries(trace.begin_ns + _SECOND)
    for completion in completions:
        while completion.at_ns + _SECOND > due_ns:
            yield run.make_interval_entry(due_ns)
            due_ns += _SECOND
        latency_ns = completion.latency_ns
        disks[completion.disk].add_requests(
            completion.op,
            OpCounts(
                1,
                completion.bytes,
                sum_ns=latency_ns,
                max_ns=latency_ns,
                latencies={latency_ns: 1},
                errors=int(completion.is_error),
            ),
        )
    # The trace may continue after the last completion.
    while due_ns < end_ns:
        yield run.make_interval_entry(due_ns)
        due_ns += _SECOND
    yield run.make_interval_entry(end_ns)
    yield run.make_end_entry(end_ns)
