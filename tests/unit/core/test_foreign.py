"""Foreign text: for any bytes, parsing ends soon and either succeeds or fails with a single error type."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from opwatch import foreign
from opwatch.collectors.check.open_files import find_deleted_files
from opwatch.collectors.firmware.recorded import decode_evidence
from opwatch.collectors.firmware.smart import collect_smart
from opwatch.collectors.owners.cgroups import read_cgroup_names
from opwatch.counters.catalogue.families import load_catalogue, parse_catalogue
from opwatch.counters.prove import sanity
from opwatch.counters.reports.numbers import parse_integer, parse_json_number
from opwatch.counters.reports.plugin_text import parse_plugin_text
from opwatch.counters.reports.smartctl_text import parse_smartctl_text
from opwatch.errors import BadInput, OpwatchError, UsageError
from opwatch.fio.report import parse_report
from opwatch.ftl import profiles
from opwatch.host.process import run_tool
from opwatch.host.usage import parse_mountinfo, read_usage
from opwatch.settings import parse_toml
from opwatch.trim.stack.causes import parse_causes

GOOD = Path(__file__).parents[2] / "fixtures" / "good" / "counters"
DEEP = "[" * 100_000
# Quadratic work on this length takes seconds, cubic work days.
LONG = 60_000


def check_cpu_time(seconds: float, work: Callable[[], object]) -> None:
    """Check the CPU time, so that a busy machine does not matter."""
    begin = time.process_time()
    work()
    assert time.process_time() - begin < seconds


# --- the decoder ---


def test_lines_end_at_newlines_only() -> None:
    text = "one\u2028still one\x0b\x0c\x85\nwindows\r\n" + "x" * (foreign.MAX_LINE_BYTES + 1) + "\nlast"
    assert foreign.split_lines(text) == ["one\u2028still one\x0b\x0c\x85", "windows", "last"]


@pytest.mark.parametrize("value", ["{}", '"ab"', '{"a":1}', "1.5", "[]"])
def test_a_document_of_very_many_values_takes_little_memory(value: str) -> None:
    """60 MB of tables once took 1.6 GB."""
    code = (
        "import resource, sys\n"
        "from opwatch.errors import BadInput\n"
        "from opwatch.foreign import parse_json\n"
        f"raw = b'[' + b'{value},' * (60_000_000 // {len(value) + 1}) + b'1]'\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "try:\n    parse_json(raw, 'it')\nexcept BadInput as error:\n    print(error)\n"
        "print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10)\n"
    )
    words, grown_mib = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert words.startswith("it ") and "512 MiB" in words
    assert int(grown_mib) < 100


def test_largest_accepted_document_takes_the_calculated_memory() -> None:
    code = (
        "import resource\n"
        "from opwatch.foreign import MAX_MEMORY, parse_json\n"
        "raw = b'[' + b'{\"a\":\"bc\"},' * (MAX_MEMORY // 240 - 10) + b'1]'\n"
        "parse_json(raw, 'it')\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10)\n"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(answer.stdout) < 900


def test_reading_is_bounded_by_size_and_file_type(tmp_path: Path) -> None:
    big, pipe = tmp_path / "big", tmp_path / "pipe"
    with big.open("wb") as file:
        file.truncate(1 << 40)
    os.mkfifo(pipe)
    with pytest.raises(BadInput, match=f"{big} .* {foreign.MAX_BYTES} bytes"):
        foreign.read_text(big)
    with pytest.raises(BadInput, match=f"{pipe} .*regular"):
        foreign.read_text(pipe)
    big.write_bytes(b"M\xc3\xbcller\xc3")
    assert foreign.read_text(big) == "Müller\ufffd"
    assert os.fsencode(foreign.read_names(big)) == b"M\xc3\xbcller\xc3"


@pytest.mark.parametrize("text", [DEEP, '{"a":' * 5000, "{", "", "[1,", '["\\'], ids=len)
def test_invalid_json_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(BadInput, match=r"^there: "):
        foreign.parse_json(text, "there")


def test_valid_json_is_parsed() -> None:
    assert foreign.parse_json(json.dumps({"a": "[" * 500, "b": [[1]]}), "there") == {
        "a": "[" * 500,
        "b": [[1]],
    }
    assert foreign.parse_json(b'{"a": "\xff", "n": ' + b"9" * 5000 + b"}", "there") == {
        "a": "\ufffd",
        "n": "9" * 5000,
    }


@pytest.mark.parametrize(
    "raw",
    [
        b"a = " + b"[" * 400,
        b"a" + b".a" * 400 + b" = 1",
        b"a = " + b"9" * 900 + b"\n" + b"b = " + b"9" * 5000,
        b"a = '\xff'",
        b"#" * (1 << 19),
        b"a = 1\na = 2",
    ],
    ids=["deep", "dotted", "longer", "bytes", "large", "twice"],
)
def test_toml_that_keeps_a_parser_busy_is_refused(raw: bytes) -> None:
    with pytest.raises(BadInput, match=r"^there"):
        parse_toml(raw, "there")


# --- the kernel's tables ---


ODD = "30 27 8:1 / /m\u2028nt rw - ext4 /dev/sda1 rw\n31 27 8:2 / /b\x85 rw - ext4 /dev/sda2 rw\n"


def test_mounts_with_unusual_names_are_listed() -> None:
    assert [mount.point for mount in parse_mountinfo(ODD)] == ["/m\u2028nt", "/b\x85"]
    assert parse_mountinfo("30 27 8:1 - ext4 /dev/sda2 rw\n") == []


def test_mount_point_outside_utf8_can_be_opened(tmp_path: Path) -> None:
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "mountinfo").write_bytes(b"30 27 8:1 / /m\xff rw - ext4 /dev/sda1 rw\n")
    (tmp_path / "swaps").write_bytes(b"Filename\tType\n/dev/\xffx  partition 1 2 3\n")
    usage = read_usage(tmp_path, tmp_path)
    assert os.fsencode(usage.mounts[0].point) == b"/m\xff"
    assert os.fsencode(usage.swaps[0]) == b"/dev/\xffx"


def test_process_with_an_odd_name_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "victim"
    script = (
        "import ctypes, os, sys\n"
        "ctypes.CDLL(None).prctl(15, b'12345678901234\\xc3\\xb6')\n"
        "file = open(sys.argv[1], 'wb'); file.write(b'x' * 8192); file.flush(); os.unlink(sys.argv[1])\n"
        "print(flush=True); sys.stdin.read()\n"
    )
    argv = ["/usr/bin/env", "python3", "-c", script, str(path)]
    # The captured standard error of a test run can be a deleted file as well.
    quiet = subprocess.DEVNULL
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=quiet) as process:
        assert process.stdout and process.stdin
        process.stdout.readline()
        names = [file.comm for file in find_deleted_files().files if file.pid == process.pid]
        process.stdin.close()
    assert names == ["12345678901234\ufffd"]


def test_deep_groups_do_not_hide_other_names(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").touch()
    (tmp_path / "shallow").mkdir()
    descriptor = os.open(tmp_path, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("d", dir_fd=descriptor)
        below = os.open("d", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = below
    os.close(descriptor)
    try:
        names = read_cgroup_names(tmp_path)
        assert {"/", "/shallow", "/d/d"} <= set(names.values())
    finally:
        subprocess.run(["rm", "-rf", str(tmp_path / "d")], check=True)


# --- tools ---


def write_script(folder: Path, name: str, said: bytes) -> None:
    (folder / "said").write_bytes(said)
    (folder / name).write_text(f"#!/bin/sh\ncat {folder}/said\n")
    (folder / name).chmod(0o755)


def test_invalid_byte_loses_no_other_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = next(path for path in sorted(GOOD.rglob("*S4510*.json")))
    write_script(
        tmp_path, "smartctl", report.read_bytes().replace(b'"model_name": "', b'"model_name": "\xff', 1)
    )
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    evidence = collect_smart(Path("/dev/null"))
    assert evidence.attributes
    write_script(tmp_path, "tool", b"a\xffb")
    assert run_tool(["tool"]) == "a\ufffdb"


@pytest.mark.parametrize("text", ['{"jobs": {}}', '{"jobs": [{"read": 1}]}', '{"jobs": []}', "{", "{" + DEEP])
def test_invalid_fio_report_is_refused(text: str) -> None:
    with pytest.raises(OpwatchError, match="fio"):
        parse_report(text)


# --- reports of drives ---


@pytest.mark.parametrize(
    "line",
    [
        "A" + " \t" * (LONG // 2),
        "a" + " " * LONG,
        "A" + " :" * (LONG // 2),
        "Seagate Extended SMART Information\n" + "a" + " 1" * (LONG // 2),
        "SMART Cloud Attributes\n" + "A" + "\t:" * (LONG // 2) + "\n" + "A" + "  x" * (LONG // 3),
        "SMART Cloud Attributes\n" + "A\t" + "0" * LONG + " !",
        "nand_bytes_written" + " " * LONG,
    ],
    ids=range(7),
)
def test_overlong_line_is_skipped_quickly(line: str) -> None:
    check_cpu_time(0.5, lambda: parse_plugin_text(line))
    check_cpu_time(0.5, lambda: parse_smartctl_text("=== START OF INFORMATION SECTION ===\n" + line))


@pytest.mark.parametrize(
    ("words", "values"),
    [
        ([], []),
        (["0", "18446744073709551615"], [0, (1 << 64) - 1]),
        (["7", "-1"], None),
        (["7", "1" * 21], None),
        (["7", "\u0663"], None),
        (["7", "1.5"], None),
        (["7", ""], None),
        ([""], None),
    ],
)
def test_row_is_parsed_whole_or_is_none(words: list[str], values: list[int] | None) -> None:
    assert foreign.parse_all_unsigned(words) == values


def test_overlong_numbers_are_none() -> None:
    digits = "9" * 5000
    assert parse_integer(",".join(["123"] * 2000)) is None
    evidence = parse_smartctl_text(
        "=== START OF INFORMATION SECTION ===\nID# ATTRIBUTE_NAME\n"
        f"  9 Power_On_Hours -O--CK 100 100 000 - {digits}\n"
        f"0x01  0x018  6  {digits}  ---  Logical Sectors Written\n"
    )
    assert evidence.power_on_hours is None
    assert evidence.statistics is None


def test_overlong_number_does_not_invalidate_the_report() -> None:
    report = next(path for path in sorted(GOOD.rglob("*S4510*.json")))
    raw = report.read_bytes().replace(b'"blocks": ', b'"blocks": ' + b"9" * 5000, 1)
    assert raw != report.read_bytes()
    assert decode_evidence("x.json", raw).attributes


@pytest.mark.parametrize(
    ("value", "number"),
    [(3.0, 3), (3.5, None), (-1.0, None), (float("inf"), None), (float("nan"), None), (2.0**60, None)],
)
def test_exact_whole_floats_become_integers(value: float, number: int | None) -> None:
    assert parse_json_number(value) == number


def test_numbers_beyond_floats_are_checked() -> None:
    huge = 10**400
    assert sanity.check_mean_write(huge, 2000, 512, None)
    assert sanity.check_speed(huge, 5, "ata")
    assert sanity.check_ratio(huge, huge - 1, 10**12) is None
    assert sanity.check_ratio(huge, 5, None)
    assert sanity.check_erases(huge, 100.0, 10**12)


# --- settings files ---


def format_entry(more: str) -> str:
    return f'[[ata]]\nname = "x"\nevidence = "y"\ndrives = "z"\nmodel = "m"\n{more}\n'


@pytest.mark.parametrize(
    "more",
    [
        "host = {unit = 512, of = [241], quantum = -1}",
        "host = {unit = 512, of = [241], quantum = 0}",
        'host = {unit = 512, of = ["²"]}',
        'host = {unit = 512, of = ["0:16"]}',
        "host = {of = [241]}",
        'erase = ["first"]',
        "lid = -3",
        "vendor_id = 99999999",
        "sum_of = {id = 1, factor = -5, ids = [2]}",
        "model = 3",
        "a" + ".a" * 300 + " = 1",
        "a = " + "[" * 200,
        'model = "' + "x" * 2000 + '"',
        'firmware = "a{99999999999999999999}"',
        'firmware = "' + "(" * 480 + ")" * 480 + '("',
    ],
)
def test_invalid_catalogue_is_refused(more: str) -> None:
    text = format_entry(more)
    if more == "model = 3":
        text = text.replace('model = "m"\n', "")
    with pytest.raises(UsageError, match="mine"):
        parse_catalogue(text, "mine")


def test_a_catalogue_in_another_encoding_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_bytes(format_entry("").encode() + b"# \xff\n")
    with pytest.raises(UsageError, match=r"mine\.toml"):
        load_catalogue([path])


@pytest.mark.parametrize(
    "text",
    [
        "timing = 3\n[drive]\nuser_bytes = 1",
        "[drive]\nuser_bytes = -1",
        "[drive]\nuser_bytes = " + "9" * 500,
        "[drive]\nphysical_bytes = 1048576",
        "[drive]\nuser_bytes = 0",
        "[drive]\nuser_bytes = 1\niu_bytes = 0",
        "[drive]\nuser_bytes = " + "[" * 300,
    ],
)
def test_invalid_profile_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="mine"):
        profiles.parse_profile("mine", text).scale_to(1 << 20)


def test_a_profile_in_another_encoding_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_bytes(b"description = '\xff'\n")
    with pytest.raises(UsageError, match=r"mine"):
        profiles.load_profile(str(path))


@pytest.mark.parametrize("text", ["cause = [3]", "[[cause]]\nnumber = 1\neffect = []", "a = " + "[" * 300])
def test_invalid_causes_are_refused(text: str) -> None:
    with pytest.raises(OpwatchError, match="catalogue"):
        parse_causes(text, "catalogue")
