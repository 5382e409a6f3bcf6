"""Completion in the shells themselves: a line with a TAB is typed on a terminal, and a stub of opwatch prints
the words that it was started with."""

from __future__ import annotations

import gzip
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.terminals import read_until

RECORDING = Path(__file__).parents[3] / "fixtures" / "good" / "recordings" / "1-fio.opw.gz"
DEVICES = 500
# The bound of one completion, and how often it is tried on a busy machine.
BOUND_S, TRIES = 0.1, 10
SHELLS = {
    "bash": (["bash", "--norc", "-i"], "bind 'set enable-bracketed-paste off'; . {script}"),
    "zsh": (["zsh", "-f", "-i"], "autoload -U compinit; compinit -u -D; . {script}"),
    "fish": (["fish", "--no-config", "-i"], "source {script}"),
}
STUB = """#!/bin/sh
[ "$1" = completion ] && exec {python} -m opwatch "$@"
printf '<%s>' "$@"; echo end
"""


def make_script(shell: str, folder: Path) -> Path:
    """Write the script, a stub of opwatch, a recording and 500 devices, and return the script."""
    root = str(Path(__file__).parents[4])
    script = folder / f"script.{shell}"
    made = [sys.executable, "-m", "opwatch", "completion", shell]
    script.write_bytes(subprocess.check_output(made, cwd=root))
    stub = folder / "opwatch"
    stub.write_text(STUB.format(python=f"env PYTHONPATH={root} {sys.executable}"))
    stub.chmod(0o755)
    (folder / "run.opw").write_bytes(gzip.decompress(RECORDING.read_bytes()))
    (folder / "blocks").mkdir()
    for number in range(DEVICES):
        (folder / "blocks" / f"nvme{number}n1").touch()
    return script


class TypedShell:
    """An interactive shell on a terminal."""

    def __init__(self, terminal: int) -> None:
        self._terminal = terminal

    def complete(self, line: str) -> str:
        """Type a line and TAB, run it, and return the words of the command."""
        os.write(self._terminal, line.encode() + b"\t\r")
        written = read_until(self._terminal, b">end", 20).decode(errors="replace")
        found: list[str] = re.findall(r"(<[^\r\n]*>)end", written)
        return found[-1]

    def wait_for(self, line: str, words: str) -> None:
        os.write(self._terminal, line.encode() + b"\r")
        assert words.encode() in read_until(self._terminal, words.encode(), 20)


@contextmanager
def run_shell(shell: str, folder: Path) -> Iterator[TypedShell]:
    argv, load = SHELLS[shell]
    script = make_script(shell, folder)
    process, terminal = pty.fork()
    if not process:
        os.chdir(folder)
        environment = {
            "PATH": f"{folder}:{os.environ['PATH']}",
            "HOME": str(folder),
            "TERM": "xterm",
            "_opwatch_blocks": str(folder / "blocks"),
            "LC_ALL": "C.UTF-8",
        }
        os.execvpe(argv[0], argv, environment)
    try:
        subprocess.run(["stty", "rows", "50", "cols", "200"], stdin=terminal, check=True)
        typed = TypedShell(terminal)
        # The words of the answer differ from those that the terminal echoes.
        typed.wait_for(load.format(script=script) + "; echo rea''dy", "ready")
        yield typed
    finally:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        os.close(terminal)


@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TypedShell]:
    if not shutil.which(request.param):
        pytest.skip(f"{request.param} is not installed")
    with run_shell(request.param, tmp_path) as typed:
        yield typed


def test_each_shell_completes_commands_options_and_values(shell: TypedShell) -> None:
    for line, words in (
        ("opwatch doc", "<doctor>"),
        ("opwatch trim au", "<trim><audit>"),
        ("opwatch trim audit --pro", "<trim><audit><--prove>"),
        ("opwatch help sweep adv", "<help><sweep><advise>"),
        ("opwatch --by cg", "<--by><cgroup>"),
        ("opwatch --dev nvme123", "<--dev><nvme123n1>"),
        ("opwatch waf --dev nvme123n1 --ref", "<waf><--dev><nvme123n1><--refresh>"),
        ("opwatch devices nvme499", "<devices><nvme499n1>"),
        ("opwatch drive create --profile crucial", "<drive><create><--profile><crucial-m4-256>"),
        ("opwatch sweep plan --scenario iome", "<sweep><plan><--scenario><iometer-op10>"),
        ("opwatch replay run.o", "<replay><run.opw>"),
        (
            "opwatch compare run.opw run.opw --at-phase war",
            "<compare><run.opw><run.opw><--at-phase><warm up>",
        ),
        (
            "opwatch dump run.opw -O csv -f time,ops.read.latency_ns.p90",
            "<dump><run.opw><-O><csv><-f><time,ops.read.latency_ns.p90>",
        ),
    ):
        assert shell.complete(line) == words, line


def test_option_with_an_equals_sign_completes_its_value(shell: TypedShell) -> None:
    assert shell.complete("opwatch --dev=nvme123") == "<--dev=nvme123n1>"


def test_completion_among_500_devices_takes_at_most_100_ms(shell: TypedShell) -> None:
    shell.complete("opwatch --dev nvme499")
    fastest = 1e9
    for _ in range(TRIES):
        begin = time.perf_counter()
        assert shell.complete("opwatch --dev nvme499") == "<--dev><nvme499n1>"
        fastest = min(fastest, time.perf_counter() - begin)
    print(f"{1000 * fastest:.0f} ms")
    assert fastest <= BOUND_S
