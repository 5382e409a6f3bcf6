"""Roots of Debian releases, made by mmdebstrap and entered with chroot, as root."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

MIRROR = "http://deb.debian.org/debian"
# This machine's way to the network, which may be a proxy with its own certificate.
_NETWORK_FILES = ("etc/resolv.conf", "etc/ssl/certs/ca-certificates.crt")
_NETWORK_VARIABLES = ("PIP_CERT", "http_proxy", "https_proxy")
# A private mount namespace: its mounts end with the command.
_ENTER = """
root=$1; shift
mount --rbind /dev "$root/dev"; mount --rbind /sys "$root/sys"; mount -t proc proc "$root/proc"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
exec chroot "$root" "$@"
"""


class CommandFailed(Exception):
    """A command in a root ended with an error; the message has its output."""


@dataclass(frozen=True)
class Root:
    """A folder with a Debian release."""

    path: Path

    def run(self, script: str, *, offline: bool = False) -> str:
        """Run a shell script in the root, and return its output. Raises CommandFailed if it fails."""
        argv = ["unshare", "--mount", "--propagation", "private", *(["--net"] if offline else [])]
        argv += ["sh", "-ec", _ENTER, "enter", str(self.path)]
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8", "HOME": "/root"}
        environment |= {name: os.environ[name] for name in _NETWORK_VARIABLES if name in os.environ}
        done = subprocess.run(
            [*argv, "sh", "-euc", script],
            env=environment | {"DEBIAN_FRONTEND": "noninteractive"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode:
            raise CommandFailed(f"{self.path.name}: {script.strip()}\n{done.stdout}")
        return done.stdout

    def list_files(self) -> set[str]:
        """Return the paths of all files and links in the root, without apt's caches and logs."""
        skipped = " -o ".join(
            f"-path {place}" for place in ("/var/cache", "/var/lib/apt", "/var/log", "/run")
        )
        return set(self.run(f"find / -xdev \\( {skipped} \\) -prune -o ! -type d -print").splitlines())


def make_archive(suite: str, archive: Path, packages: list[str]) -> Path:
    """Download a minimal root of a suite with these packages into a tar archive, unless it exists."""
    if not archive.exists():
        archive.parent.mkdir(parents=True, exist_ok=True)
        new = archive.with_name(f"new-{archive.name}")
        chosen = [f"--include={','.join(packages)}"] if packages else []
        argv = ["mmdebstrap", "--quiet", "--variant=minbase", *chosen, suite, str(new), MIRROR]
        subprocess.run(argv, check=True)
        new.rename(archive)
    return archive


def unpack(archive: Path, folder: Path) -> Root:
    """Unpack an archive into a folder, whose earlier content is lost, and return the root."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    subprocess.run(["tar", "-x", "--exclude=./dev/*", "-f", str(archive), "-C", str(folder)], check=True)
    for name in _NETWORK_FILES:
        if Path("/", name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(Path("/", name), folder / name)
    return Root(folder)
