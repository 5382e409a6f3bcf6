"""Keys for the table of owners: their effects, and a terminal that is restored."""

from __future__ import annotations

import json
import os
import pty
import sys
import termios
import time
from pathlib import Path

import pytest

from opwatch.sinks.owners.table import Sort
from opwatch.tools.cli import main
from opwatch.tools.keys.keyboard import ENTER, ESCAPE, Keyboard, has_keyboard, split_keys
from opwatch.tools.keys.owner_keys import OwnerKeys


def press_keys(*keys: str) -> OwnerKeys:
    choice = OwnerKeys(Sort.BYTES)
    for key in keys:
        choice.handle_key(key)
    return choice


@pytest.mark.parametrize(
    ("key", "sort"), [("b", Sort.BYTES), ("r", Sort.REQUESTS), ("t", Sort.TIME), ("l", Sort.LATENCY)]
)
def test_each_sort_order_has_a_key(key: str, sort: Sort) -> None:
    assert press_keys("l", key).sort is sort
    chosen = [text for text, _ in press_keys(key).build_spans() if "[" in text]
    assert chosen == [f"{key} [{sort.value}]"]


def test_a_filter_is_typed_and_kept_until_escape() -> None:
    assert press_keys("/", *"fioq", "backspace").words == "fio"
    assert press_keys("/", *"fio").is_typing
    kept = press_keys("/", *"fio", ENTER, "t")
    assert (kept.words, kept.is_typing, kept.sort) == ("fio", False, Sort.TIME)
    # During input of a filter, letters belong to the filter.
    assert press_keys("/", "t", "q") == OwnerKeys(Sort.BYTES, "tq", is_typing=True)
    assert press_keys("/", *"fio", ENTER, ESCAPE) == OwnerKeys(Sort.BYTES)
    assert press_keys("/", *"fio", ESCAPE) == OwnerKeys(Sort.BYTES)
    assert len(press_keys("/", *"x" * 500).words) < 80


def test_q_ends_and_other_keys_are_ignored() -> None:
    assert press_keys("q").is_over
    assert press_keys("z", "backspace", ENTER, "up") == OwnerKeys(Sort.BYTES)


def test_escape_sequences_are_not_keys() -> None:
    assert list(split_keys("\x1b[A")) == []
    assert list(split_keys("r\x1b[1;5Cx\x1bOP")) == ["r", "x"]
    assert list(split_keys("\x1b")) == [ESCAPE]
    assert list(split_keys("aö\r\x7f\x00\x07")) == ["a", "ö", ENTER, "backspace"]


def test_invalid_sort_order_lists_the_valid_orders(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["top", "--sort", "foo"])
    error = capsys.readouterr().err
    assert "foo" in error
    assert all(sort.value in error for sort in Sort)


def test_pipe_has_no_key_input(monkeypatch: pytest.MonkeyPatch) -> None:
    with Path("/dev/null").open() as stream:
        monkeypatch.setattr(sys, "stdin", stream)
        assert not has_keyboard()
    monkeypatch.setattr(sys, "stdin", None)
    assert not has_keyboard()


_SCRIPT = """
import json, sys, time
from opwatch.tools.cli import main
from opwatch.tools.keys.keyboard import Keyboard, has_keyboard
keys = []
assert has_keyboard()
with Keyboard(keys.append):
    print("ready", flush=True)
    until = time.monotonic() + 30
    while "q" not in keys and time.monotonic() < until:
        time.sleep(0.01)
print("keys", json.dumps(keys), flush=True)
sys.stdin.readline()
"""


def test_terminal_settings_are_restored() -> None:
    process, terminal = pty.fork()
    if not process:
        os.execv(sys.executable, [sys.executable, "-c", _SCRIPT])
    before = termios.tcgetattr(terminal)

    def get_flags() -> int:
        return int(termios.tcgetattr(terminal)[3]) & (termios.ECHO | termios.ICANON)

    written = b""
    while b"ready" not in written:
        written += os.read(terminal, 4096)
    assert get_flags() == 0
    os.write(terminal, "aö\x1b[Bq".encode())
    time.sleep(0.1)
    os.write(terminal, b"q")
    while b"keys" not in written or b"]" not in written:
        written += os.read(terminal, 4096)
    assert termios.tcgetattr(terminal) == before
    os.write(terminal, b"\n")
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0
    os.close(terminal)
    keys = json.loads(written.decode().partition("keys ")[2].splitlines()[0])
    assert [key for key in keys if key != "q"] == ["a", "ö"]


def test_vanished_terminal_ends_key_input(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "r") as stream:
        monkeypatch.setattr(sys, "stdin", stream)
        # The stream is not a controlling terminal, so no keys may be read from it.
        assert not has_keyboard()
        with Keyboard(lambda key: None):
            os.close(ours)
            time.sleep(0.1)
