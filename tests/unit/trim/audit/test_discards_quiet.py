"""End of a trim: wait until the kernel has no requests in flight, because completions may be missed."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, cast

import pytest

from opwatch.collectors.audit.discards import DiscardTracer
from opwatch.host.device import BlockDevice
from opwatch.trim.audit.flow import Stage

pytest.importorskip("opwatch._native")


class StuckPrograms:
    """Counts a discard as issued but never as completed."""

    def attach(self, granules: bytes) -> None:
        assert granules == b""

    def flows(self) -> bytes:
        return struct.pack("=16sQI4B6Q", b"sda", 0, 8 << 20, Stage.ISSUED, 3, 2, 0, 1, 4096, 1, 4096, 0, 0)


def wait_for_quiet(folder: Path, inflight: str, iostats: str) -> bool:
    (folder / "queue").mkdir()
    (folder / "queue" / "iostats").write_text(f"{iostats}\n")
    (folder / "inflight").write_text(f"{inflight}\n")
    disk = BlockDevice("sda", (8, 0), folder)
    return DiscardTracer([disk], programs=cast(Any, StuckPrograms())).wait_quiet(0, 0.06)


def test_missed_completion_is_not_awaited(tmp_path: Path) -> None:
    assert wait_for_quiet(tmp_path, "       0        0", "1")


@pytest.mark.parametrize(("inflight", "iostats"), [("0 1", "1"), ("2 0", "1"), ("0 0", "0")])
def test_wait_lasts_while_requests_are_in_flight(tmp_path: Path, inflight: str, iostats: str) -> None:
    assert not wait_for_quiet(tmp_path, inflight, iostats)


class StuckMapper:
    """A device-mapper device got 8 KiB in one bio and completed a part."""

    def __init__(self, ended: int) -> None:
        self._ended = ended

    def attach(self, granules: bytes) -> None:
        assert granules == b""

    def flows(self) -> bytes:
        pairs = [(Stage.BIO, 8192), (Stage.BIO_DONE, self._ended)]
        parts = [
            struct.pack("=16sQI4B6Q", b"dm-0", 0, 253 << 20, *(stage, 3, 0, 0, 1, size, 1, 0, 0, 0))
            for stage, size in pairs
        ]
        return b"".join(parts)


@pytest.mark.parametrize("ended", [0, 4096, 8192])
def test_wait_lasts_while_device_mapper_has_open_bios(tmp_path: Path, ended: int) -> None:
    """The device reports no requests in flight, so the programs' own count decides."""
    (tmp_path / "inflight").write_text("0 0\n")
    tracer = DiscardTracer([BlockDevice("dm-0", (253, 0), tmp_path)], programs=cast(Any, StuckMapper(ended)))
    assert tracer.wait_quiet(0, 0.06) is (ended == 8192)
