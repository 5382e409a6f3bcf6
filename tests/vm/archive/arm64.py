"""An arm64 guest: its kernel and userspace come from the archive, our extension is cross-compiled.

Used only for a smoke test. Emulation is as fast as for the other guests, but every file must be fetched
or compiled, whereas the other guests use this machine's own files.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tomllib
from dataclasses import dataclass
from pathlib import Path

from tests.vm.archive import assets, packages
from tests.vm.archive.packages import Apt
from tests.vm.boot import initramfs, qemu, slots
from tests.vm.boot.machine import Boot, Machine
from tests.vm.boot.qemu import Shape
from tests.vm.config import CHECKOUT, HERE, Kernel, cache_dir
from tests.vm.errors import BenchError, FetchError

# Mount points that would come from packages we leave out.
_FOLDERS = ("dev", "proc", "sys", "run", "tmp", "root", "mnt")
EXTENSION = CHECKOUT / "opwatch" / "_native.cpython-311-aarch64-linux-gnu.so"


@dataclass(frozen=True)
class Arm64Config:
    """The contents of arm64.toml."""

    kernel: Kernel
    emulator: str
    compiler: str
    triplet: str
    python: str
    userspace: tuple[str, ...]


def read_config(path: Path = HERE / "arm64.toml") -> Arm64Config:
    """Return the contents of arm64.toml."""
    data = tomllib.loads(path.read_text())
    names = ("name", "series", "distribution", "package")
    kernel = Kernel(suites=tuple(data["suites"]), **{name: data[name] for name in names})
    tools = {name: data[name] for name in ("emulator", "compiler", "triplet", "python")}
    return Arm64Config(kernel, userspace=tuple(data["userspace"]), **tools)


def explain_missing_tools(foreign: Arm64Config) -> str | None:
    """Return the reason why this machine cannot build the guest, or None if every tool is installed."""
    packages_of = {foreign.emulator: "qemu-system-arm", foreign.compiler: f"gcc-{foreign.triplet}"}
    lacking = [package for program, package in packages_of.items() if not shutil.which(program)]
    if lacking:
        return f"not installed: {' '.join(lacking)}"
    # The compiler only recommends its C library; without the library it would use this machine's headers.
    argv = [foreign.compiler, "-E", "-include", "stdint.h", "-x", "c", os.devnull]
    if subprocess.run(argv, capture_output=True, check=False).returncode:
        return "not installed: libc6-dev-arm64-cross"
    if not (CHECKOUT / "build/bpf/blk.skel.h").is_file():
        return "the BPF programs are not built: run make build"
    return None


def _fetch_root(foreign: Arm64Config, root: Path) -> None:
    reasons = []
    for suite in foreign.kernel.suites:
        try:
            apt = packages.open_apt(cache_dir() / "apt" / f"arm64+{suite}", suite, architecture="arm64")
            archives = _download_packages(apt, foreign)
        except FetchError as error:
            reasons.append(f"{suite}: {error}")
            continue
        packages.unpack_packages(archives, root)
        shutil.rmtree(apt.root / "download")
        for folder in _FOLDERS:
            (root / folder).mkdir(exist_ok=True)
        assets.index_modules(root)
        return
    raise FetchError(f"{foreign.kernel.name}: " + "; ".join(reasons))


def _download_packages(apt: Apt, foreign: Arm64Config) -> list[Path]:
    kernel = foreign.kernel
    image = packages.parse_image_package(apt.run_tool("apt-cache", "show", kernel.package), kernel.series)
    if image is None:
        raise FetchError(f"it has no {kernel.package} of the {kernel.series} series")
    return packages.download_packages(apt, [image, *foreign.userspace], apt.root / "download")


def get_root(foreign: Arm64Config) -> Path:
    """Return the directory that becomes the guest's root, fetching its packages the first time."""
    root = cache_dir() / "arm64"
    if assets.find_image(root) is None:
        with slots.lock_cache():
            if assets.find_image(root) is None:
                _fetch_root(foreign, root)
    return root


def build_extension(foreign: Arm64Config, root: Path) -> None:
    """Build opwatch._native for the guest. The file lies next to the host's extension; each Python loads the
    file for its architecture."""
    sources = [*(CHECKOUT / "opwatch/_native").rglob("*.c"), *(CHECKOUT / "opwatch/ftl").rglob("*.c")]
    include = ["bpf", "build/bpf", "opwatch"]
    foreign_include = [f"include/{foreign.python}", "include", f"include/{foreign.triplet}"]
    libraries = [root / "usr/lib" / foreign.triplet, root / "lib" / foreign.triplet]
    part = EXTENSION.with_name(f"{EXTENSION.name}.{os.getpid()}")
    argv = [foreign.compiler, "-shared", "-fPIC", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror"]
    argv += ["-DOPWATCH_HAVE_BPF=1", *(f"-I{CHECKOUT / name}" for name in include)]
    argv += [word for name in foreign_include for word in ("-isystem", str(root / "usr" / name))]
    argv += [*map(str, sources), *(f"-L{path}" for path in libraries)]
    argv += [f"-Wl,-rpath-link,{path}" for path in libraries]
    done = subprocess.run(
        [*argv, "-lbpf", "-lelf", "-lz", "-o", str(part)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise BenchError(f"the extension does not compile for {foreign.triplet}:\n{done.stderr[-3000:]}")
    part.replace(EXTENSION)


def prepare_boot(kernel: Kernel) -> Boot:
    """Return the boot files for the guest, with a freshly built extension."""
    foreign = read_config()
    root = get_root(foreign)
    build_extension(foreign, root)
    image = assets.find_image(root)
    emulator = assets.probe_emulator((foreign.emulator,), {})
    if image is None or emulator is None:
        raise FetchError(f"{kernel.name}: {root} holds no kernel, or {foreign.emulator} does not start")
    agent = initramfs.build_agent(cache_dir() / "agent-arm64", foreign.compiler)
    modules = Path("/") / image.modules.relative_to(root)
    archive = initramfs.build_initramfs(image, agent)
    shares = (("checkout", CHECKOUT),)
    return Boot(emulator, image.vmlinuz, archive, modules, qemu.ARM, root, shares)


def make_machine(foreign: Arm64Config) -> Machine:
    """Return the guest machine. Call `enter_checkout` before running anything else in the guest."""
    return Machine(foreign.kernel, (), Shape(memory_mib=1536), prepare=prepare_boot)


def enter_checkout(guest: Machine) -> None:
    """Mount the checkout in the guest at the same path as on the host."""
    mount = f"mkdir -p {CHECKOUT} && mount -t 9p -o ro,trans=virtio,version=9p2000.L checkout {CHECKOUT}"
    done = guest.run(["sh", "-c", mount], cwd=Path("/"))
    if done.status:
        raise BenchError(f"the checkout is not in the guest: {done.stderr.decode(errors='replace').strip()}")
