"""iostat's reports in every unit and format: the amounts are equal for the same seconds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from opwatch.errors import BadInput
from opwatch.imports.iostat import is_iostat, parse_iostat
from opwatch.samples.observation import Observation
from opwatch.samples.presenter import RunPresenter
from opwatch.tools.cli import main

FIXTURES = Path(__file__).parents[2] / "fixtures"
GOOD, BAD = FIXTURES / "good" / "imports", FIXTURES / "bad" / "imports"


def get_final(raw: bytes) -> Observation:
    """Return the summary of the only disk."""
    story = RunPresenter()
    news = [one for entry in parse_iostat(raw, "it").entries for one in story.process_entry(entry)]
    [last] = [one for one in news if isinstance(one, Observation) and one.final]
    return last


@pytest.mark.parametrize(
    "name", ["iostat-k.json", "iostat-m.json", "iostat-sectors.json", "iostat-m.txt", "iostat-iso.txt"]
)
def test_bytes_are_the_same_in_every_unit_and_form(name: str) -> None:
    """fio read 60 and wrote 25 blocks of 4 KiB per second for 3 s."""
    assert is_iostat((GOOD / name).read_bytes())
    interval = get_final((GOOD / name).read_bytes()).interval
    assert interval.seconds == 3
    for op, rate in (("read", 60), ("write", 25)):
        assert interval.ops[op].count == pytest.approx(3 * rate, abs=2)
        assert interval.ops[op].bytes == pytest.approx(3 * rate * 4096, rel=0.01)
        assert interval.ops[op].latency.mean == pytest.approx(60_000, rel=0.2)


def test_text_and_json_of_the_same_numbers_are_the_same() -> None:
    document = json.loads((GOOD / "iostat-m.json").read_text())
    reports = document["sysstat"]["hosts"][0]["statistics"]
    lines = ["Linux 6.18.44 (vm) \t11/28/26 \t_x86_64_\t(2 CPU)", ""]
    for report in reports:
        names = [name for name in report["disk"][0] if name != "disk_device"]
        lines += [report["timestamp"], "avg-cpu:  " + " ".join(f"%{name}" for name in report["avg-cpu"])]
        lines += [" ".join(str(value) for value in report["avg-cpu"].values()), ""]
        lines += ["Device " + " ".join(names)]
        lines += [" ".join(str(value) for value in disk.values()) for disk in report["disk"]] + ["", ""]
    # The same report in a locale with decimal commas.
    text = "\n".join(lines).replace(".", ",").encode()
    one, other = get_final(text).interval, get_final((GOOD / "iostat-m.json").read_bytes()).interval
    assert (one.ops["read"].bytes, one.ops["read"].count) == (
        other.ops["read"].bytes,
        other.ops["read"].count,
    )
    assert one.ops["write"].latency.mean == other.ops["write"].latency.mean


def test_a_report_that_was_cut_is_left_out() -> None:
    text = (GOOD / "iostat-m.txt").read_bytes()
    whole = get_final(text).interval
    cut = get_final(text[: text.rindex(b"loop2") + 40]).interval
    assert (whole.seconds, cut.seconds) == (3, 2)
    at = text.rindex(b"loop2")
    assert get_final(text[:at]).interval.seconds == 2


def test_uneven_intervals_follow_their_timestamps() -> None:
    text = (GOOD / "iostat-iso.txt").read_text()
    times = [line for line in text.splitlines() if line.startswith("2026-")]
    late = text.replace(times[3], times[3].replace("12:07:27", "12:07:46"))
    assert late != text
    interval = get_final(late.encode()).interval
    assert interval.seconds == 22
    assert interval.ops["read"].count == pytest.approx(60 * 22, rel=0.02)


def test_too_coarse_megabytes_without_a_mean_size_are_refused() -> None:
    text = (GOOD / "iostat-m.txt").read_bytes().replace(b"areq-sz", b"any-sz")
    with pytest.raises(BadInput, match=r"MB/s is 0\.04, .* -k$"):
        get_final(text.replace(b"0.10 ", b"0.04 "))
    assert get_final(text).interval.ops["read"].bytes == pytest.approx(3 * 0.23 * (1 << 20), rel=0.01)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("iostat-human.txt", "line 5: numbers with units (-h, --human)"),
        ("iostat-basic.txt", "loop0 has no r/s: run iostat with -x"),
        ("iostat-no-times.txt", "line 3: a report without a time: run S_TIME_FORMAT=ISO iostat -x -t 1"),
        ("iostat-short.json", "loop0 has no r/s: run iostat with -x, and without -s"),
        ("iostat-disagrees.json", "rkB/s is 960.0, but r/s times rareq-sz KiB is 240.00"),
        ("trace.blktrace.0", "import the output of blkparse -i trace.blktrace.0"),
        ("free.txt", "unknown format: import the output of fio --output-format=json"),
    ],
)
def test_other_output_is_refused_with_the_command_to_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, words: str
) -> None:
    recording = tmp_path / "a.opw"
    assert main(["import", str(BAD / name), "-o", str(recording)]) == 1
    assert words in capsys.readouterr().err
    assert not recording.exists()
