"""The changes a sweep made to a drive, as recorded in the journal until undone. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from opwatch.errors import BadInput
from opwatch.sweep.namespace.restore import NamespaceUndo, parse_namespace_undo

_PARTITION = re.compile(r"partition 1: ([0-9]{1,20}) bytes from the begin", re.ASCII)
_FILES = re.compile(r"files in (\.opwatch-sweep-[0-9A-Za-z-]{1,100})", re.ASCII)
_HIGHEST = re.compile(r"highest address: ([0-9]{1,20}) of ([0-9]{1,20}) bytes", re.ASCII)
_PASSWORD = re.compile(r"password (opwatch) of the user, for an erase", re.ASCII)
# The sweep's name follows this prefix.
FOLDER_PREFIX = ".opwatch-sweep-"


@dataclass(frozen=True, slots=True)
class PartitionUndo:
    """The first partition, to be deleted: from the drive's first byte, `length_bytes` long."""

    length_bytes: int

    def __str__(self) -> str:
        return f"partition 1: {self.length_bytes} bytes from the begin"


@dataclass(frozen=True, slots=True)
class FilesUndo:
    """Files to delete, together with their folder `folder` at the mount point."""

    folder: str

    def __str__(self) -> str:
        return f"files in {self.folder}"


@dataclass(frozen=True, slots=True)
class HighestUndo:
    """A highest address to restore.

    The drive shows `shown_bytes` at the level and `original_bytes` otherwise.
    """

    shown_bytes: int
    original_bytes: int

    def __str__(self) -> str:
        return f"highest address: {self.shown_bytes} of {self.original_bytes} bytes"


@dataclass(frozen=True, slots=True)
class PasswordUndo:
    """A password of an ATA drive to remove.

    The password is set only because an erase requires a password, and is not secret.
    """

    password: str

    def __str__(self) -> str:
        return f"password {self.password} of the user, for an erase"


SweepUndo = PartitionUndo | FilesUndo | NamespaceUndo | HighestUndo | PasswordUndo


def parse_undo(text: str) -> SweepUndo:
    """Parse the text of a journal entry. Raises BadInput for a change unknown to this version of opwatch."""
    if match := _PARTITION.fullmatch(text):
        return PartitionUndo(int(match[1]))
    if match := _FILES.fullmatch(text):
        return FilesUndo(match[1])
    if namespace := parse_namespace_undo(text):
        return namespace
    if match := _HIGHEST.fullmatch(text):
        return HighestUndo(int(match[1]), int(match[2]))
    if match := _PASSWORD.fullmatch(text):
        return PasswordUndo(match[1])
    raise BadInput(f"the journal has a change that this opwatch cannot undo: {text!r:.100}")
