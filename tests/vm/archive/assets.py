"""A kernel and an emulator ready to boot, fetched into the cache the first time."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.vm.archive import packages
from tests.vm.archive.packages import Apt
from tests.vm.boot import slots
from tests.vm.config import Kernel, Qemu, cache_dir
from tests.vm.errors import FetchError


@dataclass(frozen=True)
class Image:
    """An unpacked kernel package."""

    release: str
    vmlinuz: Path
    modules: Path


@dataclass(frozen=True)
class Emulator:
    """QEMU's command line with data directories, environment and version."""

    argv: tuple[str, ...]
    env: dict[str, str]
    version: tuple[int, int]


def find_image(root: Path) -> Image | None:
    """Return the kernel under this directory, or None if the kernel or modules are missing."""
    for modules in _list_module_folders(root):
        # Debian's packages of 7.2 and later store the kernel in its modules directory.
        for vmlinuz in (root / "boot" / f"vmlinuz-{modules.name}", modules / "vmlinuz"):
            if vmlinuz.is_file() and (modules / "modules.dep").is_file():
                return Image(modules.name, vmlinuz, modules)
    return None


def _list_module_folders(root: Path) -> list[Path]:
    return [*root.glob("lib/modules/*"), *root.glob("usr/lib/modules/*")]


def _find_image_package(apt: Apt, kernel: Kernel) -> str | None:
    """Return the image package that the meta-package names; otherwise the newest remaining one of the
    series."""
    package = packages.parse_image_package(apt.run_tool("apt-cache", "show", kernel.package), kernel.series)
    if package is None:
        names = apt.run_tool("apt-cache", "pkgnames", f"linux-image-{kernel.series}").split()
        package = packages.find_newest_package(names, kernel.series)
    return package


def _fetch_kernel(kernel: Kernel, root: Path) -> None:
    reasons = []
    for suite in kernel.suites:
        try:
            apt = packages.open_apt(cache_dir() / "apt" / suite, suite)
            package = _find_image_package(apt, kernel)
            if package is None:
                reasons.append(f"{suite}: it has no {kernel.package} of the {kernel.series} series")
                continue
            # Fetch the headers now: later the archive may only hold the headers of another version.
            parts = packages.parse_image_parts(apt.run_tool("apt-cache", "show", package))
            wanted = [package, *parts, *packages.name_header_packages(package)]
            archives = packages.download_packages(apt, wanted, apt.root / "download")
        except FetchError as error:
            reasons.append(f"{suite}: {error}")
            continue
        packages.unpack_packages(archives, root)
        shutil.rmtree(apt.root / "download")
        _link_headers(root)
        index_modules(root)
        return
    raise FetchError(f"kernel {kernel.name}: " + "; ".join(reasons))


def _iter_header_links(root: Path) -> Iterator[tuple[Path, Path]]:
    """Yield (link, target) pairs that make `build` and `source` point at the unpacked headers. The targets
    are absolute because a guest mounts the modules at another path."""
    for modules in _list_module_folders(root):
        headers = root / "usr/src" / f"linux-headers-{modules.name}"
        common = headers.with_name(headers.name.rpartition("-")[0] + "-common")
        yield modules / "build", headers
        yield modules / "source", common


def _has_header_links(root: Path) -> bool:
    return all(link.is_symlink() and link.readlink() == target for link, target in _iter_header_links(root))


def _link_headers(root: Path) -> None:
    for link, target in _iter_header_links(root):
        link.unlink(missing_ok=True)
        link.symlink_to(target)


def index_modules(root: Path) -> None:
    """Write modules.dep, which installing the package would have written."""
    for modules in _list_module_folders(root):
        base = modules.parents[2]
        depmod = shutil.which("depmod", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
        if depmod is None:
            raise FetchError("depmod is missing: install the package kmod")
        done = subprocess.run(
            [depmod, "-b", str(base), modules.name], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise FetchError(f"depmod of {modules.name}: {done.stderr.strip()[-800:]}")


def get_kernel_image(kernel: Kernel) -> Image:
    """Return the kernel from the cache, fetching it first if needed."""
    root = cache_dir() / "kernels" / kernel.name
    image = find_image(root)
    if image is None or not _has_header_links(root):
        with slots.lock_cache():
            if find_image(root) is None:
                _fetch_kernel(kernel, root)
            elif not _has_header_links(root):  # the cache was copied or moved
                _link_headers(root)
            image = find_image(root)
    if image is None:
        raise FetchError(f"{root} holds no kernel with modules: remove it and run again")
    return image


def parse_version(text: str) -> tuple[int, int] | None:
    """Return (major, minor) from the output of `qemu --version`, or None if no version is found."""
    match = re.search(r"version (\d+)\.(\d+)", text)
    return (int(match.group(1)), int(match.group(2))) if match else None


def probe_emulator(argv: tuple[str, ...], env: dict[str, str]) -> Emulator | None:
    """Return the emulator started by this command, or None if the command is missing or is not QEMU."""
    try:
        done = subprocess.run(
            [*argv, "--version"],
            capture_output=True,
            text=True,
            env=os.environ | env,
            check=False,
        )
    except OSError:
        return None
    version = parse_version(done.stdout)
    return Emulator(argv, env, version) if version else None


def _probe_unpacked(qemu: Qemu, root: Path) -> Emulator | None:
    libraries = sorted({str(p.parent) for p in root.glob("**/lib*.so.*")})
    modules = next(iter(root.glob("usr/lib/*-linux-*/qemu")), root)
    env = {"LD_LIBRARY_PATH": ":".join(libraries), "QEMU_MODULE_DIR": str(modules)}
    data = ["-L", f"{root}/usr/share/qemu", "-L", f"{root}/usr/share/seabios"]
    return probe_emulator((str(root / "usr/bin" / qemu.binary), *data), env)


def get_emulator(qemu: Qemu) -> Emulator:
    """Return the machine's QEMU if it is new enough; otherwise a QEMU unpacked in the cache."""
    installed = shutil.which(qemu.binary)
    candidate = probe_emulator((installed,), {}) if installed else None
    if candidate and candidate.version >= qemu.minimum:
        return candidate
    root = cache_dir() / "qemu"
    candidate = _probe_unpacked(qemu, root)
    if candidate is None or candidate.version < qemu.minimum:
        with slots.lock_cache():
            _fetch_emulator(qemu, root)
        candidate = _probe_unpacked(qemu, root)
    if candidate is None or candidate.version < qemu.minimum:
        raise FetchError(f"no QEMU of at least {qemu.minimum}: {qemu.why}")
    return candidate


def _fetch_emulator(qemu: Qemu, root: Path) -> None:
    reasons = []
    for pattern in qemu.suites:
        suite = pattern.format(codename=packages.read_codename())
        try:
            apt = packages.open_apt(cache_dir() / "apt" / f"own+{suite}", suite, with_own=True)
            archives = packages.download_with_dependencies(apt, qemu.package, suite)
        except FetchError as error:
            reasons.append(str(error))
            continue
        packages.unpack_packages(archives, root)
        for archive in archives:
            archive.unlink()
        return
    raise FetchError(f"{qemu.package}: " + "; ".join(reasons))
