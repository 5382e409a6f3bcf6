"""Build the Debian packages in a root of each suite, install, upgrade, remove and purge them in a clean one.

    python -m tests.release.debian [SUITE...] [arm64]

arm64 only cross-builds the packages and the wheel, in a root of Debian 12; make test-arm64 runs them. Needs
root. The roots are kept in build/roots, and the packages of a suite in build/roots/SUITE-debs.
"""

from __future__ import annotations

import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from opwatch import __version__
from tests.release.roots import Root, make_archive, unpack
from tests.tracked import ROOT

ROOTS = ROOT / "build/roots"
SUITES = ("bookworm", "trixie")
FOREIGN = "arm64"
PACKAGES = ("opwatch", "opwatch-drive", "opwatch-exporter")
# Of `make deb` itself, beyond the build dependencies of the packages.
_BUILD_TOOLS = ["build-essential", "debhelper", "fakeroot", "git", "lintian", "make"]
_PACKAGING = ROOT / "tools/deploy/debian"
# autopkgtest unpacks a source package, which must have one.
_CHANGELOG = """opwatch (0) unstable; urgency=medium

  * See CHANGELOG.md.

 -- opwatch developers <opwatch@localhost>  Thu, 01 Jan 1970 00:00:00 +0000
"""
_ADD_ARCHITECTURE = """
dpkg --add-architecture {0}; apt-get update -qq
apt-get install -qy --no-install-recommends crossbuild-essential-{0} python3-venv
apt-get build-dep -qy --no-install-recommends -a {0} /src/opwatch/tools/deploy
"""
_FIRST_LINE = """
truncate -s 16M /root/disk
device=$(losetup -f --show /root/disk)
trap 'losetup -d "$device"' EXIT
opwatch --dev "$device" --plain 0.1 1
"""


def list_build_packages() -> list[str]:
    """Return the packages that `make deb` needs: the first alternative of each build dependency."""
    control = (ROOT / "tools/deploy/debian/control").read_text()
    [field] = re.findall(r"^Build-Depends:((?:\n .*)+)", control, re.MULTILINE)
    names = [re.split(r"[ :(|]", entry.strip())[0] for entry in field.split(",")]
    return sorted({name for name in names if name != "debhelper-compat"} | set(_BUILD_TOOLS))


def build(suite: str, architecture: str | None = None) -> list[Path]:
    """Build the packages of the last commit in a root of the suite, and return their paths."""
    archive = make_archive(suite, ROOTS / f"{suite}-build.tar", list_build_packages())
    root = unpack(archive, ROOTS / f"{suite}-build")
    subprocess.run(["git", "clone", "-q", str(ROOT), str(root.path / "src/opwatch")], check=True)
    if architecture:
        root.run(_ADD_ARCHITECTURE.format(architecture))
    # "packages" would install also what only the tests need.
    targets = f"wheel deb DEB_ARCH={architecture}" if architecture else "deb"
    root.run(f"cd /src/opwatch && make -s -o packages {targets}")
    target = ROOTS / f"{architecture or suite}-debs"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    folder = root.path / "src/opwatch/build"
    for made in [*folder.glob("deb/*.deb"), *folder.glob("dist/*.whl")]:
        shutil.copy(made, target)
    shutil.rmtree(root.path)
    return sorted(target.iterdir())


@contextmanager
def measure_cpu(what: str) -> Iterator[None]:
    """Print the CPU time of the processes that the block starts and waits for."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    yield
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"{what}: {used:.2f} s of CPU time", flush=True)


def copy_with_next_version(package: Path, folder: Path) -> None:
    """Write a copy of a package with a higher version, which an upgrade installs."""
    content = folder / package.stem
    subprocess.run(["dpkg-deb", "-R", package, content], check=True)
    control = content / "DEBIAN/control"
    control.write_text(
        re.sub(r"(^Version: .*|opwatch \(= [^)]*)", r"\1+next", control.read_text(), flags=re.M)
    )
    subprocess.run(
        ["dpkg-deb", "--root-owner-group", "-b", content, folder], check=True, stdout=subprocess.DEVNULL
    )
    shutil.rmtree(content)


def check_packages(root: Root, suite: str, debs: list[Path]) -> None:
    """Install, run, upgrade, remove and purge the packages. Raises CommandFailed if a step fails."""
    before = root.list_files()
    first, second = root.path / "root/first", root.path / "root/second"
    for folder in (first, second):
        folder.mkdir()
    for package in debs:
        shutil.copy(package, first)
        copy_with_next_version(package, second)
    shutil.copy(_PACKAGING / "tests/live-watch", root.path / "root/live-watch")
    install = "apt-get install -qy --no-install-recommends"
    root.run(f"apt-get update -qq; {install} util-linux")
    with measure_cpu(f"{suite}: apt-get install, with the dependencies"):
        root.run(f"{install} /root/first/opwatch_*.deb")
    with measure_cpu(f"{suite}: dpkg --unpack of opwatch again"):
        root.run("dpkg --unpack /root/first/opwatch_*.deb")
    with measure_cpu(f"{suite}: dpkg --configure, which compiles the bytecode"):
        root.run("dpkg --configure opwatch")
    depends = root.run("dpkg-query -W -f '${Depends}' opwatch")
    size = root.run("dpkg-query -W -f '${Installed-Size}' opwatch")
    print(f"{suite}: installed opwatch, {size} KiB; depends on {depends}", flush=True)
    version = root.run("opwatch --version", offline=True)
    assert version == f"opwatch {__version__}\n", version
    # Exit status 4 and 5: the kernel or the privileges lack something, which is not the package's fault.
    root.run("opwatch doctor || case $? in 4|5) ;; *) exit 1 ;; esac", offline=True)
    with measure_cpu(f"{suite}: first watch after the installation, one interval of 0.1 s"):
        root.run(_FIRST_LINE, offline=True)
    root.run("sh /root/live-watch", offline=True)
    root.run(f"{install} /root/first/*.deb")
    root.run("opwatch-broker --version; opwatch drive list; opwatch exporter --help", offline=True)
    print(f"{suite}: ran doctor and a live watch offline, the broker, the simulated drive's list", flush=True)
    check_upgrade_and_purge(root, before)
    print(f"{suite}: upgraded, interrupted an upgrade, removed, purged", flush=True)
    run_autopkgtest(root)
    print(f"{suite}: autopkgtest passed", flush=True)


def check_upgrade_and_purge(root: Root, before: set[str]) -> None:
    """Upgrade in two steps as an interrupted dpkg does, remove and purge: nothing of opwatch is left."""
    root.run("dpkg --unpack /root/second/*.deb; opwatch --version; dpkg --configure -a; opwatch --version")
    root.run("apt-get remove -qy " + " ".join(PACKAGES))
    root.run("! command -v opwatch; ! command -v opwatch-broker")
    # Without configuration files nothing is left to purge, which only apt of Debian 12 calls an error.
    root.run("dpkg --purge " + " ".join(PACKAGES))
    left = {
        name for name in root.list_files() - before if "opwatch" in name and not name.startswith("/root/")
    }
    assert left == set(), left


def run_autopkgtest(root: Root) -> None:
    """Run the test of the source package with the packages of /root/first, on this machine's kernel."""
    shutil.copytree(_PACKAGING, root.path / "root/source/debian")
    (root.path / "root/source/debian/changelog").write_text(_CHANGELOG)
    root.run("apt-get install -qy --no-install-recommends autopkgtest")
    # A root is no machine of its own, which the test asks for because it loads BPF programs.
    root.run("autopkgtest --ignore-restrictions=isolation-machine /root/first/*.deb /root/source/ -- null")


def main() -> None:
    suites = sys.argv[1:] or SUITES
    for suite in suites:
        debs = build("bookworm", suite) if suite == FOREIGN else build(suite)
        print(f"{suite}: built {', '.join(path.name for path in debs)}", flush=True)
        if suite == FOREIGN:
            continue
        root = unpack(make_archive(suite, ROOTS / f"{suite}.tar", []), ROOTS / suite)
        try:
            check_packages(root, suite, debs)
        finally:
            shutil.rmtree(root.path)


if __name__ == "__main__":
    main()
