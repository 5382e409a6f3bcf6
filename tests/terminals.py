"""Run programs on a separate pseudo-terminal."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import time


def run_on_terminal(
    argv: list[str], typed: dict[bytes, bytes], environment: dict[str, str]
) -> tuple[int, str]:
    """Run a program on an 80-column terminal, and return (exit status, output).

    `typed` maps expected output to the keys to type after the output appears, in order.
    """
    process, terminal = pty.fork()
    if not process:
        os.environ.update(environment)
        os.execv(argv[0], argv)
    subprocess.run(["stty", "rows", "24", "cols", "80"], stdin=terminal, check=True)
    written, deadline, waits = b"", time.monotonic() + 60, list(typed)
    while time.monotonic() < deadline:
        ready, _, _ = select.select([terminal], [], [], 0.2)
        try:
            written += os.read(terminal, 65536) if ready else b""
        except OSError:
            break
        if waits and waits[0] in written:
            os.write(terminal, typed[waits.pop(0)])
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), written.decode(errors="replace")


def read_until(terminal: int, words: bytes, patience_s: float = 60) -> bytes:
    """Return the output up to and including `words`, or all output if the program or the time ends first."""
    written, deadline = b"", time.monotonic() + patience_s
    while words not in written and time.monotonic() < deadline:
        ready, _, _ = select.select([terminal], [], [], 0.2)
        try:
            written += os.read(terminal, 65536) if ready else b""
        except OSError:
            break
    return written


def wait_for_exit(process: subprocess.Popen[bytes], patience_s: float = 30) -> int | None:
    """Return the exit status of a process, or None if it did not end and was killed."""
    try:
        return process.wait(patience_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return None
