"""Decoding of NVMe log pages. The pages are synthetic: built here from the specifications' offsets."""

from __future__ import annotations

import pytest

from opwatch import nvme_log
from opwatch.errors import OpwatchError


def page(length: int, *fields: tuple[int, int, int]) -> bytes:
    raw = bytearray(length)
    for offset, width, value in fields:
        raw[offset : offset + width] = value.to_bytes(width, "little")
    return bytes(raw)


def test_smart() -> None:
    raw = page(512, (0, 1, 8), (3, 1, 99), (5, 1, 7), (32, 16, 3), (48, 16, 2**100), (64, 16, 5))
    smart = nvme_log.decode_smart(raw)
    assert (smart.critical_warning, smart.available_spare_percent, smart.percentage_used) == (8, 99, 7)
    # 128 bits are kept.
    assert (smart.data_units_read, smart.data_units_written, smart.host_reads) == (3, 2**100, 5)


def test_endurance_group_and_fdp() -> None:
    group = nvme_log.decode_endurance_group(page(512, (48, 16, 3), (64, 16, 5), (80, 16, 7)))
    assert group == nvme_log.EnduranceGroup(3, 5, 7)
    fdp = nvme_log.decode_fdp_statistics(page(64, (0, 16, 11), (16, 16, 13), (32, 16, 17)))
    assert fdp == nvme_log.FdpStatistics(11, 13, 17)


def test_ocp_wants_its_guid() -> None:
    raw = bytearray(page(512, (0, 16, 19), (88, 4, 23), (92, 4, 29), (152, 8, 31), (494, 2, 6)))
    with pytest.raises(OpwatchError, match="GUID"):
        nvme_log.decode_ocp_smart(bytes(raw))
    raw[496:] = nvme_log.OCP_GUID
    ocp = nvme_log.decode_ocp_smart(bytes(raw))
    assert (ocp.media_bytes_written, ocp.erase_count_max, ocp.erase_count_min) == (19, 23, 29)
    assert (ocp.used_lbas, ocp.version) == (31, 6)


def test_namespace_takes_the_format_in_use() -> None:
    raw = page(4096, (0, 8, 100), (8, 8, 90), (16, 8, 80), (26, 1, 1), (130, 1, 9), (134, 1, 12))
    assert nvme_log.decode_namespace(raw) == nvme_log.Namespace(100, 90, 80, 4096)


@pytest.mark.parametrize("length", [0, 63])
def test_short_pages_are_refused(length: int) -> None:
    for decode in (
        nvme_log.decode_smart,
        nvme_log.decode_endurance_group,
        nvme_log.decode_fdp_statistics,
        nvme_log.decode_ocp_smart,
        nvme_log.decode_namespace,
    ):
        with pytest.raises(OpwatchError, match=f"{length} bytes"):
            decode(bytes(length))
