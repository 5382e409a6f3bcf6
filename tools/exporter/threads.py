"""Threads for calls that may block."""

from __future__ import annotations

import threading
from collections.abc import Callable

from opwatch.errors import OpwatchError


def start_thread(name: str, call: Callable[[], None]) -> threading.Thread:
    """Make a call in a new thread, which does not keep the process alive. Raise OpwatchError if the system
    allows no more threads."""
    thread = threading.Thread(target=call, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError as error:
        raise OpwatchError(
            f"cannot start a thread for {name}: the limit of threads is reached (TasksMax= of the service, "
            "pids.max of its control group, or ulimit -u)"
        ) from error
    return thread
