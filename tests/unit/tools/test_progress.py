"""The progress line: shown on terminals only, and erased before other output."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import termios

SHOW = (
    "import sys; from opwatch.sinks.terminal import Progress, print_message\n"
    "p = Progress(quiet=sys.argv[1] == '-q')\n"
    "p.show_text('1 of 9 s'); p.show_text('a\\x1b[31m' + 'x' * 200); p.clear(); p.clear(); "
    "print_message('the end')"
)


def run_on_terminal(*arguments: str, columns: int = 30, may_fail: bool = False) -> str:
    """Run the command with a terminal as standard error and return its output."""
    leader, terminal = pty.openpty()
    termios.tcsetwinsize(terminal, (24, columns))
    with os.fdopen(leader, "rb", buffering=0) as reader:
        environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
        done = subprocess.Popen(
            [sys.executable, *arguments],
            stderr=terminal,
            stdout=subprocess.PIPE,
            env=environment | {"LC_ALL": "C.UTF-8"},
        )
        os.close(terminal)
        parts = []
        while True:
            try:
                part = reader.read(4096)
            except OSError:  # Linux returns EIO once no process has the terminal open.
                break
            if not part:
                break
            parts.append(part)
        assert done.wait(20) == 0 or may_fail
        assert done.stdout is not None
        done.stdout.close()
    return b"".join(parts).decode()


def test_a_line_is_written_over_and_cut_to_the_terminal() -> None:
    wide = ("a?[31m" + "x" * 200)[:29]
    assert run_on_terminal("-c", SHOW, "-") == (f"\r\x1b[K1 of 9 s\r\x1b[K{wide}\r\x1b[Kopwatch: the end\r\n")


def test_no_progress_when_quiet() -> None:
    assert run_on_terminal("-c", SHOW, "-q") == "opwatch: the end\r\n"


def test_no_progress_in_a_pipe() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SHOW, "-"], stderr=subprocess.PIPE, text=True, check=True, timeout=20
    )
    assert done.stderr == "opwatch: the end\n"
