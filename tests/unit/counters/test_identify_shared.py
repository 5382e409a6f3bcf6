"""Shared namespaces: bit 0 of NMIC, byte 30, allows several controllers."""

from __future__ import annotations

import pytest

from opwatch.counters.decode.identify import decode_namespace


@pytest.mark.parametrize(("nmic", "is_shared"), [(0, False), (1, True), (0x81, True), (2, False)])
def test_nmic_marks_shared_namespaces(nmic: int, is_shared: bool) -> None:
    page = bytearray(4096)
    page[0], page[30] = 8, nmic
    assert decode_namespace(bytes(page)).is_shared is is_shared
