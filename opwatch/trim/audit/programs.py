"""Which programs follow discards: what each is for, and so whether it is loaded."""

from __future__ import annotations

import enum
from collections.abc import Iterable

from opwatch.frozen import frozen
from opwatch.trace.programs import Attachment, Program, Way


class Follows(enum.Enum):
    """What a program follows. Those of the last three are loaded only where somebody asks for that."""

    BLOCK = "what the block layer does"
    FILESYSTEM = "what a filesystem tells of its extents"
    COMMANDS = "the commands that drivers make, also of reads and writes"
    CLONES = "requests that device mapper hands on"
    CLAIMS = "the calls of FITRIM of every process"


@frozen
class DiscardProgram:
    """One program of bpf/discard. `at_function`: it is attached to a function, and not to a tracepoint;
    `filesystem`: it knows the events of this one."""

    name: str
    follows: Follows = Follows.BLOCK
    at_function: bool = False
    filesystem: str | None = None
    needs: str = ""
    attachment: Attachment = Attachment.OPTIONAL


# What FITRIM comes through; its name is the one of this architecture.
_IOCTL = "__x64_sys_ioctl"
# From the end of a discard's way to its beginning, in each layer: the order of attachment. Without those
# that are required there is nothing to audit.
PROGRAMS = (
    DiscardProgram("discard_bio_done"),
    DiscardProgram("discard_frontmerge"),
    DiscardProgram("discard_backmerge"),
    DiscardProgram("discard_split"),
    DiscardProgram("discard_remapped"),
    DiscardProgram("discard_bio", attachment=Attachment.REQUIRED),
    DiscardProgram("discard_submitted", at_function=True),
    DiscardProgram("discard_fitrim_any", Follows.CLAIMS, needs=_IOCTL),
    DiscardProgram("discard_fitrim", Follows.CLAIMS, at_function=True, needs=_IOCTL),
    DiscardProgram("discard_ata_failed", Follows.COMMANDS),
    DiscardProgram("discard_ata_done", Follows.COMMANDS),
    DiscardProgram("discard_ata", Follows.COMMANDS),
    DiscardProgram("discard_asked", at_function=True),
    DiscardProgram("discard_f2fs_queued", Follows.FILESYSTEM, filesystem="f2fs"),
    DiscardProgram("discard_f2fs_extent", Follows.FILESYSTEM, filesystem="f2fs"),
    DiscardProgram("discard_xfs_passed", Follows.FILESYSTEM, filesystem="xfs"),
    DiscardProgram("discard_xfs_busy", Follows.FILESYSTEM, filesystem="xfs"),
    DiscardProgram("discard_xfs_small", Follows.FILESYSTEM, filesystem="xfs"),
    DiscardProgram("discard_xfs_extent", Follows.FILESYSTEM, filesystem="xfs"),
    DiscardProgram("discard_ext4_group", Follows.FILESYSTEM, filesystem="ext4"),
    DiscardProgram("discard_ext4_extent", Follows.FILESYSTEM, filesystem="ext4"),
    DiscardProgram("discard_cloned", Follows.CLONES),
    DiscardProgram("discard_scsi", Follows.COMMANDS),
    DiscardProgram("discard_nvme", Follows.COMMANDS),
    DiscardProgram("discard_rq_merge"),
    DiscardProgram("discard_done", attachment=Attachment.REQUIRED),
    DiscardProgram("discard_requeued"),
    DiscardProgram("discard_issued", attachment=Attachment.REQUIRED),
)
TELLING = frozenset(program.filesystem for program in PROGRAMS if program.filesystem)
CLAIMING = frozenset(program.name for program in PROGRAMS if program.follows is Follows.CLAIMS)
# What the block tracer can call from programs of its own on the same events.
CHAINED = frozenset({"discard_issued", "discard_done"})


@frozen
class Following:
    """What is to be followed. `functions`: programs may be attached to functions; `chained`: the block tracer
    calls those of CHAINED; `claims`: follow every process's calls of FITRIM; `commands`: count those that
    drivers make of discards, at the cost of a look at each that they make; `clones`: there is a device mapper
    that hands requests on, without which that program could tell nothing; `filesystem`: whose events are
    wanted, None for those of all."""

    functions: bool = True
    chained: bool = False
    claims: bool = False
    commands: bool = True
    clones: bool = False
    filesystem: str | None = None

    def wants(self, program: DiscardProgram) -> bool:
        match program.follows:
            case Follows.COMMANDS:
                return self.commands
            case Follows.CLONES:
                return self.clones
            case Follows.CLAIMS:
                # At the call itself, or else at every system call.
                return self.claims and program.at_function == self.functions
            case Follows.FILESYSTEM:
                return self.filesystem in (None, program.filesystem)
        if program.name == "discard_asked" and self.filesystem in TELLING:
            return False  # the filesystem has told it already
        return self.functions or not program.at_function


# All that an audit of one filesystem may need, whichever it is.
AUDITED = Following()


def chosen(following: Following) -> Way:
    """The programs to load for that."""
    return tuple(
        Program(
            program.name,
            program.needs,
            Attachment.CALLED if following.chained and program.name in CHAINED else program.attachment,
        )
        for program in PROGRAMS
        if following.wants(program)
    )


def absent(attached: Iterable[tuple[str, int]]) -> frozenset[str]:
    """Programs that do not run, of those that an audit misses: this kernel has no such event, or lets nobody
    see it, or they were not wanted. `attached` are those that were loaded, each with its errno or 0."""
    errors = dict(attached)
    missed = {program.name for program in PROGRAMS if program.follows in (Follows.BLOCK, Follows.FILESYSTEM)}
    return frozenset({name for name, error in errors.items() if error} | missed - errors.keys())
