"""The kernel's answer about a device-mapper device: targets in order, without keys."""

from __future__ import annotations

import struct

import pytest

from opwatch.errors import BadInput
from opwatch.trim.stack.dmioctl import decode_targets, encode_request
from opwatch.trim.stack.dmtable import DmTarget
from tests.fuzz import trim_tables
from tests.fuzz.trim_tables import encode_answer


def test_ioctl_names_the_device_in_the_kernels_format() -> None:
    asked = encode_request((253, 300), table=True, room=1024)
    size, start, flags = (struct.unpack_from("=I", asked, at)[0] for at in (12, 16, 28))
    assert (len(asked), size, start, flags) == (1024, 1024, 312, 1 << 4)
    assert struct.unpack_from("=Q", asked, 40)[0] == 300 % 256 | 253 << 8 | 256 << 12
    # A status request must not make a thin pool commit its metadata.
    assert struct.unpack_from("=I", encode_request((253, 0), table=False, room=0), 28)[0] == 1 << 11


def test_targets_keep_their_order() -> None:
    two = [(0, 8, "linear", "8:0 2048"), (8, 8, "error", "")]
    assert decode_targets(encode_answer(two)) == [
        DmTarget(0, 8, "linear", ("8:0", "2048")),
        DmTarget(8, 8, "error", ()),
    ]
    assert decode_targets(encode_answer([])) == []


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("crypt", "aes-xts-plain64 5ec2e7 0 8:0 0 1 allow_discards"),
        ("inlinecrypt", "aes-xts-plain64 5ec2e7 0 8:0 0"),
        ("integrity", "8:0 0 28 J 1 internal_hash:hmac(sha256):5ec2e7"),
        ("integrity", "8:0 0 28 J 2 journal_crypt:ctr(aes):5ec2e7 journal_mac:hmac(sha256):5ec2e7"),
    ],
)
def test_encryption_key_is_not_kept(kind: str, words: str) -> None:
    [target] = decode_targets(encode_answer([(0, 8, kind, words)])) or []
    assert "5ec2e7" not in " ".join(target.arguments)
    assert len(target.arguments) == len(words.split())


def test_too_small_buffer_gives_no_answer() -> None:
    answer = bytearray(encode_answer([(0, 8, "linear", "8:0 0")]))
    struct.pack_into("=I", answer, 28, 1 << 8)
    assert decode_targets(bytes(answer)) is None


@pytest.mark.parametrize(
    ("at", "value"),
    [
        (16, 0),  # the targets begin inside the header
        (16, 1 << 31),  # the targets begin behind the end
        (20, 9),  # more targets than the answer contains
        (312 + 20, 0),  # the next target is the same target
    ],
)
def test_invalid_answer_is_refused(at: int, value: int) -> None:
    answer = bytearray(encode_answer([(0, 8, "linear", "8:0 0"), (8, 8, "error", "")]))
    struct.pack_into("=I", answer, at, value)
    with pytest.raises(BadInput):
        decode_targets(bytes(answer))


def test_answer_shorter_than_a_header_is_refused() -> None:
    with pytest.raises(BadInput, match=r"\b3 bytes.*\b312$"):
        decode_targets(b"abc")


def test_damaged_answers_are_refused() -> None:
    trim_tables.run_answers(2_000, 3)
