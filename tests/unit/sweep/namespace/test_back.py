"""Restore the original namespace from every state that a killed sweep can leave."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opwatch.counters.decode.identify import decode_namespace
from opwatch.errors import RefusedError
from opwatch.guard.identity import DiskIdentity
from opwatch.sweep.journal.state import SweepState
from opwatch.sweep.journal.undo import parse_undo
from opwatch.sweep.namespace.back import (
    NamespaceUndo,
    SeenNamespace,
    WayBack,
    by_hand,
    create_page,
    flbas,
    way_back,
)
from tests.unit.sweep.test_journal import REQUEST

UNDO = NamespaceUndo(1, 65536, 512, 65000, 0x12, 2, 3, 16384)


def a_namespace(size: int, *, attached: bool, lba_format: int = 0x12) -> SeenNamespace:
    return SeenNamespace(1, size, lba_format, attached)


@pytest.mark.parametrize(
    ("there", "way"),
    [
        ([], WayBack.CREATE),
        ([a_namespace(65536, attached=True)], WayBack.NOTHING),
        ([a_namespace(65536, attached=False)], WayBack.ATTACH),
        ([a_namespace(16384, attached=True)], WayBack.REPLACE),
        ([a_namespace(16384, attached=False)], WayBack.REPLACE),
    ],
)
def test_every_state_left_by_a_sweep_is_restored(there: list[SeenNamespace], way: WayBack) -> None:
    assert way_back(UNDO, there, "nvme0") is way


@pytest.mark.parametrize(
    "there",
    [
        [a_namespace(4096, attached=True)],
        [a_namespace(65536, attached=True, lba_format=0)],
        [a_namespace(16384, attached=True), SeenNamespace(2, 65536, 0x12, True)],
    ],
)
def test_namespaces_of_other_tools_stay(there: list[SeenNamespace]) -> None:
    with pytest.raises(RefusedError, match="they are somebody's, and stay"):
        way_back(UNDO, there, "nvme0")


def test_namespace_is_created_with_its_old_parameters() -> None:
    made = decode_namespace(create_page(UNDO.size_lbas, UNDO.capacity_lbas, UNDO))
    assert (made.size_lbas, made.capacity_lbas, made.lba_format) == (65536, 65000, 0x12)
    assert (made.nvm_set, made.endurance_group) == (2, 3)
    assert (made.is_shared, made.protection) == (False, 0)
    # The upper two of a format's six bits are bits 5 and 6.
    assert flbas(0x12) == 0x22


def test_manual_commands_recreate_the_namespace() -> None:
    words = by_hand(UNDO, "nvme0", 7)
    create = "create-ns /dev/nvme0 --nsze=65536 --ncap=65000 --flbas=34 --nvmset-id=2 --endg-id=3"
    assert create in words
    assert "attach-ns /dev/nvme0 --namespace-id=N --controllers=7" in words
    assert "set-id" not in by_hand(replace(UNDO, nvm_set=0, endurance_group=0), "nvme0", 7)


def test_namespace_undo_is_parsed_from_its_text() -> None:
    assert parse_undo(str(UNDO)) == UNDO
    assert UNDO.size_bytes == 32 << 20


def test_the_disk_that_is_there_again_is_the_drives() -> None:
    state = SweepState(REQUEST)
    assert state.identity == REQUEST.identity
    state.disk = DiskIdentity("nvme0n1", (259, 2), "boot", 9, 1 << 30, "M", "S1", "eui.2", 1)
    assert state.identity.wwid == "eui.2"
