"""Runs other tools by argument list, never through a shell."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from opwatch.errors import OpwatchError, Unsupported
from opwatch.foreign import decode_text, split_lines

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def die_with_parent(parent: int) -> Callable[[], None]:
    """Return a preexec function for a tool that must not outlive the calling thread."""
    import ctypes
    import signal

    prctl = ctypes.CDLL(None).prctl

    def set_death_signal() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # the parent died before prctl() took effect
            os._exit(1)

    return set_death_signal


def run_tool(argv: Sequence[str], timeout_s: float = 60, *, ends_with_us: bool = False) -> str:
    """Return the output of a tool. If the tool fails, raise OpwatchError with the tool's message.

    With `ends_with_us`, the tool ends even if we are killed. Use for tools with a device open.
    """
    import shutil
    import subprocess

    if not shutil.which(argv[0]):
        raise Unsupported(f"{argv[0]} is not installed; opwatch doctor shows its package")
    try:
        done = subprocess.run(
            argv,
            capture_output=True,
            timeout=timeout_s,
            check=False,
            preexec_fn=die_with_parent(os.getpid()) if ends_with_us else None,
        )
    except subprocess.TimeoutExpired as error:
        raise OpwatchError(f"{argv[0]} did not finish within {timeout_s:.0f} s") from error
    if done.returncode:
        words = split_lines(decode_text(done.stderr or done.stdout).strip())
        raise OpwatchError(
            f"{argv[0]} failed ({done.returncode}): {words[-1] if words and words[-1] else 'no message'}"
        )
    return decode_text(done.stdout)
