"""Every command in the locale C: only ASCII, and no traceback, whatever names it handles."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from opwatch.tools.command_list import COMMANDS
from tests.kernel.support.drives import create_drive
from tests.kernel.support.filesystems import make_filesystem, mount_device

# Arguments: DISK is a drive of our own, MOUNT a file system on it with a non-ASCII mount point.
CALLS = (
    *(pytest.param(["help", name], marks=[pytest.mark.manual] * (name != "watch")) for name in COMMANDS),
    *(["trim", verb, "--help"] for verb in COMMANDS["trim"].verbs),
    ["--version"],
    ["--dev", "DISK", "0.1", "2", "-v"],
    ["--dev", "DISK", "0.1", "1", "--json"],
    ["--dev", "\u00fc\u2028"],
    ["\u00fcberwacht"],
    ["devices", "-a"],
    ["devices", "-v"],
    ["devices", "--json"],
    ["doctor"],
    ["overhead", "--dev", "DISK", "--for", "0.2", "--pairs", "1"],
    ["drive", "list"],
    ["drive", "info", "NAME"],
    ["drive", "fault", "NAME", "list"],
    ["drive", "info", "\u00e9"],
    ["trim", "check", "MOUNT"],
    ["trim", "check", "--all"],
    ["trim", "check", "--json", "MOUNT"],
    ["trim", "audit", "MOUNT"],
    ["trim", "audit", "--prove", "--json", "MOUNT"],
    ["trim", "stale", "MOUNT", "--seconds", "0.2"],
    ["trim", "record", "--dev", "DISK", "-o", "FILE", "--for", "0.2"],
    ["trim", "stale", "--dev", "DISK", "--history", "FILE"],
    ["counters", "--dev", "DISK"],
    ["counters", "\u00e9.json"],
    ["waf", "--dev", "DISK", "--for", "0.5"],
)


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    folder = tmp_path_factory.mktemp("ascii")
    point = folder / "m\u00e9 \u00b1\u2028x"
    point.mkdir()
    with create_drive() as one:
        make_filesystem("ext4", one.device)
        with mount_device(one.device, point):
            yield {
                "DISK": one.device,
                "NAME": one.name,
                "MOUNT": str(point),
                "FILE": str(folder / "\u00b5.history"),
            }


@pytest.mark.parametrize("call", CALLS, ids=lambda call: ascii("-".join(call)))
def test_command_output_is_ascii_in_the_c_locale(call: list[str], words: dict[str, str]) -> None:
    given = {"PYTHONIOENCODING", "PYTHONUTF8", "LANG", "LC_CTYPE"}
    environment = {name: value for name, value in os.environ.items() if name not in given}
    argv = [sys.executable, "-m", "opwatch", *(words.get(word, word) for word in call)]
    done = subprocess.run(
        argv,
        capture_output=True,
        timeout=120,
        check=False,
        env=environment | {"LC_ALL": "C"},
        cwd=Path(__file__).parents[3],
    )
    for stream in (done.stdout, done.stderr):
        assert b"Traceback" not in stream and b"UnicodeEncodeError" not in stream, stream[-2000:]
        assert stream.isascii(), stream
        assert b"\x1b" not in stream
    assert done.stdout or done.stderr
