"""Which BPF programs are loaded: tables of names. The extension loads what it is handed, and chooses nothing.

A way is a set of programs that do one job together. A kernel may refuse the first way and take the next."""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Sequence

from opwatch.named import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeVar

    T = TypeVar("T")


class Attachment(enum.IntEnum):
    """What becomes of a program that is loaded; enum ow_attachment of opwatch/_native/common/programs.h."""

    OPTIONAL = 0
    REQUIRED = 1
    CALLED = 2


class Program(NamedTuple):
    """A program of one of our objects. It is left out where the kernel's types lack the name that it `needs`:
    a function's own, or that of a tracepoint behind btf_trace_; with a ! before it, where they have it."""

    name: str
    needs: str = ""
    attachment: Attachment = Attachment.OPTIONAL


# In the order of attachment.
Way = Sequence[Program]

_IO_START = "btf_trace_block_io_start"
# Each has a twin that reads by helper calls, for kernels that refuse what reads the arguments by their types.
REQUEST_PROGRAMS = ("rq_issue", "rq_complete", "rq_requeue", "rq_queue")
# With slow requests or owners the end has a program of its own; who asks for a request is noted where that is
# asked for.
SLOW_PROGRAMS = ("rq_slow", "rq_submit", "rq_getrq")
BIO_PROGRAMS = ("bio_queue", "bio_complete")
# With owners that end has a program of its own, too.
OWNED_BIO = "bio_owned"
# Ends before beginnings, so that nothing is seen to begin that could end unseen.
_ORDER = (
    "rq_complete",
    "rq_slow",
    "rq_requeue",
    "bio_complete",
    "bio_owned",
    "rq_queue",
    "rq_submit",
    "rq_getrq",
    "rq_issue",
    "bio_queue",
)
# Since Linux kernel commit 5a80bd075f3b ("block: introduce block_io_start/block_io_done tracepoints") (in
# v6.5). Where it is missing, the kernel's own stamp says when a request entered the queue, and its bio who
# asked for it.
_NEEDS = {"rq_queue": _IO_START, "rq_submit": _IO_START, "rq_getrq": f"!{_IO_START}"}
TWIN = "_raw"


def tracer_ways(
    *,
    requests: bool,
    bios: bool,
    queue_time: bool,
    slow: bool = False,
    owners: bool = False,
    submitters: bool = False,
) -> dict[str, Way]:
    """The ways to count what completes, by the kind of their hooks, the cheapest first. `submitters`: owners
    are who asked for a request."""
    wanted = {*(REQUEST_PROGRAMS if requests else ()), *(BIO_PROGRAMS if bios else ())}
    if not queue_time:
        wanted.discard("rq_queue")
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


# What no tracer can be cheaper than: programs that do nothing, that read the clock, and that keep as little
# as a tracer can keep.
FLOORS: dict[str, Way] = {
    name: (Program(f"{prefix}_issue"), Program(f"{prefix}_complete"))
    for name, prefix in (("empty", "floor"), ("clock", "clock"), ("sketch", "sketch"))
}


def first_loaded(
    ways: Sequence[Way],
    load: Callable[[Way], T],
    rejected: type[Exception],
    final: Collection[int],
) -> tuple[T, Way]:
    """What the first way gave that the kernel takes, and that way. What it said of the last is raised, with
    the log of all: `rejected` has (errno, what, log). Errors in `final` are the same for every way."""
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
