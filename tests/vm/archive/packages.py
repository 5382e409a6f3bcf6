"""Fetch packages with apt into the cache and unpack them there; needs no root and installs nothing."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.vm.archive import aptsource
from tests.vm.errors import FetchError

_ATTEMPTS = 3


@dataclass(frozen=True)
class Apt:
    """A private apt configuration with its own sources, lists and archive."""

    root: Path
    # The packages' architecture if not the machine's; no foreign package counts as installed.
    architecture: str = ""

    def _format_options(self) -> list[str]:
        pairs = {
            "Dir::Etc::sourcelist": "/dev/null",
            "Dir::Etc::sourceparts": f"{self.root}/sources",
            "Dir::Etc::preferences": "/dev/null",
            "Dir::Etc::preferencesparts": "/dev/null",
            "Dir::State::lists": f"{self.root}/lists",
            "Dir::Cache": f"{self.root}/cache",
            "APT::Sandbox::User": "",
            "APT::Update::Post-Invoke::": "",
            "Acquire::Languages": "none",
            "Acquire::Retries": "3",
            "Debug::NoLocking": "1",
        }
        if self.architecture:
            pairs |= {"APT::Architecture": self.architecture, "APT::Architectures::": self.architecture}
            pairs |= {"Dir::State::status": "/dev/null"}
        return [word for k, v in pairs.items() for word in ("-o", f"{k}={v}")]

    def run_tool(self, tool: str, *args: str, cwd: Path | None = None) -> str:
        """Return the output of `apt-get` or `apt-cache`; raise FetchError with the error output."""
        argv = [tool, *self._format_options(), *args]
        done = subprocess.run(argv, cwd=cwd, capture_output=True, text=True, check=False)
        if done.returncode:
            raise FetchError(f"{tool} {' '.join(args)} failed: {done.stderr.strip()[-800:]}")
        return done.stdout

    def retry_tool(self, tool: str, *args: str, cwd: Path | None = None) -> str:
        """Do the same as `call`, but retry a few times if a transfer breaks."""
        for _ in range(_ATTEMPTS - 1):
            try:
                return self.run_tool(tool, *args, cwd=cwd)
            except FetchError as error:
                print(f"vm: again, because {error}", file=sys.stderr)
        return self.run_tool(tool, *args, cwd=cwd)


def read_codename() -> str:
    """Return the code name of this machine's Debian release."""
    release = platform.freedesktop_os_release()
    if release.get("ID") != "debian":
        raise FetchError(
            "the bench fetches Debian's packages through a Debian machine's own apt sources; "
            f"this is {release.get('PRETTY_NAME', 'something else')}: run it on Debian 12 or later"
        )
    return release["VERSION_CODENAME"]


def open_apt(root: Path, suite: str, with_own: bool = False, architecture: str = "") -> Apt:
    """Return a private apt with updated lists for `suite` and, with `with_own`, the machine's suites."""
    stanzas = aptsource.read_sources(Path("/etc/apt"))
    derived = aptsource.derive_source(stanzas, read_codename(), suite)
    if derived is None:
        raise FetchError(
            f"no source of {read_codename()} is configured under /etc/apt to derive {suite} from"
        )
    if architecture:
        derived = derived | {"Architectures": architecture}
    for folder in ("sources", "lists/partial", "cache/archives/partial"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    chosen = [derived, *(aptsource.select_own_sources(stanzas, read_codename()) if with_own else [])]
    (root / "sources" / "bench.sources").write_text(aptsource.format_sources(chosen))
    apt = Apt(root, architecture)
    apt.retry_tool("apt-get", "-q", "--error-on=any", "update")
    return apt


def parse_image_package(show: str, series: str) -> str | None:
    """Return the image package that a kernel meta-package depends on; None if of another series."""
    version = re.search(r"^Version: (?:\d+:)?(\S+)", show, re.MULTILINE)
    depends = re.search(r"^Depends:.*?(linux-image-\d\S*)", show, re.MULTILINE)
    if not version or not depends or not version.group(1).startswith(series):
        return None
    return depends.group(1)


def find_newest_package(names: Iterable[str], series: str) -> str | None:
    """Return the newest image package of a series among package names. A suite that has moved on to the next
    series may still hold older packages."""
    flavour = re.compile(rf"linux-image-{re.escape(series)}[\d.]*(?:[+-][a-z]*[\d.]*)?-amd64")
    fitting = [name for name in names if flavour.fullmatch(name)]
    return max(fitting, key=lambda name: [int(digits) for digits in re.findall(r"\d+", name)], default=None)


def parse_image_parts(show: str) -> list[str]:
    """Return the dependencies of an image package that hold kernel files, from `apt-cache show`. Debian's
    packages of 7.2 and later keep the kernel and its modules in separate packages."""
    depends = re.search(r"^Depends:(.*)$", show, re.MULTILINE)
    words = re.findall(r"linux-(?:binary|modules|base)-\d\S*", depends.group(1)) if depends else []
    return list(dict.fromkeys(words))


def name_header_packages(image: str) -> tuple[str, str]:
    """Return the header packages of an image package: the architecture's and the common one."""
    headers = image.replace("linux-image-", "linux-headers-", 1).removesuffix("-unsigned")
    return headers, headers.rpartition("-")[0] + "-common"


def unpack_packages(archives: Sequence[Path], into: Path) -> None:
    """Unpack the packages into directory `into`, either all or none."""
    part = into.with_name(into.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    for archive in archives:
        argv = ["dpkg-deb", "-x", str(archive), str(part)]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        if done.returncode:
            raise FetchError(f"{archive.name} does not unpack: {done.stderr.strip()[-800:]}")
    shutil.rmtree(into, ignore_errors=True)
    os.rename(part, into)


def download_packages(apt: Apt, wanted: Sequence[str], folder: Path) -> list[Path]:
    """Download exactly these packages and return their .deb files."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    apt.retry_tool("apt-get", "-q", "download", *wanted, cwd=folder)
    files = sorted(folder.glob("*.deb"))
    if len(files) != len(wanted):
        raise FetchError(f"apt-get download {' '.join(wanted)} left {len(files)} packages")
    return files


def download_with_dependencies(apt: Apt, package: str, suite: str) -> list[Path]:
    """Download the package with all missing dependencies, and return the .deb files."""
    archives = apt.root / "cache" / "archives"
    for old in archives.glob("*.deb"):
        old.unlink()
    args = ["-q", "-y", "--no-install-recommends", "--download-only", "--reinstall"]
    apt.retry_tool("apt-get", *args, "-t", suite, "install", package)
    return sorted(archives.glob("*.deb"))
