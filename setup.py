"""Package map and native extension.

OPWATCH_BPF=auto (the default) builds the tracer if clang, bpftool and libbpf are available, `require` fails
without them, `off` omits the tracer. All parsing, derivation and decisions work without the tracer.

OPWATCH_PORTABLE=1 builds one extension for every Python from 3.11 on (`make wheel`).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
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
    if not shutil.which(PKG_CONFIG) or subprocess.call([PKG_CONFIG, "libbpf >= 1.1"]):
        missing.append("libbpf-dev >= 1.1 (by pkg-config)")
    return missing


# Debian installs bpftool in /usr/sbin, which is not in an ordinary user's PATH.
PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
# A build for another architecture sets this and CC.
PKG_CONFIG = os.environ.get("PKG_CONFIG", "pkg-config")


MANUALS = ROOT / "build" / "man" / "man1"
# A source distribution has no link from opwatch/tools to tools.
WRITE_MANUALS = """
import runpy, sys, types
sys.path.insert(0, ".")
tools = sys.modules["opwatch.tools"] = types.ModuleType("opwatch.tools")
tools.__path__ = ["tools"]
runpy.run_module("opwatch.tools.manual", run_name="__main__")
"""


def write_manuals() -> list[str]:
    """Write a man page for each command, and return the paths of all pages."""
    arguments = ["docs/man/opwatch.1", str(MANUALS)]
    subprocess.check_call([sys.executable, "-c", WRITE_MANUALS, *arguments], cwd=ROOT)
    return sorted(str(path.relative_to(ROOT)) for path in MANUALS.iterdir())


DRIVE_SERVER = "opwatch/drive/opwatch-drive-server"
BROKER = "opwatch/tools/broker/opwatch-broker"
IS_PORTABLE = os.environ.get("OPWATCH_PORTABLE") == "1"
BPF_FOLDERS = r"/_native/(block|common|discards|history|writes)/"
WARNINGS = ["-Wall", "-Wextra", "-Werror"]
# Debug information without the build folder, so that builds in two folders give the same build ID.
PATHS = f"-ffile-prefix-map={ROOT.resolve()}=."
# Both programs run as root, or with capabilities, and read what other users write.
HARDENING = ["-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=2", "-fstack-protector-strong", "-fPIE", "-pie"]
HARDENING += ["-Wl,-z,relro", "-Wl,-z,now", "-Wl,-z,noexecstack"]


def build_drive_server(target: Path) -> None:
    """Build the server of the simulated drive. Prints a note and builds nothing without libfuse3."""
    query = [PKG_CONFIG, "--cflags", "--libs", "fuse3 >= 3.12"]
    if not shutil.which(PKG_CONFIG) or subprocess.call([*query, "--exists"], stderr=subprocess.DEVNULL):
        print("opwatch: built without the simulated drive, because libfuse3-dev >= 3.12 is missing")
        return
    flags = subprocess.check_output(query, text=True).split()
    files = [
        *list_sources("opwatch/drive/server"),
        *list_sources("opwatch/ftl"),
        "opwatch/_native/host/privileges.c",
    ]
    compile_program(target, files, ["-O3", "-Iopwatch"], [*flags, "-lm"])


def build_broker(target: Path) -> None:
    """Build the broker from the plain C library. Needs the skeletons of the BPF programs."""
    files = [
        *list_sources("tools/broker"),
        *(name for name in list_sources("opwatch/_native") if is_for_broker(name)),
    ]
    include = ["-Iopwatch", "-Ibpf", "-Ibuild/bpf", f'-DOPWATCH_VERSION="{read_version()}"']
    compile_program(target, files, ["-O2", *include], ["-lbpf", "-lelf", "-lz"])


def is_for_broker(source: str) -> bool:
    plain = r"/_native/(block|common|nvme|host)/(?!py_)"
    return bool(re.search(plain, source)) and not source.endswith("/contexts.c")


def compile_program(target: Path, files: list[str], options: list[str], libraries: list[str]) -> None:
    """Compile a program, and replace the file atomically, so that a running one keeps its own copy."""
    compiler = os.environ.get("CC", "cc").split()
    target.parent.mkdir(parents=True, exist_ok=True)
    new = target.with_suffix(".new")
    words = [*compiler, "-std=gnu11", *WARNINGS, *HARDENING, "-pthread", *options]
    subprocess.check_call([*words, *files, "-o", str(new), *libraries], cwd=ROOT)
    new.replace(target)


class BuildNative(build_ext):
    """Compiles the BPF objects into skeletons, then the extension, the drive server and the broker."""

    has_skeletons = False

    def run(self) -> None:
        super().run()
        top = ROOT if self.inplace else Path(self.build_lib).absolute()
        build_drive_server(top / DRIVE_SERVER)
        if self.has_skeletons:
            build_broker(top / BROKER)

    def build_extension(self, ext: Extension) -> None:
        wanted = os.environ.get("OPWATCH_BPF", "auto")
        missing = find_missing_for_bpf() if wanted != "off" else ["OPWATCH_BPF=off"]
        if missing and wanted == "require":
            raise SystemExit("opwatch: the tracer needs " + ", ".join(missing))
        if missing:
            print("opwatch: built without the tracer; missing:", ", ".join(missing))
            ext.sources = [s for s in ext.sources if not re.search(BPF_FOLDERS, s)]
        else:
            env = os.environ | {"PATH": PATH}
            subprocess.check_call(["make", "-s", "-C", str(ROOT / "bpf")], env=env)
            ext.define_macros.append(("OPWATCH_HAVE_BPF", "1"))
            ext.libraries += ["bpf", "elf", "z"]
            self.has_skeletons = True
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
        "opwatch.tools.completion": ["opwatch.bash", "opwatch.zsh", "opwatch.fish"],
    },
    ext_modules=[
        Extension(
            "opwatch._native",
            sources=list_sources("opwatch/_native") + list_sources("opwatch/ftl"),
            include_dirs=["bpf", "build/bpf", "opwatch"],
            extra_compile_args=["-std=gnu11", "-O3", PATHS, *WARNINGS],
            py_limited_api=IS_PORTABLE,
            libraries=["m"],
            optional=os.environ.get("OPWATCH_BPF", "auto") != "require",
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if IS_PORTABLE else {},
    cmdclass={"build_ext": BuildNative},
    data_files=[
        ("share/man/man1", write_manuals()),
        ("share/man/man8", ["docs/man/opwatch-broker.8"]),
    ],
    entry_points={"console_scripts": ["opwatch = opwatch.__main__:main"]},
)
