"""Whether bpftrace can run the script of --backend bpftrace: it is made to attach, for a moment."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from opwatch.host.diagnosis import Check, State, note

_TRACEFS = Path("/sys/kernel/tracing")
# What every probe of the script needs: a function of the block layer as kfunc, and an end.
_SCRIPT = "BEGIN { exit(); } kfunc:blk_mq_start_request { @never = 1; }"
_PATIENCE_S = 30
MOUNT = "sudo mount -t tracefs tracefs /sys/kernel/tracing"


def judge(tool: Check, failure: str | None, *, mount_helps: bool) -> Check:
    """Whether bpftrace can attach. `failure` is what it said when it could not. Pure."""
    if failure is None:
        return Check(tool.name, State.OK, f"{tool.finding}; --backend bpftrace can attach")
    if mount_helps:
        return note(tool.name, f"{tool.finding}, but it cannot attach: tracefs is not mounted", MOUNT)
    return note(
        tool.name,
        f"{tool.finding}, but --backend bpftrace cannot attach here: {failure}. "
        "The default backend, or --backend bcc, needs nothing of this",
    )


def _attempt(argv: Sequence[str]) -> str | None:
    """The complaint of bpftrace, None when it attached."""
    try:
        done = subprocess.run(
            [*argv, "-e", _SCRIPT],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=_PATIENCE_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {_PATIENCE_S} s"
    except OSError as error:
        return error.strerror or str(error)
    if not done.returncode:
        return None
    said = done.stderr.decode(errors="replace").strip().split("\n")
    # A limit that could not be raised is no reason yet.
    errors = [line for line in said if "ERROR" in line and "RLIMIT" not in line]
    return (errors or said)[0].rpartition("ERROR: ")[2].rstrip(".") or f"status {done.returncode}"


def try_bpftrace(tool: Check, path: str | None) -> Check:
    """The check of the tool, with what came of trying it. As nobody it is not tried."""
    if tool.state is not State.OK or not path or os.geteuid() != 0:
        return tool
    failure, mount_helps = _attempt([path]), False
    if failure and not (_TRACEFS / "events").is_dir():
        with_mount = f'mount -t tracefs tracefs {_TRACEFS} && exec "$@"'
        # It gets a mount namespace of its own: nothing of this machine changes.
        later = _attempt(["unshare", "--mount", "sh", "-c", with_mount, "sh", path])
        failure, mount_helps = later or failure, later is None
    return judge(tool, failure, mount_helps=mount_helps)
