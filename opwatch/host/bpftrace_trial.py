"""Checks whether bpftrace can run the script of --backend bpftrace, by attaching a short one."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from opwatch.host.diagnosis import Check, State, make_note

_TRACEFS = Path("/sys/kernel/tracing")
# Tests what every probe of the script needs: a block layer function as kfunc, and a way to exit.
_SCRIPT = "BEGIN { exit(); } kfunc:blk_mq_start_request { @never = 1; }"
_TIMEOUT_S = 30
MOUNT = "sudo mount -t tracefs tracefs /sys/kernel/tracing"


def judge_trial(tool: Check, failure: str | None, *, mount_helps: bool) -> Check:
    """Return the check with the result. `failure` is bpftrace's error message, or None if the script
    attached. Pure."""
    if failure is None:
        return Check(tool.name, State.OK, f"{tool.finding}; --backend bpftrace can attach")
    if mount_helps:
        return make_note(tool.name, f"{tool.finding}, but it cannot attach: tracefs is not mounted", MOUNT)
    return make_note(
        tool.name,
        f"{tool.finding}, but --backend bpftrace cannot attach here: {failure}. "
        "The default backend and --backend bcc do not need it",
    )


def _run_trial(argv: Sequence[str]) -> str | None:
    """Return bpftrace's error message, or None if the script attached."""
    try:
        done = subprocess.run(
            [*argv, "-e", _SCRIPT],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {_TIMEOUT_S} s"
    except OSError as error:
        return error.strerror or str(error)
    if not done.returncode:
        return None
    said = done.stderr.decode(errors="replace").strip().split("\n")
    # A failure to raise the rlimit alone is not the reason.
    errors = [line for line in said if "ERROR" in line and "RLIMIT" not in line]
    return (errors or said)[0].rpartition("ERROR: ")[2].rstrip(".") or f"status {done.returncode}"


def try_bpftrace(tool: Check, path: str | None) -> Check:
    """Return the tool's check, extended by the result of the attempt. Without root, return the check
    unchanged."""
    if tool.state is not State.OK or not path or os.geteuid() != 0:
        return tool
    failure, mount_helps = _run_trial([path]), False
    if failure and not (_TRACEFS / "events").is_dir():
        with_mount = f'mount -t tracefs tracefs {_TRACEFS} && exec "$@"'
        # In a separate mount namespace, to leave the machine's mounts unchanged.
        later = _run_trial(["unshare", "--mount", "sh", "-c", with_mount, "sh", path])
        failure, mount_helps = later or failure, later is None
    return judge_trial(tool, failure, mount_helps=mount_helps)
