"""Restore the original namespace from every state that a killed sweep can leave."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opwatch.counters.decode.identify import decode_namespace
from opwatch.errors import RefusedError
from opwatch.guard.identity import DiskIdentity
from opwatch.journal.state import SweepState
from opwatch.journal.undo import parse_undo
from opwatch.sweep.namespace.restore import (
    ExistingNamespace,
    NamespaceUndo,
    RestoreAction,
    choose_restore_action,
    encode_flbas,
    format_restore_commands,
    make_create_page,
)
from tests.unit.sweep.test_journal import REQUEST

UNDO = NamespaceUndo(1, 65536, 512, 65000, 0x12, 2, 3, 16384)


def make_namespace(size: int, *, attached: bool, lba_format: int = 0x12) -> ExistingNamespace:
    return ExistingNamespace(1, size, lba_format, attached)


@pytest.mark.parametrize(
    ("there", "way"),
    [
        ([], RestoreAction.CREATE),
        ([make_namespace(65536, attached=True)], RestoreAction.NOTHING),
        ([make_namespace(65536, attached=False)], RestoreAction.ATTACH),
        ([make_namespace(16384, attached=True)], RestoreAction.REPLACE),
        ([make_namespace(16384, attached=False)], RestoreAction.REPLACE),
    ],
)
def test_every_state_left_by_a_sweep_is_restored(there: list[ExistingNamespace], way: RestoreAction) -> None:
    assert choose_restore_action(UNDO, there, "nvme0") is way


@pytest.mark.parametrize(
    "there",
    [
        [make_namespace(4096, attached=True)],
        [make_namespace(65536, attached=True, lba_format=0)],
        [make_namespace(16384, attached=True), ExistingNamespace(2, 65536, 0x12, True)],
    ],
)
def test_namespaces_of_other_tools_stay(there: list[ExistingNamespace]) -> None:
    with pytest.raises(RefusedError, match=rf"^nvme0 .*\(1 of {there[0].size_lbas} blocks"):
        choose_restore_action(UNDO, there, "nvme0")


def test_namespace_is_created_with_its_old_parameters() -> None:
    made = decode_namespace(make_create_page(UNDO.size_lbas, UNDO.capacity_lbas, UNDO))
    assert (made.size_lbas, made.capacity_lbas, made.lba_format) == (65536, 65000, 0x12)
    assert (made.nvm_set, made.endurance_group) == (2, 3)
    assert (made.is_shared, made.protection) == (False, 0)
    # The upper two of a format's six bits are bits 5 and 6.
    assert encode_flbas(0x12) == 0x22


def test_manual_commands_recreate_the_namespace() -> None:
    words = format_restore_commands(UNDO, "nvme0", 7)
    create = "create-ns /dev/nvme0 --nsze=65536 --ncap=65000 --flbas=34 --nvmset-id=2 --endg-id=3"
    assert create in words
    assert "attach-ns /dev/nvme0 --namespace-id=N --controllers=7" in words
    assert "set-id" not in format_restore_commands(replace(UNDO, nvm_set=0, endurance_group=0), "nvme0", 7)


def test_namespace_undo_is_parsed_from_its_text() -> None:
    assert parse_undo(str(UNDO)) == UNDO
    assert UNDO.size_bytes == 32 << 20


def test_reappeared_disk_belongs_to_the_drive() -> None:
    state = SweepState(REQUEST)
    assert state.disk_identity == REQUEST.identity
    state.disk = DiskIdentity("nvme0n1", (259, 2), "boot", 9, 1 << 30, "M", "S1", "eui.2", 1)
    assert state.disk_identity.wwid == "eui.2"
