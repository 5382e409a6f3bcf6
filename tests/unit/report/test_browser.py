"""Pages in a browser: no element sticks out or overlaps, no word is broken, every plot has lines, and no
network request is made. Skipped without Chromium."""

from __future__ import annotations

import gzip
import os
import random
import struct
from pathlib import Path

import pytest

from opwatch.errors import Unsupported
from opwatch.tools.cli import main
from opwatch.tools.pictures.browser import Browser, find_browser
from tests.requirements import skip_or_fail
from tests.unit.compare.counted_disk import generate_entries, write_recording
from tests.unit.report.page_layout import inspect_page
from tests.unit.support.recordings import record_run
from tests.unit.support.sample_run import make_sample_run
from tests.unit.support.sweeps import make_journal_entries
from tests.unit.sweep.test_advise_command import write_document
from tests.unit.sweep.test_advise_command import write_recording as write_sweep
from tests.unit.writes.series import record_series

FIXTURES = Path(__file__).parents[2] / "fixtures" / "good" / "recordings"


@pytest.fixture(scope="module")
def chromium() -> Browser:
    try:
        return find_browser()
    except Unsupported as error:
        skip_or_fail("browser", str(error))


def record_runs(folder: Path) -> list[list[str]]:
    """Record runs for the pages: long names, a cliff, a drive's counters, two disks at once."""
    rates = [20_000 + 31 * (at % 5) if at < 30 else 600 + 7 * (at % 4) for at in range(70)]
    write_recording(folder / "cliff.opw", generate_entries([{"write": {400_000: rate}} for rate in rates]))
    # Steps close to each other.
    chance, levels = random.Random(1), [900] * 90 + [1200] * 30 + [21_000] * 180 + [880] * 50
    steps = [{"write": {400_000: round(chance.gauss(level, level**0.5))}} for level in levels]
    write_recording(folder / "steps.opw", generate_entries(steps))
    long_name = "a-device-with-a-name-that-no-page-has-room-for-" * 3
    write_recording(
        folder / "long.opw", generate_entries([{"read": {90_000: 500}, "discard": {5_000_000: 3}}] * 40)
    )
    record_run(folder / "drive.opw", make_sample_run(ticks=9))
    write_recording(folder / "named.opw", generate_entries([{"read": {10**9: 1}}] * 30, long_name))
    (folder / "kept.opw").write_bytes(gzip.decompress((FIXTURES / "1.opw.gz").read_bytes()))
    return [["cliff"], ["drive"], ["named"], ["kept"], ["steps"], ["cliff", "long"]]


def test_pages_are_whole_at_every_width(chromium: Browser, tmp_path: Path) -> None:
    for names in record_runs(tmp_path):
        page = tmp_path / f"{'-'.join(names)}.html"
        words = [*(str(tmp_path / f"{name}.opw") for name in names), "-o", str(page), "-q"]
        assert main(["report", *words]) == 0
        for width in (1280, 390):
            look = inspect_page(chromium, page, width)
            assert look.problems == [], (names, width)
            assert look.console == [], (names, width)
            assert look.requests == [], (names, width)
            assert len(look.plots) >= 4
            assert [plot["name"] for plot in look.plots if not plot["traces"]] == []
            assert all(min(plot["size"]) > 100 for plot in look.plots)


def test_sweep_pages_are_whole_at_every_width(chromium: Browser, tmp_path: Path) -> None:
    levels = "0,3,7,10,14,20,28,50,100,150,200%"
    recorded = write_sweep(tmp_path / "s.opw", make_journal_entries(levels))
    for source in (recorded, write_document(tmp_path / "s.json")):
        page = tmp_path / "s.html"
        assert main(["report", source, "-o", str(page), "-q"]) == 0
        for width in (1280, 390):
            look = inspect_page(chromium, page, width)
            assert (look.problems, look.console, look.requests) == ([], [], []), (source, width)
            assert [plot["name"] for plot in look.plots if not plot["traces"]] == []


def test_pages_of_writes_are_whole_at_every_width(chromium: Browser, tmp_path: Path) -> None:
    page = tmp_path / "writes.html"
    recorded = str(record_series(tmp_path / "writes.opw"))
    assert main(["report", recorded, "-o", str(page), "--png", str(tmp_path / "pictures"), "-q"]) == 0
    for width in (1280, 380):
        look = inspect_page(chromium, page, width)
        assert (look.problems, look.console, look.requests) == ([], [], []), width
        assert len(look.plots) > 5
    assert [picture.name for picture in (tmp_path / "pictures").iterdir()] == ["writes.png"]


def test_layout_problems_are_noticed(chromium: Browser, tmp_path: Path) -> None:
    page = tmp_path / "bad.html"
    page.write_text(
        "<!doctype html><main><div style='width:3000px'>wide</div><img src=https://example.invalid/x.png>"
        "<div class=xs style='position:relative;height:20px'><b style='position:absolute'>one</b>"
        "<b style='position:absolute'>two</b></div><div class=area style='position:relative;height:20px'>"
        "<span class=flag style='position:absolute'>up</span>"
        "<span class=flag style='position:absolute'>down</span></div>"
        "<svg aria-label=empty><path class=grid d='M0 0h1'/></svg>"
        "<table><tr><td style='display:block;width:20px;overflow-wrap:anywhere'>decided</table>"
    )
    look = inspect_page(chromium, page, 390)
    assert "it is wider than its window" in look.problems
    assert "one meets two" in look.problems
    assert "up lies on down" in look.problems
    assert "broken word: decided" in look.problems
    assert [plot["traces"] for plot in look.plots] == [0]
    assert look.requests
    assert set(look.requests) == {"https://example.invalid/x.png"}


def test_each_plot_is_a_picture(
    chromium: Browser, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_recording(
        tmp_path / "a.opw",
        generate_entries([{"read": {90_000: 500 + at % 3}} for at in range(30)], "a/../<b>"),
    )
    folder = tmp_path / "pictures"
    assert main(["report", str(tmp_path / "a.opw"), "--png", str(folder)]) == 0
    pictures = sorted(folder.iterdir())
    assert f"{len(pictures)} pictures" in capsys.readouterr().err
    assert "a-b-requests.png" in [picture.name for picture in pictures]
    for picture in pictures:
        content = picture.read_bytes()
        assert content.startswith(b"\x89PNG")
        assert struct.unpack(">I", content[16:20]) == (1800,)
    assert main(["report", str(tmp_path / "a.opw"), "--png", str(folder)]) == 2


def test_the_browser_is_started_once(
    chromium: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_recording(
        tmp_path / "a.opw", generate_entries([{"read": {90_000: 500 + at % 3}} for at in range(30)])
    )
    starts, folder = tmp_path / "starts", tmp_path / "bin"
    folder.mkdir()
    wrapper = folder / "chromium"
    wrapper.write_text(f'#!/bin/sh\necho started >>"{starts}"\nexec "{chromium.path}" "$@"\n')
    wrapper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    assert main(["report", str(tmp_path / "a.opw"), "--png", str(tmp_path / "pictures")]) == 0
    assert len(list((tmp_path / "pictures").iterdir())) > 2
    assert starts.read_text() == "started\n"


def test_a_browser_that_ends_early_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_recording(tmp_path / "a.opw", generate_entries([{"read": {90_000: 500}}] * 3))
    wrapper = tmp_path / "chromium"
    wrapper.write_text("#!/bin/sh\nexit 1\n")
    wrapper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert main(["report", str(tmp_path / "a.opw"), "--png", str(tmp_path / "pictures")]) == 1
    assert " exited " in capsys.readouterr().err


def test_png_without_a_browser_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_recording(tmp_path / "a.opw", generate_entries([{}] * 3))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["report", str(tmp_path / "a.opw"), "--png", str(tmp_path / "new")]) == 5
    assert "sudo apt-get install chromium" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()
