"""sysbench as load generator: arguments, output, and refusals."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from opwatch.errors import BadInput, Unsupported
from opwatch.load.plain import parse_plain_load
from opwatch.load.sysbench import SysbenchResult, build_sysbench_arguments, parse_sysbench
from opwatch.scenarios.mixed import MixConfiguration, MixLoad
from opwatch.tools.acting.scenarios.mixed import MixPlace
from opwatch.tools.acting.scenarios.unnamed_file import FileLoad
from opwatch.tools.cli import main

FIXTURES = Path(__file__).parents[2] / "fixtures"
BAD = sorted((FIXTURES / "bad" / "sysbench").glob("*.txt"))


def test_sysbench_output_is_parsed() -> None:
    text = (FIXTURES / "good" / "sysbench" / "rndwr.txt").read_text()
    assert parse_sysbench(text, "it") == SysbenchResult(0, 500, 0.0959, 760_000.0)
    mixed = text.replace("reads/s:                      0.00", "reads/s:    15489.39")
    assert parse_sysbench(mixed, "it") == SysbenchResult(375, 125, 0.0959, 760_000.0)


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.name)
def test_damaged_output_is_refused(path: Path) -> None:
    with pytest.raises(BadInput, match="it: sysbench "):
        parse_sysbench(path.read_text(), "it")


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("rndwr", "rndwr"),
        ("rndrd", "rndrd"),
        ("seqrd", "seqrd"),
        # seqwr would create the file, and the file already exists.
        ("seqwr", "seqrewr"),
        ("rdpct=75,seekpct=100", "rndrw"),
    ],
)
def test_sysbench_mode_matches_the_load(name: str, mode: str) -> None:
    load = parse_plain_load(name)
    assert load
    words = build_sysbench_arguments(load, 1 << 20, 4, 7, seconds=1.6)
    assert f"--file-test-mode={mode}" in words and "--time=2" in words and "--events=0" in words
    assert ("--file-rw-ratio=3" in words) == (mode == "rndrw")


def test_buffered_load_is_synced_as_sysbench_does_by_default() -> None:
    load = parse_plain_load("rndwr")
    assert load
    direct, buffered = (
        build_sysbench_arguments(load, 1 << 20, 1, 7, events=9, fsync_every=every) for every in (0, 100)
    )
    assert "--file-extra-flags=direct" in direct and "--file-fsync-freq=0" in direct
    assert "--file-fsync-freq=100" in buffered and "--file-fsync-end=on" in buffered
    assert not any("direct" in word for word in buffered)


def test_fio_writes_through_the_page_cache_like_sysbench() -> None:
    load = FileLoad(
        "/f", 1 << 20, MixLoad("rndwr", 0, 100, 16384), 1, 7, total_bytes=1 << 20, fsync_every=100
    )
    buffered = dict(word.removeprefix("--").partition("=")[::2] for word in load.build_fio_words())
    assert (buffered["direct"], buffered["ioengine"], buffered["fsync"]) == ("0", "psync", "100")
    direct = dict(
        word.removeprefix("--").partition("=")[::2] for word in replace(load, fsync_every=0).build_fio_words()
    )
    assert direct["direct"] == "1" and "fsync" not in direct


def test_sequential_mix_is_not_a_sysbench_mode() -> None:
    load = parse_plain_load("rdpct=75,seekpct=0")
    assert load
    with pytest.raises(Unsupported, match=r"75 % reads .* 0 % random "):
        build_sysbench_arguments(load, 1 << 20, 4, 7)


def test_missing_sysbench_names_the_package(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("opwatch.tools.commands.sweep.scenarios.on_mounts.make_mix_place", _make_place)
    words = ["sweep", "run", "--scenario", "mixed-io", "--on", f"a={tmp_path}", "--load", "sysbench"]
    assert main([*words, "--workload", "rndwr", "--journals", str(tmp_path)]) == Unsupported.exit_status
    assert "apt install sysbench" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def _make_place(*_: object) -> object:
    return MixPlace(MixConfiguration("a", "/a", "sda", "disk", 1 << 20), (), "x")


def test_sysbench_is_refused_for_a_whole_drive(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["sweep", "run", "--scenario", "write-saturation", "--dev", "nothing", "--load", "sysbench"]
    assert main(words) == 2
    assert re.search(r"--load: .* --on: ", capsys.readouterr().err)
