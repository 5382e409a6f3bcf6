"""Select the BPF programs for tracing discards."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass

from opwatch.trace.programs import Attachment, Program, ProgramSet


class ProgramPurpose(enum.Enum):
    """Purpose of a program. COMMANDS, CLONES and CLAIMS are optional."""

    BLOCK = "block layer events"
    FILESYSTEM = "a filesystem's extent events"
    COMMANDS = "driver commands, including reads and writes"
    CLONES = "requests cloned by device mapper"
    CLAIMS = "FITRIM calls of every process"


@dataclass(frozen=True, slots=True)
class DiscardProgram:
    """A program in bpf/discard. `at_function` is True if the program attaches to a function instead of a
    tracepoint. `filesystem` is the type of filesystem with the traced event, None for other events."""

    name: str
    follows: ProgramPurpose = ProgramPurpose.BLOCK
    at_function: bool = False
    filesystem: str | None = None
    needs: str = ""
    attachment: Attachment = Attachment.OPTIONAL


# The entry point of ioctl(2) on x86-64; the name differs on other architectures.
_IOCTL = "__x64_sys_ioctl"
# In order of attachment: within each layer, from the last event of a discard to the first. An audit needs
# every REQUIRED program.
PROGRAMS = (
    DiscardProgram("discard_bio_done"),
    DiscardProgram("discard_frontmerge"),
    DiscardProgram("discard_backmerge"),
    DiscardProgram("discard_split"),
    DiscardProgram("discard_remapped"),
    DiscardProgram("discard_bio", attachment=Attachment.REQUIRED),
    DiscardProgram("discard_submitted", at_function=True),
    DiscardProgram("discard_fitrim_any", ProgramPurpose.CLAIMS, needs=_IOCTL),
    DiscardProgram("discard_fitrim", ProgramPurpose.CLAIMS, at_function=True, needs=_IOCTL),
    DiscardProgram("discard_ata_failed", ProgramPurpose.COMMANDS),
    DiscardProgram("discard_ata_done", ProgramPurpose.COMMANDS),
    DiscardProgram("discard_ata", ProgramPurpose.COMMANDS),
    DiscardProgram("discard_asked", at_function=True),
    DiscardProgram("discard_f2fs_queued", ProgramPurpose.FILESYSTEM, filesystem="f2fs"),
    DiscardProgram("discard_f2fs_extent", ProgramPurpose.FILESYSTEM, filesystem="f2fs"),
    DiscardProgram("discard_xfs_passed", ProgramPurpose.FILESYSTEM, filesystem="xfs"),
    DiscardProgram("discard_xfs_busy", ProgramPurpose.FILESYSTEM, filesystem="xfs"),
    DiscardProgram("discard_xfs_small", ProgramPurpose.FILESYSTEM, filesystem="xfs"),
    DiscardProgram("discard_xfs_extent", ProgramPurpose.FILESYSTEM, filesystem="xfs"),
    DiscardProgram("discard_ext4_group", ProgramPurpose.FILESYSTEM, filesystem="ext4"),
    DiscardProgram("discard_ext4_extent", ProgramPurpose.FILESYSTEM, filesystem="ext4"),
    DiscardProgram("discard_cloned", ProgramPurpose.CLONES),
    DiscardProgram("discard_scsi", ProgramPurpose.COMMANDS),
    DiscardProgram("discard_nvme", ProgramPurpose.COMMANDS),
    DiscardProgram("discard_rq_merge"),
    DiscardProgram("discard_done", attachment=Attachment.REQUIRED),
    DiscardProgram("discard_requeued"),
    DiscardProgram("discard_issued", attachment=Attachment.REQUIRED),
)
TRACED_FILESYSTEMS = frozenset(program.filesystem for program in PROGRAMS if program.filesystem)
CLAIM_PROGRAMS = frozenset(program.name for program in PROGRAMS if program.follows is ProgramPurpose.CLAIMS)
# Callable by the block tracer's programs on the same events.
CHAINED = frozenset({"discard_issued", "discard_done"})


@dataclass(frozen=True, slots=True)
class ProgramOptions:
    """Options of the program selection.

    functions: programs may attach to functions.
    chained: the block tracer calls the programs in CHAINED.
    claims: trace every process's FITRIM calls.
    commands: count the drivers' discard commands. The programs run for each command, reads and writes too.
    clones: device mapper is loaded and may clone requests.
    filesystem: trace only this filesystem's events; None for all filesystems."""

    functions: bool = True
    chained: bool = False
    claims: bool = False
    commands: bool = True
    clones: bool = False
    filesystem: str | None = None

    def is_selected(self, program: DiscardProgram) -> bool:
        match program.follows:
            case ProgramPurpose.COMMANDS:
                return self.commands
            case ProgramPurpose.CLONES:
                return self.clones
            case ProgramPurpose.CLAIMS:
                # discard_fitrim traces only ioctl(2); its fallback, discard_fitrim_any, runs at every system
                # call.
                return self.claims and program.at_function == self.functions
            case ProgramPurpose.FILESYSTEM:
                return self.filesystem in (None, program.filesystem)
        if program.name == "discard_asked" and self.filesystem in TRACED_FILESYSTEMS:
            return False  # the filesystem's own events report the same extents
        return self.functions or not program.at_function


# For an audit whose filesystem type is not known yet.
AUDIT_OPTIONS = ProgramOptions()


def select_programs(following: ProgramOptions) -> ProgramSet:
    """Return the programs to load."""
    return tuple(
        Program(
            program.name,
            program.needs,
            Attachment.CALLED if following.chained and program.name in CHAINED else program.attachment,
        )
        for program in PROGRAMS
        if following.is_selected(program)
    )


def find_absent(attached: Iterable[tuple[str, int]]) -> frozenset[str]:
    """Return the programs that do not run: loaded programs with an error, and an audit's programs if not
    loaded. `attached` has each loaded program with an errno or 0."""
    errors = dict(attached)
    missed = {
        program.name
        for program in PROGRAMS
        if program.follows in (ProgramPurpose.BLOCK, ProgramPurpose.FILESYSTEM)
    }
    return frozenset({name for name, error in errors.items() if error} | missed - errors.keys())
