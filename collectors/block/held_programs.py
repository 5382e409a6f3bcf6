"""The BPF programs that another process holds, and how many of their runs the kernel skipped."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from opwatch.errors import OpwatchError
from opwatch.foreign import lines_of, read_text, whole
from opwatch.frozen import frozen

# BPF_PROG_TYPE_TRACING of the kernel's linux/bpf.h: fentry and its kin.
TRACING = 26
# A link has prog_id as well, but is no program and has no type of one.
_KIND, _IDENTITY = "prog_type", "prog_id"
# Since Linux kernel commit 9ed9e9ba2337 ("bpf: Count the number of times
# recursion was prevented") (in v5.12).
_SKIPPED = "recursion_misses"


@frozen
class HeldProgram:
    """A file of /proc/PID/fdinfo, and which program its descriptor leads to."""

    fdinfo: Path
    identity: int


class HeldPrograms:
    """The programs of a kind that a process holds now. It must be a child of ours that nobody waited for, so
    that its number cannot become another's."""

    def __init__(self, process: Path, kind: int = TRACING) -> None:
        """`process`: its folder in /proc. OSError where we may not look into it."""
        by_identity: dict[int, HeldProgram] = {}
        for fdinfo in sorted((process / "fdinfo").iterdir()):
            fields = _fields(fdinfo)
            identity = _number(fields, _IDENTITY)
            if identity is not None and _number(fields, _KIND) == kind:
                # Several descriptors can lead to one program.
                by_identity.setdefault(identity, HeldProgram(fdinfo, identity))
        self.programs = tuple(by_identity.values())

    def skipped(self) -> int | None:
        """Runs of all of them that the kernel skipped since they were loaded. None where it does not tell, or
        the process holds no programs."""
        counts = [_skipped(program) for program in self.programs]
        known = [count for count in counts if count is not None]
        return sum(known) if known and len(known) == len(counts) else None


def _skipped(program: HeldProgram) -> int | None:
    fields = _fields(program.fdinfo)
    if _number(fields, _IDENTITY) != program.identity:
        raise OpwatchError(
            f"{program.fdinfo}: BPF program {program.identity} is no longer there, so that nobody knows how "
            "many of its runs were skipped. Start again"
        )
    return _number(fields, _SKIPPED)


def _fields(fdinfo: Path) -> dict[str, str]:
    """The fields of a descriptor, none where it is closed."""
    try:
        text = read_text(fdinfo)
    except FileNotFoundError:
        return {}
    pairs = (line.partition(":") for line in lines_of(text))
    return {name: value for name, colon, value in pairs if colon}


def _number(fields: Mapping[str, str], name: str) -> int | None:
    return whole(fields.get(name, ""))
