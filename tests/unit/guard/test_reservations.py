"""Persistent reservations: replies of disks, and the resulting reasons."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opwatch.collectors.guard import registered as module
from opwatch.collectors.guard.registered import find_registrants
from opwatch.collectors.space.scsi import ScsiRefusal
from opwatch.errors import BadInput
from opwatch.guard.reservations import (
    Reservation,
    build_keys_command,
    build_reservation_command,
    decode_keys,
    decode_reservation,
)

GOOD = Path(__file__).parents[2] / "fixtures" / "good" / "guard"
BAD = Path(__file__).parents[2] / "fixtures" / "bad" / "guard"


def read_answer(name: str, folder: Path = GOOD) -> bytes:
    return bytes.fromhex((folder / f"{name}.hex").read_text())


def test_commands_match_the_standard() -> None:
    assert build_keys_command().hex() == "5e000000000000100000"
    assert build_reservation_command().hex() == "5e010000000000100000"


def test_keys_and_the_reservation_are_read() -> None:
    assert decode_keys(read_answer("no-keys")) == ()
    assert decode_keys(read_answer("two-keys")) == (0x123ABC, 0xFEDCBA9876543210)
    assert decode_reservation(read_answer("no-reservation")) is None
    assert decode_reservation(read_answer("reservation")) == Reservation(
        0x123ABC, "write exclusive, registrants only"
    )


def test_truncated_answer_keeps_the_complete_keys() -> None:
    assert decode_keys(read_answer("two-keys")[:20]) == (0x123ABC,)


@pytest.mark.parametrize("name", ["short", "odd-length"])
@pytest.mark.parametrize("decode", [decode_keys, decode_reservation])
def test_damaged_data_is_refused(name: str, decode: Callable[[bytes], object]) -> None:
    with pytest.raises(BadInput, match=r"\d bytes"):
        decode(read_answer(name, BAD))


@given(st.binary(max_size=80))
def test_any_answer_is_decoded_or_refused(raw: bytes) -> None:
    for decode in (decode_keys, decode_reservation):
        try:
            decode(raw)
        except BadInput:
            continue


def make_refusal(sense: str) -> ScsiRefusal:
    return ScsiRefusal(2, bytes.fromhex(sense))


def list_sharers(
    monkeypatch: pytest.MonkeyPatch, keys: bytes | Exception, holder: bytes | Exception
) -> list[str]:
    """Return the reasons for a disk with these replies."""
    disk: Any = SimpleNamespace(name="sda")
    monkeypatch.setattr(module, "open_device", lambda _: os.open("/dev/null", os.O_RDONLY))

    def answer_command(_: int, command: bytes, length: int) -> bytes:
        reply = keys if command == build_keys_command() else holder
        if isinstance(reply, Exception):
            raise reply
        assert length == struct.unpack(">H", command[7:9])[0]
        return reply

    return list(find_registrants(disk, answer_command))


def test_registered_hosts_may_write(monkeypatch: pytest.MonkeyPatch) -> None:
    none, two = read_answer("no-keys"), read_answer("two-keys")
    assert list_sharers(monkeypatch, none, read_answer("no-reservation")) == []
    [keys] = list_sharers(monkeypatch, two, read_answer("no-reservation"))
    assert " 2 " in keys and "(123ABCh, " in keys
    holder, _ = list_sharers(monkeypatch, two, read_answer("reservation"))
    reservation = decode_reservation(read_answer("reservation"))
    assert reservation and f"({reservation.kind}, key 0000000000123ABCh)" in holder


@pytest.mark.parametrize(
    "sense",
    [
        "700005000000000a00000000200000000000",  # fixed format: illegal request, invalid command
        "7205200000000000",  # descriptor format of the same
        "700005000000000a00000000240000000000",  # invalid field: an older disk lacks this service action
    ],
)
def test_disk_without_reservation_support_has_none(sense: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert list_sharers(monkeypatch, make_refusal(sense), make_refusal(sense)) == []


@pytest.mark.parametrize(
    "error", [make_refusal("70000b000000000a"), make_refusal(""), PermissionError(1, "no"), BadInput("x")]
)
def test_unknown_reservation_is_an_obstacle(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    [reason] = list_sharers(monkeypatch, error, error)
    assert reason.endswith(f"({error})")
