"""A browser without a window, where there is one: pages as pictures."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from opwatch.errors import OpwatchError, Unsupported
from opwatch.frozen import frozen

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_TIMEOUT_S = 120
# It is to look at one page of ours and at nothing else: what it would ask its maker of its own accord has no
# address.
_OPTIONS = (
    *("--headless", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--hide-scrollbars", "--no-pings"),
    "--host-resolver-rules=MAP * ~NOTFOUND",
)


@frozen
class Browser:
    """A Chromium. What it needs to begin with is made for each call, and goes with it."""

    path: str

    def run(self, page: Path, options: Sequence[str]) -> subprocess.CompletedProcess[bytes]:
        """Let it look at a page, and wait until it has."""
        # Its sandbox cannot be had by root.
        rights = ["--no-sandbox"] if os.geteuid() == 0 else []
        with tempfile.TemporaryDirectory(prefix="opwatch-", ignore_cleanup_errors=True) as profile:
            words = [
                *(self.path, *_OPTIONS, *rights, f"--user-data-dir={profile}"),
                *(*options, page.absolute().as_uri()),
            ]
            try:
                return subprocess.run(
                    words, capture_output=True, stdin=subprocess.DEVNULL, timeout=_TIMEOUT_S, check=True
                )
            except subprocess.TimeoutExpired:
                raise OpwatchError(f"{self.path} did not end within {_TIMEOUT_S} s") from None
            except subprocess.CalledProcessError as error:
                failure = OpwatchError(f"{self.path} failed with status {error.returncode}")
                failure.log = error.stderr.decode(errors="replace")
                raise failure from None

    def picture(self, page: Path, target: Path, width: int, height: int) -> None:
        """A page as PNG, in twice the size for sharp lines."""
        shape = [f"--window-size={width},{height}", "--force-device-scale-factor=2"]
        self.run(page, [*shape, f"--screenshot={target.absolute()}"])
        if not target.is_file():
            raise OpwatchError(f"{self.path} made no picture: {target} is not there")


def browser() -> Browser:
    """The browser of this machine; Unsupported where there is none."""
    path = next(filter(None, map(shutil.which, _NAMES)), None)
    if not path:
        raise Unsupported(
            "there is no Chromium to draw pictures with: sudo apt-get install chromium (the page of -o needs "
            "none)"
        )
    return Browser(path)
