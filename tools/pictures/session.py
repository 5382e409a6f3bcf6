"""A running Chromium for rendering several pages, controlled by the DevTools protocol through two pipes."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import math
import os
import select
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from opwatch.errors import OpwatchError

# Descriptors from which Chromium reads commands, and to which it writes answers.
_COMMANDS, _ANSWERS = 3, 4
_TIMEOUT_S = 120
_CHUNK = 1 << 16


class BrowserSession:
    """A running browser with a single page."""

    def __init__(self, name: str, commands: int, answers: int) -> None:
        self._name, self._commands, self._answers = name, commands, answers
        self._number, self._buffer = 0, b""
        self._page: str | None = None
        target = self._send_command("Target.createTarget", url="about:blank")["targetId"]
        self._page = self._send_command("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self._send_command("Page.enable")

    def write_picture(self, page: Path, target: Path, width: int, height: int | None) -> None:
        """Write a page as PNG, at double size for sharp lines. Without a height, all of the page is drawn."""
        self._set_size(width, height or 1)
        self._send_command("Page.navigate", url=page.absolute().as_uri())
        self._wait_for_message(lambda message: message.get("method") == "Page.loadEventFired")
        if height is None:
            content = self._send_command("Page.getLayoutMetrics")["cssContentSize"]
            self._set_size(width, math.ceil(content["height"]))
        data = self._send_command("Page.captureScreenshot", format="png")["data"]
        target.write_bytes(base64.b64decode(data))

    def _set_size(self, width: int, height: int) -> None:
        self._send_command(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=2,
            mobile=False,
        )

    def _send_command(self, method: str, **parameters: Any) -> dict[str, Any]:  # noqa: ANN401
        self._number += 1
        number = self._number
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if self._page:
            message["sessionId"] = self._page
        try:
            os.write(self._commands, json.dumps(message).encode() + b"\0")
        except OSError as error:
            raise OpwatchError(f"{self._name} exited early: {error.strerror}") from error
        answer = self._wait_for_message(lambda message: message.get("id") == number)
        if "error" in answer:
            raise OpwatchError(f"{self._name} cannot draw: {method}: {answer['error'].get('message')}")
        result: dict[str, Any] = answer["result"]
        return result

    def _wait_for_message(self, is_it: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        deadline = time.monotonic() + _TIMEOUT_S
        while True:
            while b"\0" in self._buffer:
                line, _, self._buffer = self._buffer.partition(b"\0")
                message: dict[str, Any] = json.loads(line)
                if is_it(message):
                    return message
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._answers], [], [], left)[0]:
                raise OpwatchError(f"{self._name} did not answer within {_TIMEOUT_S} s")
            chunk = os.read(self._answers, _CHUNK)
            if not chunk:
                raise OpwatchError(f"{self._name} exited before everything was drawn")
            self._buffer += chunk


@contextlib.contextmanager
def open_browser_session(path: str, options: Sequence[str]) -> Iterator[BrowserSession]:
    """Yield a browser that runs during the context. The temporary profile is removed at the end."""
    with tempfile.TemporaryDirectory(prefix="opwatch-", ignore_cleanup_errors=True) as profile:
        read_commands, commands = os.pipe()
        answers, write_answers = os.pipe()
        nothing = os.open(os.devnull, os.O_RDWR)
        moves = [
            (read_commands, _COMMANDS),
            (write_answers, _ANSWERS),
            (nothing, 0),
            (nothing, 1),
            (nothing, 2),
        ]
        high = {source: _move_descriptor_up(source) for source, _ in moves}
        child = os.posix_spawn(
            path,
            [path, *options, "--remote-debugging-pipe", f"--user-data-dir={profile}", "about:blank"],
            os.environ,
            file_actions=[(os.POSIX_SPAWN_DUP2, high[source], place) for source, place in moves],
            setpgroup=0,
        )
        for descriptor in {read_commands, write_answers, nothing, *high.values()}:
            os.close(descriptor)
        try:
            yield BrowserSession(path, commands, answers)
        finally:
            os.close(commands)
            os.close(answers)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)


def _move_descriptor_up(descriptor: int) -> int:
    """Return a copy of a descriptor, with a number that the browser does not use."""
    return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 10)
