"""Checks for companion programs, and for the build requirements."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sysconfig
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from opwatch.host.bpftrace_trial import try_bpftrace
from opwatch.host.diagnosis import Check, make_note, make_ok

# Administrators' directories missing in a user's PATH, and bcc's tool directory.
PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin:/usr/share/bcc/tools"
TIMEOUT_S = 10


@dataclass(frozen=True, slots=True)
class Tool:
    """A program for optional use by opwatch. `commands` are alternative names, preferred first. `ask` are the
    arguments for printing the version; empty if the program cannot print one."""

    name: str
    commands: tuple[str, ...]
    ask: tuple[str, ...]
    package: str
    purpose: str
    minimum: tuple[int, ...] = ()


def list_tools(machine: str) -> tuple[Tool, ...]:
    qemu = {"x86_64": "qemu-system-x86", "aarch64": "qemu-system-arm"}.get(machine, "qemu-system")
    return (
        Tool("fio", ("fio",), ("--version",), "fio", "generates the load for opwatch overhead", (3, 33)),
        Tool("nvme", ("nvme",), ("version",), "nvme-cli", "shows NVMe drives and their logs"),
        Tool("smartctl", ("smartctl",), ("--version",), "smartmontools", "reads the counters of SATA drives"),
        Tool("bpftrace", ("bpftrace",), ("--version",), "bpftrace", "runs bpftrace scripts"),
        Tool(
            "biolatency",
            ("biolatency-bpfcc", "biolatency"),
            (),
            "bpfcc-tools",
            "is bcc's tracer, for comparison",
        ),
        Tool(
            "qemu",
            (f"qemu-system-{machine}",),
            ("--version",),
            qemu,
            "boots stock kernels in the tests",
        ),
    )


def parse_version(text: str) -> tuple[int, ...]:
    """Return the first version number in a tool's output, or () if there is none. Pure."""
    number = re.search(r"(?<![\w.])(?:v|fio-)?([0-9]+(?:\.[0-9]+)+)", text)
    return tuple(int(field) for field in number[1].split(".")) if number else ()


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """A tool's output, or the reason why the tool could not run."""

    text: str
    failure: str | None = None


def judge_tool(tool: Tool, path: str | None, answer: ToolAnswer | None) -> Check:
    """Check a tool. `answer` is the version output, or None if not asked. Pure."""
    install = f"sudo apt-get install {tool.package}"
    if not path:
        return make_note(tool.name, f"missing; it {tool.purpose}", install)
    if not answer:
        return make_ok(tool.name, path)
    if answer.failure:
        return make_note(tool.name, f"{path} cannot be used: {answer.failure}")
    numbers = parse_version(answer.text)
    if not numbers:
        return make_note(tool.name, f"{path} does not report its version")
    printed = ".".join(map(str, numbers))
    if numbers < tool.minimum:
        return make_note(
            tool.name, f"{printed} is too old: at least {'.'.join(map(str, tool.minimum))} is needed", install
        )
    return make_ok(tool.name, printed)


def _ask_version(path: str, arguments: Sequence[str]) -> ToolAnswer:
    try:
        done = subprocess.run(
            [path, *arguments],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=TIMEOUT_S,
            check=False,
            env=os.environ | {"LC_ALL": "C"},
        )
    except subprocess.TimeoutExpired:
        return ToolAnswer("", f"no answer within {TIMEOUT_S} s")
    except OSError as error:
        return ToolAnswer("", error.strerror or str(error))
    if done.returncode:
        return ToolAnswer("", f"{' '.join(arguments)} failed with status {done.returncode}")
    return ToolAnswer((done.stdout or done.stderr).decode(errors="replace"))


def check_tools(machine: str | None = None) -> list[Check]:
    """Check all tools. All are optional: a missing tool is a note."""
    checks = []
    for tool in list_tools(machine or platform.machine()):
        path = next(filter(None, (shutil.which(command, path=PATH) for command in tool.commands)), None)
        check = judge_tool(tool, path, _ask_version(path, tool.ask) if path and tool.ask else None)
        checks.append(try_bpftrace(check, path) if tool.name == "bpftrace" else check)
    return checks


# Package -> commands; any single command is enough.
_BUILD_COMMANDS = {
    "gcc": ("gcc", "cc"),
    "make": ("make",),
    "pkg-config": ("pkg-config",),
    "clang": ("clang",),
    "bpftool": ("bpftool",),
}
_BUILD_HEADERS = {"libbpf-dev": "bpf/libbpf.h", "libelf-dev": "libelf.h", "zlib1g-dev": "zlib.h"}


def find_missing_packages(
    which: Callable[[str], str | None], headers: Sequence[Path], python_headers: Path
) -> list[str]:
    """Return the missing Debian packages for a build with the tracer."""
    missing = [
        package
        for package, commands in _BUILD_COMMANDS.items()
        if not any(which(command) for command in commands)
    ]
    missing += [
        package
        for package, header in _BUILD_HEADERS.items()
        if not any((folder / header).exists() for folder in headers)
    ]
    if not (python_headers / "Python.h").exists():
        missing.append("python3-dev")
    return missing


def find_missing_here() -> list[str]:
    multiarch = sysconfig.get_config_var("MULTIARCH") or ""
    headers = [Path("/usr/include"), Path("/usr/include") / multiarch, Path("/usr/local/include")]
    return find_missing_packages(
        lambda command: shutil.which(command, path=PATH), headers, Path(sysconfig.get_path("include"))
    )
