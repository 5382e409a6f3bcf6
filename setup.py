"""Package map and native extension.

OPWATCH_BPF=auto (the default) builds the tracer if clang, bpftool and libbpf are available, `require` fails
without them, `off` omits the tracer. All parsing, derivation and decisions work without the tracer.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).parent
# The symlinks opwatch/collectors and opwatch/tools make a checkout look like the installed package.
TOPS = {"opwatch": "opwatch", "opwatch.collectors": "collectors", "opwatch.tools": "tools"}


def package_folders() -> dict[str, str]:
    """Map import names to folders: every folder with an __init__.py, without following links."""
    packages = {}
    for name, top in TOPS.items():
        for folder, _, files in os.walk(ROOT / top):
            if "__init__.py" in files:
                rooms = Path(folder).relative_to(ROOT / top).parts
                packages[".".join((name, *rooms))] = str(Path(top, *rooms))
    return dict(sorted(packages.items()))


def read_version() -> str:
    text = (ROOT / "opwatch" / "__init__.py").read_text()
    assignment = re.search(r'__version__ = "([^"]+)"', text)
    assert assignment
    return assignment[1]


def list_sources(folder: str) -> list[str]:
    return sorted(str(path.relative_to(ROOT)) for path in (ROOT / folder).rglob("*.c"))


def find_missing_for_bpf() -> list[str]:
    """Return the build requirements of the tracer that this machine lacks."""
    missing = [tool for tool in ("clang", "bpftool", "make") if not shutil.which(tool, path=PATH)]
    if not shutil.which("pkg-config") or subprocess.call(["pkg-config", "libbpf >= 1.1"]):
        missing.append("libbpf-dev >= 1.1 (by pkg-config)")
    return missing


# Debian installs bpftool in /usr/sbin, which is not in an ordinary user's PATH.
PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"


DRIVE_SERVER = "opwatch/drive/opwatch-drive-server"
WARNINGS = ["-Wall", "-Wextra", "-Werror"]
# The drive server runs as root and reads files written by other users.
HARDENING = ["-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=2", "-fstack-protector-strong", "-fPIE", "-pie"]
HARDENING += ["-Wl,-z,relro", "-Wl,-z,now", "-Wl,-z,noexecstack"]


def build_drive_server(target: Path) -> None:
    """Build the server of the simulated drive. Prints a note and builds nothing without libfuse3."""
    query = ["pkg-config", "--cflags", "--libs", "fuse3 >= 3.12"]
    if not shutil.which("pkg-config") or subprocess.call([*query, "--exists"], stderr=subprocess.DEVNULL):
        print("opwatch: built without the simulated drive, because libfuse3-dev >= 3.12 is missing")
        return
    flags = subprocess.check_output(query, text=True).split()
    compiler = os.environ.get("CC", "cc").split()
    files = [
        *list_sources("opwatch/drive/server"),
        *list_sources("opwatch/ftl"),
        "opwatch/_native/host/privileges.c",
    ]
    include = ["-Iopwatch"]
    target.parent.mkdir(parents=True, exist_ok=True)
    # Replace the file atomically, so that a running server keeps its own copy.
    new = target.with_suffix(".new")
    options = ["-std=gnu11", "-O3", *WARNINGS, *HARDENING, "-pthread", *include]
    subprocess.check_call([*compiler, *options, *files, "-o", str(new), *flags, "-lm"], cwd=ROOT)
    new.replace(target)


class BuildNative(build_ext):
    """Compiles the BPF objects into skeletons, then the extension, then the drive server."""

    def run(self) -> None:
        super().run()
        build_drive_server((ROOT if self.inplace else Path(self.build_lib).absolute()) / DRIVE_SERVER)

    def build_extension(self, ext: Extension) -> None:
        wanted = os.environ.get("OPWATCH_BPF", "auto")
        missing = find_missing_for_bpf() if wanted != "off" else ["OPWATCH_BPF=off"]
        if missing and wanted == "require":
            raise SystemExit("opwatch: the tracer needs " + ", ".join(missing))
        if missing:
            print("opwatch: built without the tracer; missing:", ", ".join(missing))
            ext.sources = [
                s for s in ext.sources if not re.search(r"/_native/(block|common|discards|history)/", s)
            ]
        else:
            env = os.environ | {"PATH": PATH}
            subprocess.check_call(["make", "-s", "-C", str(ROOT / "bpf")], env=env)
            ext.define_macros.append(("OPWATCH_HAVE_BPF", "1"))
            ext.libraries += ["bpf", "elf", "z"]
        super().build_extension(ext)


PACKAGES = package_folders()

setup(
    name="opwatch",
    version=read_version(),
    description="Block-layer latency, write amplification and TRIM audit for SSDs",
    long_description=(ROOT / "README.md").read_text(),
    long_description_content_type="text/markdown",
    license="MIT AND (GPL-2.0-only OR MIT)",
    python_requires=">=3.11",
    # Optional; the core of opwatch does not need them. Keep in step with opwatch/host/privilege.py.
    extras_require={"analysis": ["duckdb>=2,<3"], "tui": ["textual>=8,<9"]},
    packages=list(PACKAGES),
    package_dir=PACKAGES,
    package_data={
        "opwatch": ["py.typed", "_native.pyi"],
        "opwatch.counters.catalogue": ["*.toml", "trims/*.toml", "learned/*.toml"],
        "opwatch.ftl": ["profiles/*.toml"],
        "opwatch.sinks.report": ["style.css"],
        "opwatch.load": ["workloads/*.toml"],
        "opwatch.scenarios": ["published/*.toml"],
        "opwatch.trim.stack": ["causes.toml"],
        "opwatch.tools": ["bcc/*", "bt/*"],
    },
    ext_modules=[
        Extension(
            "opwatch._native",
            sources=list_sources("opwatch/_native") + list_sources("opwatch/ftl"),
            include_dirs=["bpf", "build/bpf", "opwatch"],
            extra_compile_args=["-std=gnu11", "-O3", *WARNINGS],
            libraries=["m"],
            optional=os.environ.get("OPWATCH_BPF", "auto") != "require",
        )
    ],
    cmdclass={"build_ext": BuildNative},
    data_files=[("share/man/man1", ["docs/man/opwatch.1"])],
    entry_points={"console_scripts": ["opwatch = opwatch.__main__:main"]},
)
