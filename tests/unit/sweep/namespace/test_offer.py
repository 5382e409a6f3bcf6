"""Conditions for replacing a namespace, and the drive's lists that they are read from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opwatch.counters.decode.identify import (
    LENGTH,
    Controller,
    Namespace,
    decode_controller,
    decode_controller_list,
    decode_granularity,
    decode_namespace,
    decode_namespace_list,
)
from opwatch.counters.decode.pages import BadPage
from opwatch.sweep.levels import LevelScale, parse_levels
from opwatch.sweep.namespace.offer import (
    NamespaceOffer,
    compute_impossible_lbas,
    find_level_refusal,
    find_probe_refusal,
    list_objections,
)

FIXTURES = Path(__file__).parents[3] / "fixtures"
DRIVE = Controller(capacity_bytes=64 << 20, manages_namespaces=True, most_namespaces=4, number=1)
WHOLE = Namespace(size_lbas=65536, capacity_lbas=65536, lba_bytes=512)
OFFER = NamespaceOffer(DRIVE, WHOLE, 1, (1,), (1,))


def read_page(name: str, kind: str = "good") -> bytes:
    """Return a fixture's page, padded with zeros."""
    return bytes.fromhex((FIXTURES / kind / "guard" / f"{name}.hex").read_text()).ljust(LENGTH, b"\0")


def encode_effects(*opcodes: int) -> bytes:
    page = bytearray(4096)
    for opcode in opcodes:
        page[4 * opcode] = 1
    return bytes(page)


def test_lists_end_at_their_end_marker_or_count() -> None:
    assert decode_namespace_list(read_page("namespace-list")) == (1, 2, 5)
    assert decode_namespace_list(bytes(LENGTH)) == ()
    assert decode_namespace_list(b"\x01\0\0\0" * 1024) == (1,) * 1024
    assert decode_controller_list(read_page("controller-list")) == (1, 7)
    with pytest.raises(BadPage, match="65535"):
        decode_controller_list(read_page("controller-list-many", "bad"))
    for decode in (decode_namespace_list, decode_controller_list, lambda raw: decode_granularity(raw, 0)):
        with pytest.raises(BadPage, match="7 bytes, not 4096"):
            decode(bytes(7))


def test_granularity_follows_the_format() -> None:
    page = read_page("namespace-granularity")
    assert [decode_granularity(page, place) for place in (0, 1, 2)] == [
        (4096, 1 << 30),
        (16 << 20, 2 << 30),
        (1, 1),
    ]
    of_all = bytes([0]) + page[1:]
    assert decode_granularity(of_all, 1) == (4096, 1 << 30)
    assert decode_granularity(bytes(LENGTH), 0) == (1, 1)


@given(st.binary(max_size=LENGTH + 8), st.integers(0, 63))
def test_any_list_is_decoded_or_refused(raw: bytes, lba_format: int) -> None:
    for decode in (decode_namespace_list, decode_controller_list):
        try:
            assert all(number >= 0 for number in decode(raw))
        except BadPage:
            assert len(raw) < LENGTH or raw[1] > 7
    if len(raw) >= LENGTH:
        assert min(decode_granularity(raw, lba_format)) >= 1


def test_identify_has_the_values_a_new_namespace_needs() -> None:
    raw = bytearray(LENGTH)
    raw[78:80], raw[96], raw[256], raw[261] = b"\x02\x01", 1 << 7, 1 << 3, 1 << 1
    controller = decode_controller(bytes(raw))
    assert (controller.number, controller.has_granularity, controller.has_effects_log) == (0x102, True, True)
    raw = bytearray(LENGTH)
    raw[0], raw[100:104] = 1, b"\x03\x00\x04\x00"
    assert (decode_namespace(bytes(raw)).nvm_set, decode_namespace(bytes(raw)).endurance_group) == (3, 4)


@pytest.mark.parametrize(
    ("offer", "why"),
    [
        (OFFER, None),
        (replace(OFFER, effects=encode_effects(0x0D, 0x15)), None),
        (
            replace(OFFER, effects=encode_effects(0x15)),
            "announces",
        ),
        (replace(OFFER, effects=encode_effects()), "Namespace Management and Namespace Attachment"),
        (replace(OFFER, controllers=(1, 2)), " 2 controllers "),
        (replace(OFFER, allocated=(1, 3)), "(1): 1, 3"),
        (replace(OFFER, allocated=()), "(1): none"),
        (replace(OFFER, namespace=replace(WHOLE, metadata_bytes=8)), "metadata"),
        (replace(OFFER, namespace=replace(WHOLE, protection=1)), "protection"),
        (replace(OFFER, controller=replace(DRIVE, capacity_bytes=None)), "TNVMCAP is 0"),
        (replace(OFFER, namespace=replace(WHOLE, lba_bytes=None)), "size"),
        (replace(OFFER, is_zoned=True), "zones"),
    ],
)
def test_every_objection_is_reported(offer: NamespaceOffer, why: str | None) -> None:
    reasons = list_objections(offer)
    assert bool(reasons) == (why is not None)
    assert why is None or why in reasons[0]


def test_levels_are_checked_against_the_namespace_step() -> None:
    levels = parse_levels("32M,12M", LevelScale(64 << 20))
    assert find_level_refusal(levels, OFFER) is None
    refused = find_level_refusal(levels, replace(OFFER, granularity=(16 << 20, 4096)))
    assert refused is not None
    assert refused.endswith(" 16777216 bytes: use --op 16777216")


def test_answer_to_an_impossible_create_shows_support() -> None:
    assert compute_impossible_lbas(OFFER) * 512 > 64 << 20
    assert find_probe_refusal(0x115, "nvme0n1") is None
    assert find_probe_refusal(0x116, "nvme0n1") is None
    for status, word in ((0x001, "001h (invalid opcode)"), (0x002, "002h (invalid field)"), (0x006, "006h")):
        assert word in (find_probe_refusal(status, "nvme0n1") or "")
    assert "000h (success)" in (find_probe_refusal(0, "nvme0n1") or "")
