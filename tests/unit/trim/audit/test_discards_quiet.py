"""When a trim is over: what the kernel says of requests in flight ends the wait for what was not seen."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, cast

import pytest

from opwatch.collectors.audit.discards import DiscardTracer
from opwatch.host.device import BlockDevice
from opwatch.trim.audit.flow import Stage

pytest.importorskip("opwatch._native")


class Programs:
    """Saw a discard issued, and never its end."""

    def attach(self, granules: bytes) -> None:
        assert granules == b""

    def flows(self) -> bytes:
        return struct.pack("=16sI4B6Q", b"sda", 8 << 20, Stage.ISSUED, 3, 2, 0, 1, 4096, 1, 4096, 0, 0)


def waited(folder: Path, inflight: str, iostats: str) -> bool:
    (folder / "queue").mkdir()
    (folder / "queue" / "iostats").write_text(f"{iostats}\n")
    (folder / "inflight").write_text(f"{inflight}\n")
    disk = BlockDevice("sda", (8, 0), folder)
    return DiscardTracer([disk], programs=cast(Any, Programs())).wait_quiet(0, 0.06)


def test_an_end_that_was_not_seen_is_not_waited_for(tmp_path: Path) -> None:
    assert waited(tmp_path, "       0        0", "1")


@pytest.mark.parametrize(("inflight", "iostats"), [("0 1", "1"), ("2 0", "1"), ("0 0", "0")])
def test_what_is_in_flight_is_waited_for(tmp_path: Path, inflight: str, iostats: str) -> None:
    assert not waited(tmp_path, inflight, iostats)
