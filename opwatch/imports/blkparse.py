"""The text of blkparse: every request from its issue to its completion. Pure.

A line has device, CPU, sequence, seconds, process, action, RWBS, and for what moves data `SECTOR + COUNT`.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator

from opwatch.errors import BadInput
from opwatch.foreign import LONGEST_LINE, text_of
from opwatch.frozen import frozen
from opwatch.imports.disk import Amounts, ImportedDisk, ImportedRun
from opwatch.imports.source import ImportedFile
from opwatch.samples.entries import RunEntry
from opwatch.trace.lacking import CPU, SEQUENTIAL, TRUST

_SECOND, _SECTOR = 10**9, 512
_EVENT = re.compile(
    r"\s*([0-9]{1,4}),([0-9]{1,7})\s+[0-9]{1,6}\s+[0-9]{1,12}\s+([0-9]{1,9})\.([0-9]{9})\s+[0-9]{1,10}\s+"
    r"([A-Z]{1,2})\s+([A-Z]{1,8})(?:\s+([0-9]{1,19}) \+ ([0-9]{1,10}))?",
    re.ASCII,
)
_ERROR = re.compile(r"\[(-?[0-9]{1,6})\]\s*$", re.ASCII)
# Issued, completed, and put back, after which it is issued again.
_ISSUE, _COMPLETION, _REQUEUE = "D", "C", "R"
_MOST_DISKS, _MOST_SECONDS, _MOST_IN_FLIGHT = 256, 86_400, 1 << 16
_LACKS = (
    f"{SEQUENTIAL}: of requests in their order of issue only those that end are taken",
    f"{TRUST}: blkparse has no account of what was lost in the text",
    f"{CPU}: blktrace does not tell it",
)
_NOTES = (
    "blkparse: its times count from the begin of the trace; of which day is not in it (1970-01-01)",
    "blkparse: what was issued before the trace or is not completed in it is left out",
)

# When it was issued, how many sectors are still to end, and of how many: by device, first of those sectors
# and operation.
_Issues = dict[tuple[str, int, str], tuple[int, int, int]]


@frozen
class _Completion:
    """A request that has ended. `latency_ns` from its issue."""

    at_ns: int
    disk: str
    op: str
    bytes: int
    latency_ns: int
    is_error: bool


def read_blkparse(raw: bytes, name: str) -> ImportedFile:
    """What a text of blkparse tells, as entries. BadInput, with the line, for what is no such text."""
    completions = sorted(_completions(raw, name), key=lambda completion: completion.at_ns)
    if not completions:
        raise BadInput(f"{name}: no request is issued and completed in it")
    disks = sorted({completion.disk for completion in completions})
    if len(disks) > _MOST_DISKS:
        raise BadInput(f"{name}: {len(disks)} disks are more than {_MOST_DISKS}")
    if completions[-1].at_ns >= _MOST_SECONDS * _SECOND:
        raise BadInput(f"{name}: it lasts for more than {_MOST_SECONDS} s")
    return ImportedFile("blkparse", _SECOND, _entries(completions, disks), _NOTES)


def is_blkparse(raw: bytes) -> bool:
    """Whether its first line is one of an event."""
    return _EVENT.match(text_of(raw[:LONGEST_LINE].partition(b"\n")[0])) is not None


def _completions(raw: bytes, name: str) -> Iterator[_Completion]:
    issues, events = _Issues(), 0
    for number, line in enumerate(io.BytesIO(raw), 1):
        event = _EVENT.match(text_of(line)) if len(line) <= LONGEST_LINE else None
        if not event:
            # Behind the events stand sums, and between them what processes said.
            if not events and line.strip():
                raise BadInput(f"{name}, line {number}: {text_of(line[:60])!r} is no event of blkparse")
            continue
        events += 1
        completion = _completed(issues, event, text_of(line))
        if len(issues) > _MOST_IN_FLIGHT:
            raise BadInput(f"{name}, line {number}: {_MOST_IN_FLIGHT} requests are issued and not completed")
        if completion:
            yield completion


def _completed(issues: _Issues, event: re.Match[str], line: str) -> _Completion | None:
    """The request that an event completes."""
    major, minor, seconds, fraction, action, flags, sector, count = event.groups()
    op = operation(flags)
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
            # A part of it: the rest goes on from there, since the same issue.
            del issues[request]
            issues[disk, int(sector or 0) + done, op] = issued_ns, left - done, whole
            return None
        del issues[request]
        error = _ERROR.search(line)
        is_error = error is not None and error[1] != "0"
        latency_ns = max(at_ns - issued_ns, 0)
        return _Completion(at_ns, disk, op, whole * _SECTOR, latency_ns, is_error)
    return None


def operation(flags: str) -> str | None:
    """What RWBS says: F in front is a flush before the data, behind them FUA; alone it is a flush."""
    letters = flags.removeprefix("F")
    if letters.startswith("D"):
        return "discard"
    if letters.startswith("R"):
        return "read"
    if letters.startswith("W"):
        return "write_zeroes" if letters.startswith("WZ") else "write"
    return "flush" if flags.startswith("F") else None


def _entries(completions: list[_Completion], names: list[str]) -> Iterator[RunEntry]:
    """The entries: a sample for every second, the last when the last request has ended."""
    disks = {
        name: ImportedDisk(place, name, "requests by blktrace", _LACKS) for place, name in enumerate(names)
    }
    run, due_ns = ImportedRun([*disks.values()], -_SECOND), 2 * _SECOND
    # Moments begin at one second: 0 stands for none.
    yield from run.begin(_SECOND)
    for completion in completions:
        while completion.at_ns + _SECOND > due_ns:
            yield run.tick(due_ns)
            due_ns += _SECOND
        latency_ns = completion.latency_ns
        disks[completion.disk].add(
            completion.op,
            Amounts(
                1,
                completion.bytes,
                sum_ns=latency_ns,
                max_ns=latency_ns,
                latencies={latency_ns: 1},
                errors=int(completion.is_error),
            ),
        )
    yield run.tick(due_ns)
    yield run.end(due_ns)
