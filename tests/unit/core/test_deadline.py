"""Calls that may never return."""

from __future__ import annotations

import threading
import time
from contextlib import closing

import pytest

from opwatch.deadline import DeadlineCaller, call_within


def test_asker_replaces_its_thread_after_an_unanswered_call() -> None:
    never = threading.Event()
    with closing(DeadlineCaller(0.1)) as asker:
        first = {asker.call_with_timeout(threading.get_ident) for _ in range(9)}
        begin = time.monotonic()
        with pytest.raises(TimeoutError, match=r"0\.1 s"):
            asker.call_with_timeout(lambda: never.wait(5))
        assert 0.1 <= time.monotonic() - begin < 2
        later = {asker.call_with_timeout(threading.get_ident) for _ in range(9)}
        assert len(first) == len(later) == 1
        assert first != later
    never.set()


def test_asker_raises_the_errors_of_a_call_and_continues() -> None:
    def raise_permission_error() -> None:
        raise PermissionError("no")

    with closing(DeadlineCaller(2)) as asker:
        with pytest.raises(PermissionError, match="no"):
            asker.call_with_timeout(raise_permission_error)
        assert asker.call_with_timeout(lambda: 5) == 5


def test_threads_end_with_their_askers() -> None:
    never = threading.Event()
    assert call_within(2, lambda: 3) == 3
    with pytest.raises(TimeoutError):
        call_within(0.01, lambda: never.wait(5))
    never.set()
    end = time.monotonic() + 5
    while any(thread.name == "deadline" for thread in threading.enumerate()):
        assert time.monotonic() < end
        time.sleep(0.01)
