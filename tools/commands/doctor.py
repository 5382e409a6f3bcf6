"""`opwatch doctor`: tracing features of the machine, missing parts, and commands for fixing."""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import json
import os
import platform
import shlex
import sys
import textwrap
import urllib.parse
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

import opwatch
from opwatch import SCHEMA, __version__
from opwatch.collectors.block import probes
from opwatch.errors import OpwatchError
from opwatch.host import capabilities, diagnosis
from opwatch.host.device import Devices
from opwatch.host.diagnosis import Check, Extension, State, make_note, make_ok, make_problem, summarize_checks
from opwatch.host.privilege import build_own_command
from opwatch.host.toolbox import check_tools, find_missing_here
from opwatch.sinks.terminal import Writer
from opwatch.tools.config_file import find_path, list_effective, read_config

LOG_LINES = 20
_NAME = 19
# A findings column narrower than this would hold single words.
_MIN_ROOM = 24


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "opwatch doctor [--json]"
    parser.add_argument("--json", action="store_true", help='print one JSON document, "schema":"opwatch/1"')


def _read_text(path: str) -> str | None:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return None


def _read_bytes(path: str) -> bytes | None:
    try:
        return Path(path).read_bytes()
    except OSError:
        return None


def find_extension() -> Extension:
    """Return the state of opwatch._native. A successful import is the proof."""
    try:
        native = importlib.import_module("opwatch._native")
    except ImportError as error:
        return Extension(str(error), has_tracer=False)
    if getattr(native, "__file__", None) is None:
        # In a checkout the source folder has the same name and is importable as a namespace package.
        return Extension("it is not built", has_tracer=False)
    return Extension(None, has_tracer=hasattr(native, "Tracer"))


def format_rebuild_command(direct_url: str | None, checkout: Path) -> str:
    """Return the command that rebuilds and reinstalls opwatch.

    `direct_url` is pip's record of the install source; `checkout` is the folder of the package, a source tree
    if setup.py exists.
    """
    origin = json.loads(direct_url) if direct_url else {}
    url = urllib.parse.urlparse(origin.get("url", ""))
    folder = Path(urllib.parse.unquote(url.path))
    if (checkout / "setup.py").exists():
        source = f"-e {shlex.quote(str(checkout))}"
    elif url.scheme == "file" and folder.is_dir():
        editable = "-e " if origin.get("dir_info", {}).get("editable") else ""
        source = editable + shlex.quote(str(folder))
    else:
        # `make install` installs CHECKOUT/build/wheel/NAME.whl. opwatch is not on a package index.
        tree = folder.parents[2] if len(folder.parents) > 2 else folder
        is_checkout = url.scheme == "file" and (tree / "setup.py").exists()
        return f"sudo make -C {shlex.quote(str(tree)) if is_checkout else 'CHECKOUT-OF-OPWATCH'} install"
    python = shlex.quote(sys.executable)
    return f"OPWATCH_BPF=require {python} -m pip install --force-reinstall --no-deps {source}"


def _read_direct_url() -> str | None:
    try:
        return importlib.metadata.distribution("opwatch").read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:
        return None


def _check_kernel() -> list[Check]:
    btf = _read_bytes("/sys/kernel/btf/vmlinux")
    security = Path("/sys/kernel/security")
    return [
        diagnosis.check_kernel(platform.release(), platform.machine(), btf),
        diagnosis.check_tracepoints(btf, platform.machine()),
        diagnosis.check_loss_counters(btf),
        diagnosis.check_lockdown(
            _read_text(str(security / "lockdown")), securityfs=(security / "lsm").exists()
        ),
        diagnosis.check_jit(_read_text("/proc/sys/net/core/bpf_jit_enable")),
    ]


def _check_devices(devices: Devices) -> list[Check]:
    disks = [disk for disk in devices.iter_disks() if disk.size_bytes and not disk.is_hidden]
    checks = []
    if disks:
        checks.append(make_ok("disks", f"{len(disks)} with a medium; opwatch devices lists them"))
    else:
        checks.append(make_note("disks", "none with a medium"))
    for disk in disks:
        if disk.is_request_based and disk.read_number("queue/iostats") == 0:
            path = shlex.quote(f"/sys/block/{disk.sysfs.name}/queue/iostats")
            fix = f"echo 1 | sudo tee {path}"
            checks.append(make_note("statistics", f"{disk.name}: off, so drift cannot be detected", fix))
    if Path("/dev/disk/by-id").is_dir():
        checks.append(make_ok("by-id links", "/dev/disk/by-id exists"))
    else:
        finding = "no /dev/disk/by-id: disks have kernel names only"
        running = Path("/run/udev/control").exists()
        fix = "sudo udevadm trigger --subsystem-match=block" if running else "sudo apt-get install udev"
        checks.append(make_note("by-id links", finding, fix))
    return checks


def _check_tracer(missing: Sequence[str], devices: Devices, command: str) -> list[Check]:
    """Return the checks that need to load BPF programs."""
    built = find_extension()
    packages = [] if built.has_tracer else find_missing_here()
    checks = [
        diagnosis.check_extension(
            built, packages, format_rebuild_command(_read_direct_url(), Path(opwatch.__file__).parents[1])
        )
    ]
    if not built.has_tracer:
        checks.append(make_note("probes", "not tried: the extension cannot load them"))
    elif missing:
        checks.append(
            make_note("probes", f"not tried: loading them needs {' and '.join(missing)}", f"sudo {command}")
        )
    else:
        checks += [*probes.check_programs(devices), probes.check_floor(), probes.check_stats()]
        checks.append(probes.check_contexts())
    return checks


def _check_settings() -> list[Check]:
    """Return the effective settings with their sources, or what is wrong with their file."""
    try:
        config = read_config()
    except OpwatchError as error:
        return [make_problem("settings", str(error), None, error.exit_status)]
    if config.path is None:
        return [make_ok("settings", f"built-in defaults; there is no {find_path() or 'file to read'}")]
    return [
        make_ok("settings", f"{key}: {words} ({source})") for key, words, source in list_effective(config)
    ]


def run_checks(devices: Devices) -> list[Check]:
    """Return all checks, in the order in which to fix problems."""
    command = f"{build_own_command()} doctor"
    missing = capabilities.list_missing()
    return [
        *_check_kernel(),
        diagnosis.check_capabilities(missing, command, is_root=os.geteuid() == 0),
        *_check_tracer(missing, devices, command),
        *_check_devices(devices),
        *_check_settings(),
        *check_tools(),
    ]


def _format_check(check: Check, width: int | None) -> list[str]:
    begin = f"{check.state:<8}{check.name:<{_NAME}}"
    lines = [begin + check.finding]
    if width and width < len(begin) + _MIN_ROOM:
        finding = textwrap.wrap(
            check.finding, width, initial_indent="  ", subsequent_indent="  ", break_long_words=False
        )
        lines = [begin.rstrip(), *finding]
    elif width:
        lines = textwrap.wrap(
            check.finding,
            width,
            initial_indent=begin,
            subsequent_indent=" " * len(begin),
            break_long_words=False,
        )
    # Never wrap a command, to allow copying.
    if check.fix:
        lines.append(f"{'':<8}fix: {check.fix}")
    log = (check.log or "").strip().splitlines()
    return lines + [f"{'':<8}| {line}" for line in log[-LOG_LINES:]]


def format_checks(checks: Sequence[Check], width: int | None) -> list[str]:
    """Return the checks and the verdict as lines. Findings are wrapped if a width is given."""
    lines = [line for check in checks for line in _format_check(check, width)]
    problems = sum(check.state is State.PROBLEM for check in checks)
    notes = sum(check.state is State.NOTE for check in checks)
    counts = ", ".join(
        f"{count} {what}{'s' * (count != 1)}"
        for count, what in ((problems, "problem"), (notes, "note"))
        if count
    )
    words = summarize_checks(checks)[1] + (f" ({counts})" if counts else "")
    return [*lines, "", *(textwrap.wrap(words, width) if width else [words])]


def build_checks_document(checks: Sequence[Check]) -> dict[str, object]:
    status, words = summarize_checks(checks)
    listed = [
        {
            "name": check.name,
            "state": str(check.state),
            "finding": check.finding,
            "fix": check.fix,
            "log": check.log,
        }
        for check in checks
    ]
    body = {"version": __version__, "exit_status": status, "verdict": words, "checks": listed}
    return {"schema": SCHEMA, **body}


def show_checks(checks: Sequence[Check], stream: TextIO, *, as_json: bool) -> int:
    """Write the checks to the stream; return the exit status."""
    writer = Writer(stream)
    if as_json:
        writer.write_json(build_checks_document(checks), indent=2)
    else:
        writer.write_lines(format_checks(checks, writer.width))
    return summarize_checks(checks)[0]


def run(args: argparse.Namespace) -> int:
    return show_checks(run_checks(Devices()), sys.stdout, as_json=args.json)
