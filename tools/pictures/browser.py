"""Renders pages as pictures with a headless browser, if one is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from opwatch.errors import OpwatchError, Unsupported
from opwatch.tools.pictures.session import BrowserSession, open_browser_session

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_TIMEOUT_S = 120
# The browser must open our page only: requests to its vendor get no address.
_OPTIONS = (
    *("--headless", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--hide-scrollbars", "--no-pings"),
    "--host-resolver-rules=MAP * ~NOTFOUND",
)


@dataclass(frozen=True, slots=True)
class Browser:
    """A Chromium installation. Each call uses a temporary profile."""

    path: str

    def run_browser(self, page: Path, options: Sequence[str]) -> subprocess.CompletedProcess[bytes]:
        """Run the browser on a page, and wait for its end."""
        with tempfile.TemporaryDirectory(prefix="opwatch-", ignore_cleanup_errors=True) as profile:
            words = [
                *(self.path, *_OPTIONS, *self._list_sandbox_options(), f"--user-data-dir={profile}"),
                *(*options, page.absolute().as_uri()),
            ]
            try:
                return subprocess.run(
                    words, capture_output=True, stdin=subprocess.DEVNULL, timeout=_TIMEOUT_S, check=True
                )
            except subprocess.TimeoutExpired:
                raise OpwatchError(f"{self.path} did not finish within {_TIMEOUT_S} s") from None
            except subprocess.CalledProcessError as error:
                failure = OpwatchError(f"{self.path} failed with status {error.returncode}")
                failure.log = error.stderr.decode(errors="replace")
                raise failure from None

    def open_session(self) -> AbstractContextManager[BrowserSession]:
        """Return a running browser for several pictures."""
        return open_browser_session(self.path, [*_OPTIONS, *self._list_sandbox_options()])

    def write_picture(self, page: Path, target: Path, width: int, height: int | None) -> None:
        """Write a page as PNG, at double size for sharp lines. Without a height, all of the page is drawn."""
        with self.open_session() as session:
            session.write_picture(page, target, width, height)

    def _list_sandbox_options(self) -> list[str]:
        # Chromium's sandbox does not work for root.
        return ["--no-sandbox"] if os.geteuid() == 0 else []


def find_browser() -> Browser:
    """Return the browser of this machine. Raise Unsupported if there is none."""
    path = next(filter(None, map(shutil.which, _NAMES)), None)
    if not path:
        raise Unsupported(
            "drawing pictures needs Chromium: sudo apt-get install chromium (the page of -o does not need it)"
        )
    return Browser(path)
