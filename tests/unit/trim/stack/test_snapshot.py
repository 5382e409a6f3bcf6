"""Pages read before a trim and decoded afterwards: the pages requested, and the decoded values."""

from __future__ import annotations

from pathlib import Path

import pytest

from opwatch.collectors.audit import accounts as trim_accounts
from opwatch.collectors.audit.accounts import DriveCounters
from opwatch.collectors.firmware.transports import Snapshot
from opwatch.counters.decode import identify, ocp
from opwatch.counters.decode.identify import Controller
from opwatch.errors import OpwatchError
from opwatch.host.device import BlockDevice
from opwatch.trim.audit.accounts import Account, CounterMeaning
from tests.unit.support.trim_evidence import make_layer, make_stack

UUID_LIST_BIT = 1 << 9
LBAS_TRIMMED = 0xE5


def encode_controller(model: str, vendor: int = 0, attributes: int = 0) -> bytes:
    raw = bytearray(identify.LENGTH)
    raw[0:2] = vendor.to_bytes(2, "little")
    raw[24:64] = model.encode().ljust(40)
    raw[96:100] = attributes.to_bytes(4, "little")
    return bytes(raw)


class FakeDrive:
    """Pages by number; `asked` lists every command."""

    def __init__(self, raw: bytes, logs: dict[int, bytes], uuids: bytes = bytes(identify.LENGTH)) -> None:
        self.structures = {identify.CONTROLLER: raw, identify.UUID_LIST: uuids}
        self.logs = logs
        self.asked: list[tuple[int, ...]] = []

    def get_log(self, lid: int, length: int, lsi: int = 0, uuid_index: int = 0) -> bytes:
        self.asked.append((lid, uuid_index))
        if lid not in self.logs:
            raise OpwatchError("invalid log page")
        return self.logs[lid]

    def identify(self, cns: int, nsid: int) -> bytes:
        if cns not in self.structures:
            raise OpwatchError("invalid field")
        return self.structures[cns]


def encode_memblaze_page(trimmed: int) -> bytes:
    """Return log CAh, version 3: items with a key, a health byte, 48 bits and two more bytes."""
    raw = bytearray(512)
    raw[0], raw[1], raw[511] = LBAS_TRIMMED, 100, 3
    raw[2:8] = trimmed.to_bytes(6, "little")
    return bytes(raw)


def test_only_known_vendor_pages_of_the_drive_are_read() -> None:
    drive = FakeDrive(encode_controller("SAMSUNG MZQL2960HCJR-00A07", 0x144D), {})
    Snapshot(drive, 1, lambda _: ())
    assert drive.asked == [(ocp.LID, 0)]


def test_ocp_page_is_requested_by_its_uuid() -> None:
    uuids = bytearray(identify.LENGTH)
    uuids[32 * 2 + 16 : 32 * 3] = identify.OCP_UUID
    uuids[32 * 1 + 16 : 32 * 2] = b"\x11" * 16
    drive = FakeDrive(
        encode_controller("M", attributes=UUID_LIST_BIT), {ocp.LID: b"\x07" * 512}, bytes(uuids)
    )
    pages = Snapshot(drive, 1, lambda _: ())
    assert drive.asked == [(ocp.LID, 2)]
    assert pages.get_log(ocp.LID, 512, 0, 2) == b"\x07" * 512
    with pytest.raises(OpwatchError, match="was not read"):
        pages.get_log(0xCA, 512)
    with pytest.raises(OpwatchError, match="was not read"):
        pages.identify(identify.NAMESPACE, 1)


def test_unnamed_controller_has_no_vendor_pages() -> None:
    asked: list[Controller] = []

    def choose_no_pages(identified: Controller) -> tuple[int, ...]:
        asked.append(identified)
        return ()

    drive = FakeDrive(b"", {})
    Snapshot(drive, 1, choose_no_pages)
    assert asked == [Controller()]


def test_pages_read_before_a_trim_are_decoded_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drive = FakeDrive(encode_controller("opwatch simulated SSD"), {0xCA: encode_memblaze_page(1000)})
    device = BlockDevice("loop0", (7, 0), tmp_path)
    monkeypatch.setattr(trim_accounts, "find_simulated", lambda _: drive)
    monkeypatch.setattr(trim_accounts, "Devices", lambda: type("Only", (), {"by_name": lambda *_: device})())
    accounts = DriveCounters(make_stack(make_layer("loop0", "7:0")))
    drive.logs[0xCA] = encode_memblaze_page(1013)
    [account] = accounts.compare_counters()
    assert account == Account("loop0", "log CAh E5", CounterMeaning.TRIMMED, 512, 1000, 1013)
