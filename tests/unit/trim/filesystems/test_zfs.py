"""OpenZFS's counters of its own discards."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from opwatch.collectors.stack.filesystem import read_filesystem
from opwatch.host.device import Devices
from opwatch.host.usage import Usage, parse_mountinfo
from opwatch.trim.check.prediction import Outlook, predict_trim
from opwatch.trim.filesystems.zfs import ZfsFacts, parse_counters, parse_pool_name
from opwatch.trim.stack.layers import Stack

FIXTURES = Path(__file__).parents[3] / "fixtures"


def test_trim_counters_of_a_pool_are_read() -> None:
    """OpenZFS 2.1.11 on Linux 6.1, after `zpool trim`."""
    lines = (FIXTURES / "good/trim/zfs.iostats").read_text().splitlines()
    assert parse_counters("tank", lines) == ZfsFacts(
        pool="tank",
        trim_bytes_written=444_321_792,
        autotrim_bytes_written=0,
        trim_bytes_skipped=155_648,
        trim_bytes_failed=0,
    )


def test_invalid_counters_are_none() -> None:
    text = (FIXTURES / "bad/trim/words.iostats").read_text(errors="replace")
    assert parse_counters("tank", text.splitlines()) == ZfsFacts(pool="tank")


@pytest.mark.parametrize(
    ("source", "pool"),
    [
        ("tank", "tank"),
        ("tank/home/a b", "tank"),
        ("tank@before", "tank"),
        ("..", None),
        ("../etc", None),
        ("/etc/shadow", None),
        ("", None),
    ],
)
def test_dataset_maps_to_its_pool(source: str, pool: str | None) -> None:
    assert parse_pool_name(source) == pool


def test_check_reports_the_counters_of_zfs(tmp_path: Path) -> None:
    (tmp_path / "tank").mkdir()
    (tmp_path / "tank/iostats").write_bytes((FIXTURES / "good/trim/zfs.iostats").read_bytes())
    [mount] = parse_mountinfo("30 27 0:41 / /tank rw - zfs tank/data rw\n")
    filesystem = read_filesystem(Devices(), Usage([], [], {}), mount, Path("/sys"), tmp_path)
    foretold = predict_trim(Stack(filesystem, ()))
    assert foretold.outlook is Outlook.NOTHING
    [why] = foretold.reasons
    assert re.findall(r"(\d+) B (?:\w+ )*(\w+)", why.observed) == [
        ("444321792", "trim"),
        ("0", "autotrim"),
        ("155648", "small"),
        ("0", "failed"),
    ]
    assert why.blanks == {"pool": "tank"}
    missing = read_filesystem(Devices(), Usage([], [], {}), mount, Path("/sys"), tmp_path / "no")
    assert missing.facts == ZfsFacts(pool="tank")
