"""The ATA security words and commands, bit by bit."""

from __future__ import annotations

import re

import pytest

from opwatch.errors import BadInput
from opwatch.journal.undo import PasswordUndo, parse_undo
from opwatch.sweep.ata.commands import (
    DISABLE_PASSWORD,
    ERASE_PREPARE,
    ERASE_UNIT,
    SET_PASSWORD,
    UNLOCK,
    make_security_command,
)
from opwatch.sweep.ata.offers import decode_identify
from opwatch.sweep.ata.security import (
    THAW,
    AtaSecurity,
    EraseTime,
    decode_security,
    find_security_refusal,
    format_unlock_commands,
    make_password_page,
)


def encode_identify(**words: int) -> bytes:
    """Return IDENTIFY DEVICE with the given words, for a drive with valid words 82 and 85."""
    raw = bytearray(512)
    for name, value in ({"w82": 2, "w83": 0x4000, "w87": 0x4000} | words).items():
        at = 2 * int(name.removeprefix("w"))
        raw[at : at + 2] = value.to_bytes(2, "little")
    return bytes(raw)


ABLE = AtaSecurity(is_supported=True, has_state=True)


def test_each_security_bit_is_decoded() -> None:
    assert decode_security(encode_identify(w128=0x01)) == ABLE
    all_set = decode_security(encode_identify(w128=0x3F))
    assert (all_set.has_password, all_set.is_locked, all_set.is_frozen) == (True, True, True)
    assert (all_set.is_expired, all_set.has_enhanced) == (True, True)
    assert decode_identify(encode_identify(w128=0x21)).security.has_enhanced
    # Either word can report a password.
    assert decode_security(encode_identify(w85=2, w128=1)).has_password
    assert not decode_security(encode_identify(w85=2, w87=0xFFFF, w128=1)).has_password
    # Word 83 declares word 82 invalid.
    assert not decode_security(encode_identify(w83=0xFFFF, w128=1)).is_supported
    with pytest.raises(BadInput, match="IDENTIFY DEVICE of 511 bytes"):
        decode_security(bytes(511))


@pytest.mark.parametrize(
    ("word", "minutes", "is_more"),
    [
        (0, None, False),
        (1, 2, False),
        (0xFE, 508, False),
        (0xFF, 508, True),
        # The upper half is reserved if bit 15 is 0.
        (0x1205, 10, False),
        (0x8000, None, False),
        (0x8100, 512, False),
        (0xFFFE, 65532, False),
        (0xFFFF, 65532, True),
    ],
)
def test_erase_time_has_8_or_15_bits(word: int, minutes: int | None, is_more: bool) -> None:
    assert decode_security(encode_identify(w128=1, w89=word)).normal == EraseTime(minutes, is_more)
    assert decode_security(encode_identify(w128=1, w90=word)).enhanced == EraseTime(minutes, is_more)


@pytest.mark.parametrize(
    ("time", "seconds", "patience_s", "text"),
    [
        (EraseTime(), None, 12 * 3600, "duration not reported"),
        (EraseTime(2), 120, 780, "2 minutes as reported by the drive"),
        (EraseTime(508, True), None, 96 * 3600 + 600, "more than 508 minutes as reported by the drive"),
        # The kernel's maximum timeout.
        (EraseTime(65532, True), None, 49 * 86400, "more than 65532 minutes as reported by the drive"),
    ],
)
def test_erase_timeout_exceeds_the_reported_time(
    time: EraseTime, seconds: float | None, patience_s: int, text: str
) -> None:
    assert (time.seconds, time.timeout_s, str(time)) == (seconds, patience_s, text)


@pytest.mark.parametrize(
    ("w89", "w90", "w128", "is_enhanced", "minutes"),
    [
        (5, 1, 0x21, False, 10),
        (5, 0, 0x21, False, 10),
        (0, 1, 0x21, True, 2),
        # The drive reports a time for an erase that it does not support.
        (0, 1, 0x01, False, None),
        (0, 0, 0x21, False, None),
    ],
)
def test_enhanced_erase_is_used_only_without_a_normal_erase(
    w89: int, w90: int, w128: int, is_enhanced: bool, minutes: int | None
) -> None:
    security = decode_security(encode_identify(w89=w89, w90=w90, w128=w128))
    assert (security.has_only_enhanced, security.erase_time.minutes) == (is_enhanced, minutes)
    assert ("enhanced" in security.erase_description) == is_enhanced


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ({"w128": 0x01}, None),
        ({"w128": 0x21}, None),
        ({"w82": 0, "w128": 0x01}, "(IDENTIFY word 82 bit 1 is 0)"),
        ({"w128": 0x00}, "word 128 (bit 0)"),
        ({"w128": 0x09}, THAW),
        ({"w128": 0x0B}, "(IDENTIFY word 128 bit 3)"),
        ({"w128": 0x07}, "(IDENTIFY word 128 bit 2)"),
        ({"w128": 0x03}, "(IDENTIFY word 128 bit 1)"),
        ({"w128": 0x01, "w85": 2}, "already"),
        ({"w128": 0x11}, "(IDENTIFY word 128 bit 4)"),
    ],
)
def test_security_refusal_names_the_reason(words: dict[str, int], why: str | None) -> None:
    refused = find_security_refusal(decode_security(encode_identify(**words)), "sda")
    assert refused is None if why is None else why in (refused or "")


def test_commands_match_the_standard() -> None:
    assert make_security_command(ERASE_PREPARE).hex() == "850620" + "00" * 10 + "40f300"
    for command, code in ((SET_PASSWORD, "f1"), (UNLOCK, "f2"), (ERASE_UNIT, "f4"), (DISABLE_PASSWORD, "f6")):
        # A sector to the drive, counted in blocks, with registers returned.
        assert make_security_command(command).hex() == "850a26000000" + "01" + "00" * 6 + "40" + code + "00"


def test_password_is_public_and_set_for_the_user_at_level_high() -> None:
    page = make_password_page()
    # The bytes that hdparm sends: the password, then zero bytes.
    assert page == b"\0\0opwatch" + bytes(503)
    assert make_password_page(is_enhanced=True) == b"\2\0opwatch" + bytes(503)
    assert re.findall(r"--security-(\w+) opwatch /dev/sdx", format_unlock_commands("sdx")) == [
        "unlock",
        "disable",
    ]
    assert format_unlock_commands("sdx").count("--user-master u ") == 2


def test_journal_keeps_the_password_kind() -> None:
    undo = PasswordUndo("opwatch")
    assert parse_undo(str(undo)) == undo
    for text in ("password other of the user, for an erase", f"{undo}\n", "password opwatch"):
        with pytest.raises(BadInput, match=re.escape(repr(text))):
            parse_undo(text)
