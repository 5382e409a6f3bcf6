"""Calls with a deadline, for file systems or devices that may never answer, such as stat() on a dead NFS
server."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from queue import Empty, SimpleQueue
from typing import TypeVar

T = TypeVar("T")


class DeadlineCaller:
    """Makes calls one by one in a single thread. A call without an answer keeps its thread, and the next call
    starts another."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._questions: SimpleQueue[Callable[[], None] | None] | None = None

    def call_with_timeout(self, ask: Callable[[], T]) -> T:
        """Return the result of `ask`, or raise its exception. Raise TimeoutError if the time ends first.

        In that case the thread remains until the system call or the process ends.
        """
        results: list[T] = []
        errors: SimpleQueue[BaseException | None] = SimpleQueue()

        def run_call() -> None:
            try:
                results.append(ask())
                errors.put(None)
            except BaseException as error:
                errors.put(error)

        if self._questions is None:
            self._questions = SimpleQueue()
            threading.Thread(target=_run_calls, args=(self._questions,), name="deadline", daemon=True).start()
        self._questions.put(run_call)
        try:
            error = errors.get(timeout=self._seconds)
        except Empty:
            self.close()
            raise TimeoutError(f"no answer within {self._seconds:g} s") from None
        if error:
            raise error
        return results[0]

    def close(self) -> None:
        """End the thread after its current call."""
        if self._questions:
            self._questions.put(None)
            self._questions = None


def _run_calls(questions: SimpleQueue[Callable[[], None] | None]) -> None:
    while run := questions.get():
        run()


def call_within(seconds: float, ask: Callable[[], T]) -> T:
    """Return the result of `ask`, or raise its exception. Raise TimeoutError if the time ends first."""
    with closing(DeadlineCaller(seconds)) as asker:
        return asker.call_with_timeout(ask)
