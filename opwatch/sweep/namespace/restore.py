"""Find the steps for restoring a drive's original NVMe namespace, wherever a sweep was killed. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from opwatch.counters.decode.identify import LENGTH
from opwatch.errors import RefusedError

_NUMBER = r"([0-9]{1,20})"
_UNDO = re.compile(
    rf"namespace {_NUMBER}: {_NUMBER} blocks of {_NUMBER} bytes, capacity {_NUMBER}, format {_NUMBER}, set "
    rf"{_NUMBER}, group {_NUMBER}; one of {_NUMBER} blocks in its place",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class NamespaceUndo:
    """An NVMe namespace to restore.

    A namespace of `level_lbas` blocks may exist in its place. `lba_format` is the index in the controller's
    list of formats.
    """

    nsid: int
    size_lbas: int
    lba_bytes: int
    capacity_lbas: int
    lba_format: int
    nvm_set: int
    endurance_group: int
    level_lbas: int

    def __str__(self) -> str:
        return (
            f"namespace {self.nsid}: {self.size_lbas} blocks of {self.lba_bytes} bytes, capacity "
            f"{self.capacity_lbas}, format {self.lba_format}, set {self.nvm_set}, group "
            f"{self.endurance_group}; one of {self.level_lbas} blocks in its place"
        )

    @property
    def size_bytes(self) -> int:
        return self.size_lbas * self.lba_bytes


def parse_namespace_undo(text: str) -> NamespaceUndo | None:
    """Parse a change from a journal; return None if the text describes another kind of change."""
    match = _UNDO.fullmatch(text)
    return NamespaceUndo(*(int(number) for number in match.groups())) if match else None


def make_create_page(size_lbas: int, capacity_lbas: int, undo: NamespaceUndo) -> bytes:
    """Return the data of a Create: private to one controller, no protection, original LBA format."""
    page = bytearray(LENGTH)
    page[0:8] = size_lbas.to_bytes(8, "little")
    page[8:16] = capacity_lbas.to_bytes(8, "little")
    page[26] = encode_flbas(undo.lba_format)
    page[100:102] = undo.nvm_set.to_bytes(2, "little")
    page[102:104] = undo.endurance_group.to_bytes(2, "little")
    return bytes(page)


def encode_flbas(lba_format: int) -> int:
    """Return FLBAS for a format index. FLBAS stores the index in two separate bit fields."""
    return lba_format & 0x0F | (lba_format & 0x30) << 1


def format_restore_commands(undo: NamespaceUndo, controller: str, number: int) -> str:
    """Return the commands for a user to run if opwatch cannot restore the namespace."""
    more = f" --nvmset-id={undo.nvm_set}" if undo.nvm_set else ""
    more += f" --endg-id={undo.endurance_group}" if undo.endurance_group else ""
    node = f"/dev/{controller}"
    return (
        f"nvme list-ns --all {node} lists the namespaces; delete the one of the sweep (nvme delete-ns "
        f"{node} --namespace-id=N), then nvme create-ns {node} --nsze={undo.size_lbas} "
        f"--ncap={undo.capacity_lbas} --flbas={encode_flbas(undo.lba_format)}{more}, and nvme "
        f"attach-ns {node} "
        f"--namespace-id=N --controllers={number} with the number that it prints"
    )


@dataclass(frozen=True, slots=True)
class ExistingNamespace:
    """A current namespace of the drive."""

    nsid: int
    size_lbas: int
    lba_format: int
    is_attached: bool


class RestoreAction(StrEnum):
    """The action that gives the drive its namespace back."""

    NOTHING = "nothing"  # the namespace exists
    ATTACH = "attach"  # the namespace exists, but no controller is attached
    CREATE = "create"  # no namespace exists
    REPLACE = "replace"  # the namespace of a level exists


def choose_restore_action(
    undo: NamespaceUndo, there: Sequence[ExistingNamespace], name: str
) -> RestoreAction:
    """Return the action that restores the namespace, given the drive's current namespaces.

    Raises RefusedError for a state not left by a sweep: another user has changed the drive since.
    """
    if not there:
        return RestoreAction.CREATE
    if len(there) == 1 and there[0].lba_format == undo.lba_format:
        [one] = there
        if one.size_lbas == undo.size_lbas:
            return RestoreAction.NOTHING if one.is_attached else RestoreAction.ATTACH
        if one.size_lbas == undo.level_lbas:
            return RestoreAction.REPLACE
    listed = ", ".join(f"{one.nsid} of {one.size_lbas} blocks" for one in there)
    raise RefusedError(f"{name} has namespaces that the sweep did not create ({listed}): they are left alone")
