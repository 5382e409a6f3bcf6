"""BPF programs of another process, and the number of their runs that the kernel skipped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from opwatch.errors import OpwatchError
from opwatch.foreign import parse_unsigned, read_text, split_lines

# BPF_PROG_TYPE_TRACING of linux/bpf.h: fentry and related types.
TRACING = 26
# A link has a prog_id too, but no prog_type.
_KIND, _IDENTITY = "prog_type", "prog_id"
# Since Linux kernel commit 9ed9e9ba2337 ("bpf: Count the number of times recursion was prevented") (in
# v5.12).
_SKIPPED = "recursion_misses"


@dataclass(frozen=True, slots=True)
class HeldProgram:
    """Program of a descriptor, with its file in /proc/PID/fdinfo."""

    fdinfo: Path
    identity: int


class HeldPrograms:
    """Programs of one type that a process holds.

    The process must be an unreaped child of ours, so that its pid cannot be reused.
    """

    def __init__(self, process: Path, kind: int = TRACING) -> None:
        """Read the programs of `process`, a folder in /proc. Raises OSError without access."""
        by_identity: dict[int, HeldProgram] = {}
        for fdinfo in sorted((process / "fdinfo").iterdir()):
            fields = _read_fields(fdinfo)
            identity = _parse_field(fields, _IDENTITY)
            if identity is not None and _parse_field(fields, _KIND) == kind:
                # Several descriptors can refer to one program.
                by_identity.setdefault(identity, HeldProgram(fdinfo, identity))
        self.programs = tuple(by_identity.values())

    def count_skipped(self) -> int | None:
        """Return the skipped runs of all programs since load, or None if unknown or without programs."""
        counts = [_read_skipped_runs(program) for program in self.programs]
        known = [count for count in counts if count is not None]
        return sum(known) if known and len(known) == len(counts) else None


def _read_skipped_runs(program: HeldProgram) -> int | None:
    fields = _read_fields(program.fdinfo)
    if _parse_field(fields, _IDENTITY) != program.identity:
        raise OpwatchError(
            f"{program.fdinfo}: BPF program {program.identity} is gone, so the number of its skipped runs is "
            "unknown. Start opwatch again"
        )
    return _parse_field(fields, _SKIPPED)


def _read_fields(fdinfo: Path) -> dict[str, str]:
    """Return the fields of a descriptor, or none if it is closed."""
    try:
        text = read_text(fdinfo)
    except FileNotFoundError:
        return {}
    pairs = (line.partition(":") for line in split_lines(text))
    return {name: value for name, colon, value in pairs if colon}


def _parse_field(fields: Mapping[str, str], name: str) -> int | None:
    return parse_unsigned(fields.get(name, ""))
