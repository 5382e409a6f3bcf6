"""The bench's data: kernels.toml as records, and the paths of stored files."""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.vm.errors import BenchError

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parent.parent


def cache_dir() -> Path:
    """Return the directory for downloads and logs of failed guests: OPWATCH_VM_CACHE, otherwise .cache/vm."""
    return Path(os.environ.get("OPWATCH_VM_CACHE") or CHECKOUT / ".cache" / "vm").absolute()


@dataclass(frozen=True)
class Kernel:
    """One line of the support matrix."""

    name: str
    series: str
    distribution: str
    suites: tuple[str, ...]
    package: str
    tier: str = ""
    optional: str = ""
    files: tuple[str, ...] = ()
    lacks: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Qemu:
    """The emulator that the devices need."""

    package: str
    binary: str
    minimum: tuple[int, int]
    suites: tuple[str, ...]
    why: str


@dataclass(frozen=True)
class Config:
    """The contents of kernels.toml."""

    qemu: Qemu
    kernels: tuple[Kernel, ...]

    def find_kernel(self, name: str) -> Kernel:
        """Return the kernel with this name; the error for an unknown name lists the known names."""
        for kernel in self.kernels:
            if kernel.name == name:
                return kernel
        known = ", ".join(k.name for k in self.kernels)
        raise BenchError(f"tests/vm/kernels.toml has no kernel {name!r}; it has {known}")


def _parse_kernel(entry: dict[str, Any]) -> Kernel:
    suites, files = (tuple(entry.pop(name, ())) for name in ("suites", "files"))
    return Kernel(suites=suites, files=files, **entry)


def parse_config(text: str) -> Config:
    """Return the records in the text of a kernels.toml."""
    data: dict[str, Any] = tomllib.loads(text)
    qemu = dict(data["qemu"])
    major, minor = qemu.pop("minimum")
    return Config(
        Qemu(minimum=(major, minor), suites=tuple(qemu.pop("suites")), **qemu),
        tuple(_parse_kernel(entry) for entry in data["kernel"]),
    )


def read_config(path: Path = HERE / "kernels.toml") -> Config:
    """Return the records in kernels.toml."""
    return parse_config(path.read_text())
