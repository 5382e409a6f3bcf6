"""The target's sanitize, as opwatch reads it from a drive: refused commands during the sanitize, and the
result."""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict
from pathlib import Path

import pytest

from opwatch.counters.decode.identify import decode_controller
from opwatch.counters.decode.sanitize_log import BLOCK_ERASE, OVERWRITE, SanitizeState, decode_sanitize_log
from opwatch.sweep.namespace.sanitize import choose_sanitize_action, find_sanitize_failure
from tests.vm.guest.target.drive import BLOCK, TargetDrive
from tests.vm.guest.target.identify import build_identify_page
from tests.vm.guest.target.sanitize import CRYPTO, SanitizeOrders
from tests.vm.guest.target.statuses import Status

_MIB = 1 << 20


def write_orders(drive: TargetDrive, orders: SanitizeOrders) -> None:
    drive.orders.write_text(json.dumps({"fail": {}, "hold": [], "sanitize": asdict(orders)}))


@pytest.fixture
def drive(tmp_path: Path) -> TargetDrive:
    """A drive with a namespace of 4 MiB, 1 MiB of it written."""
    made = TargetDrive(8 * _MIB, tmp_path / "log", tmp_path / "orders")
    write_orders(made, SanitizeOrders(seconds=0.2))
    made.set_attached(made.create_namespace(4 * _MIB // BLOCK, 4 * _MIB // BLOCK, 0), attached=True)
    os.pwrite(made.namespaces[1].file, b"x" * _MIB, _MIB)
    return made


def read_notes(drive: TargetDrive) -> list[tuple[str, int]]:
    lines = [json.loads(line) for line in drive.log.read_text().splitlines()]
    return [(line["what"], line["bytes"]) for line in lines if line["what"] not in ("create", "attach")]


def wait_for_end(drive: TargetDrive) -> SanitizeState:
    until = time.monotonic() + 10
    while decode_sanitize_log(drive.sanitizing.encode_page()).state is SanitizeState.UNDER_WAY:
        assert time.monotonic() < until
        time.sleep(0.02)
    return decode_sanitize_log(drive.sanitizing.encode_page()).state


def test_commands_are_refused_until_the_sanitize_has_erased_all_data(drive: TargetDrive) -> None:
    action = choose_sanitize_action(decode_controller(build_identify_page(drive, 1, 0, 0)))
    assert action == BLOCK_ERASE
    assert decode_sanitize_log(drive.sanitizing.encode_page()).state is SanitizeState.NEVER
    drive.sanitizing.require_no_sanitize()
    drive.sanitizing.start_sanitize(action)
    assert (decode_sanitize_log(drive.sanitizing.encode_page()).progress_ratio or 0) < 1
    for refused in (
        drive.sanitizing.require_no_sanitize,
        lambda: drive.delete_namespace(1),
        lambda: drive.sanitizing.start_sanitize(2),
    ):
        with pytest.raises(Status, match="01Dh"):
            refused()
    assert wait_for_end(drive) is SanitizeState.DONE
    log = decode_sanitize_log(drive.sanitizing.encode_page())
    assert find_sanitize_failure(log, action, "nvme0", "") is None
    drive.sanitizing.require_no_sanitize()
    assert read_notes(drive) == [("sanitize", _MIB), ("sanitized", 0)]


def test_failed_sanitize_keeps_the_data_and_another_sanitize_succeeds(drive: TargetDrive) -> None:
    write_orders(drive, SanitizeOrders(seconds=0.05, fails=True))
    drive.sanitizing.start_sanitize(BLOCK_ERASE)
    assert wait_for_end(drive) is SanitizeState.FAILED
    with pytest.raises(Status, match="01Ch"):
        drive.sanitizing.require_no_sanitize()
    write_orders(drive, SanitizeOrders(seconds=0.05))
    drive.sanitizing.start_sanitize(BLOCK_ERASE)
    assert wait_for_end(drive) is SanitizeState.DONE
    assert [what for what, _ in read_notes(drive)] == ["sanitize", "failed", "sanitize", "sanitized"]


def test_unsupported_sanitize_actions_are_refused(drive: TargetDrive) -> None:
    write_orders(drive, SanitizeOrders(offers=CRYPTO))
    for order in (BLOCK_ERASE, OVERWRITE, 0, 1, 4 | 1 << 9):
        with pytest.raises(Status, match="002h"):
            drive.sanitizing.start_sanitize(order)
    write_orders(drive, SanitizeOrders(offers=0))
    with pytest.raises(Status, match="001h"):
        drive.sanitizing.start_sanitize(4)
    assert read_notes(drive) == []
