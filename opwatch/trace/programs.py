"""Tables of the BPF programs to load. The extension loads the programs that it is given, without choosing.

A way is a set of programs that do one job together. If the kernel refuses the first way, the next is tried.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple, TypeVar

T = TypeVar("T")


class Attachment(enum.IntEnum):
    """How a loaded program is used; enum ow_attachment of opwatch/_native/common/programs.h."""

    OPTIONAL = 0
    REQUIRED = 1
    CALLED = 2


class Program(NamedTuple):
    """A program of one of our objects.

    The program is left out if the kernel's BTF lacks the name in `needs`: a function, or a tracepoint with
    the prefix btf_trace_. After a "!" the program is left out if the name exists.
    """

    name: str
    needs: str = ""
    attachment: Attachment = Attachment.OPTIONAL


# In the order of attachment.
ProgramSet = Sequence[Program]

_IO_START = "btf_trace_block_io_start"
# Each program has a twin that reads through helper calls, for kernels that refuse typed access to the
# arguments.
REQUEST_PROGRAMS = ("rq_issue", "rq_complete", "rq_requeue", "rq_queue")
# For slow requests or owners: rq_slow replaces rq_complete, and the others note the submitter of a request at
# queue entry.
SLOW_PROGRAMS = ("rq_slow", "rq_submit", "rq_getrq")
BIO_PROGRAMS = ("bio_queue", "bio_complete")
# With queue times, notes when a bio is submitted, for its waits before it has a request.
BIO_SUBMITTED = "bio_submitted"
# Replaces bio_complete if owners are counted.
OWNED_BIO = "bio_owned"
# Completion programs are attached before issue programs, so that no completion of a traced issue is missed.
_ORDER = (
    "rq_complete",
    "rq_slow",
    "rq_requeue",
    "bio_complete",
    "bio_owned",
    "rq_queue",
    BIO_SUBMITTED,
    "rq_submit",
    "rq_getrq",
    "rq_issue",
    "bio_queue",
)
# Since Linux kernel commit 5a80bd075f3b ("block: introduce block_io_start/block_io_done tracepoints") (in
# v6.5). Without block_io_start, the kernel's own timestamp is the queue entry time, and submitters are noted
# by bio.
_NEEDS = {"rq_queue": _IO_START, "rq_submit": _IO_START, "rq_getrq": f"!{_IO_START}"}
TWIN = "_raw"


def list_program_sets(
    *,
    requests: bool,
    bios: bool,
    queue_time: bool,
    slow: bool = False,
    owners: bool = False,
    submitters: bool = False,
) -> dict[str, ProgramSet]:
    """Return the ways to count completions by kind of hook, the cheapest first. `submitters`: owners are the
    submitters of requests."""
    wanted = {*(REQUEST_PROGRAMS if requests else ()), *(BIO_PROGRAMS if bios else ())}
    if not queue_time:
        wanted.discard("rq_queue")
    elif requests:
        wanted.add(BIO_SUBMITTED)
    if (slow or owners) and requests:
        wanted.add("rq_slow")
        wanted.discard("rq_complete")
    if (slow or submitters) and requests:
        wanted |= {*SLOW_PROGRAMS}
    if owners and bios:
        wanted.add(OWNED_BIO)
        wanted.discard("bio_complete")
    names = [name for name in _ORDER if name in wanted]
    return {
        "tp_btf": tuple(Program(name, _NEEDS.get(name, "")) for name in names),
        "raw_tp": tuple(Program(name + TWIN, _NEEDS.get(name, "")) for name in names),
    }


# Lower bounds of a tracer's cost: programs that do nothing, that read the clock, and that keep the minimal
# state.
FLOORS: dict[str, ProgramSet] = {
    name: (Program(f"{prefix}_issue"), Program(f"{prefix}_complete"))
    for name, prefix in (("empty", "floor"), ("clock", "clock"), ("sketch", "sketch"))
} | {"bio": (Program("floor_bio"),)}


def load_first(
    ways: Sequence[ProgramSet],
    load: Callable[[ProgramSet], T],
    rejected: type[Exception],
    final: Collection[int],
) -> tuple[T, ProgramSet]:
    """Return the result of the first program set that the kernel accepts, and that set.

    If all fail, raise the last error with the logs of all. `rejected` has the arguments (errno, what, log).
    An errno in `final` would be the same for every set and is raised at once.
    """
    logs = ""
    for way in ways[:-1]:
        try:
            return load(way), way
        except rejected as error:
            number, what, log = error.args
            logs += log
            if number in final:
                raise
    try:
        return load(ways[-1]), ways[-1]
    except rejected as error:
        number, what, log = error.args
        raise rejected(number, what, logs + log) from error
