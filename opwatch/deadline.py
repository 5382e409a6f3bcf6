"""Questions that a file system or a device may never answer, such as a stat() on a dead NFS server."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def answer_within(seconds: float, ask: Callable[[], T]) -> T:
    """Return what `ask` returns, or raise what it raises. Raise TimeoutError if it has not come back in time;
    its thread then stays behind until the system call ends or the process exits."""
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(ask())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, name="deadline", daemon=True)
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    if not results:
        raise TimeoutError(f"no answer within {seconds:g} s")
    return results[0]
