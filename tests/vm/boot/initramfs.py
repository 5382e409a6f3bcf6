"""Build the initramfs: the agent as /init, and the modules that the agent needs to reach the host's files."""

from __future__ import annotations

import lzma
import os
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tests.vm.archive.assets import Image
from tests.vm.config import HERE, cache_dir
from tests.vm.errors import BenchError

# Modules that the guest needs before it can read the host's files.
BOOT_MODULES = ("virtio_pci", "9pnet_virtio", "9p", "overlay", "virtio_console")

AGENT = HERE / "agent"


def get_module_name(path: str) -> str:
    """Return the name that modprobe uses for a module file."""
    return Path(path).name.split(".ko", 1)[0].replace("-", "_")


def parse_dependencies(text: str) -> dict[str, tuple[str, ...]]:
    """Parse modules.dep: return the files that each file depends on."""
    graph = {}
    for line in text.splitlines():
        file, _, needs = line.partition(":")
        graph[file] = tuple(needs.split())
    return graph


def order_modules(
    names: Iterable[str], graph: Mapping[str, Sequence[str]], builtin: Iterable[str] = ()
) -> list[str]:
    """Return the files to load for these modules, dependencies first; built-in modules are left out."""
    files = {get_module_name(file): file for file in graph}
    inside = {get_module_name(file) for file in builtin}
    order: list[str] = []

    def add_with_dependencies(file: str) -> None:
        for need in graph[file]:
            if need not in order:
                add_with_dependencies(need)
        if file not in order:
            order.append(file)

    for name in names:
        known = name.replace("-", "_")
        if known in files:
            add_with_dependencies(files[known])
        elif known not in inside:
            raise BenchError(f"this kernel has no module {name}")
    return order


def encode_cpio_entry(name: str, mode: int, data: bytes, inode: int) -> bytes:
    """Return one file or directory in the kernel's "newc" archive format."""
    path = name.encode() + b"\0"
    fields = (inode, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(path), 0)
    head = b"070701" + b"".join(b"%08X" % field for field in fields)
    entry = head + path
    entry += b"\0" * (-len(entry) % 4)
    return entry + data + b"\0" * (-len(data) % 4)


def encode_cpio(files: Mapping[str, tuple[int, bytes]]) -> bytes:
    """Return an archive of these paths with mode and content."""
    entries = [encode_cpio_entry(n, m, d, i) for i, (n, (m, d)) in enumerate(files.items(), start=1)]
    return b"".join(entries) + encode_cpio_entry("TRAILER!!!", 0, b"", 0)


def read_module(path: Path) -> bytes:
    """Return the module, decompressed: the host unpacks faster than the guest's emulated CPU."""
    if path.suffix == ".xz":
        return lzma.decompress(path.read_bytes())
    if path.suffix == ".zst":
        return subprocess.run(["zstd", "-dcq", path], check=True, capture_output=True).stdout
    return path.read_bytes()


def build_agent(into: Path, compiler: str = "") -> Path:
    """Return the static agent, compiled if its source has changed, with the host's compiler by default."""
    sources = sorted(AGENT.glob("*.c"))
    newest = max(path.stat().st_mtime for path in AGENT.iterdir())
    if into.is_file() and into.stat().st_mtime > newest:
        return into
    into.parent.mkdir(parents=True, exist_ok=True)
    part = into.with_name(f"{into.name}.{os.getpid()}")
    flags = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-static"]
    argv = [compiler or os.environ.get("CC", "cc"), *flags, "-o", str(part), *map(str, sources)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BenchError(f"the guest agent does not compile:\n{done.stderr}")
    os.rename(part, into)
    return into


def build_initramfs(image: Image, agent: Path | None = None) -> bytes:
    """Return the initramfs for this kernel, with the host's own agent by default."""
    graph = parse_dependencies((image.modules / "modules.dep").read_text())
    builtin = (image.modules / "modules.builtin").read_text().split()
    order = order_modules(BOOT_MODULES, graph, builtin)
    files: dict[str, tuple[int, bytes]] = {
        "dev": (0o40755, b""),
        "init": (0o100755, (agent or build_agent(cache_dir() / "agent")).read_bytes()),
    }
    names = []
    for file in order:
        name = f"/{get_module_name(file)}.ko"
        names.append(name)
        files[name[1:]] = (0o100644, read_module(image.modules / file))
    files["modules"] = (0o100644, "".join(f"{n}\n" for n in names).encode())
    return encode_cpio(files)
