"""Find the fstrim schedule of this machine: systemd timer or cron."""

from __future__ import annotations

import re
from pathlib import Path

from opwatch.errors import OpwatchError
from opwatch.host.process import run_tool
from opwatch.trim.check.schedule import FSTAB, Schedule, build_schedule, parse_fstab, parse_properties

_PROPERTIES = "Id,LoadState,UnitFileState,ActiveState,LastTriggerUSec,NextElapseUSecRealtime,Result,ExecStart"
_CRON = ("etc/crontab", "etc/cron.d/*", "etc/cron.daily/*", "etc/cron.weekly/*", "etc/cron.monthly/*")
_CONTAINER = {"run/.containerenv": "podman", ".dockerenv": "docker"}


def _read_text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _find_container(root: Path) -> str | None:
    """Return the type of container, as marked by its manager, or None."""
    named = _read_text(root / "run/systemd/container").strip()
    return named or next((kind for path, kind in _CONTAINER.items() if (root / path).exists()), None)


def _find_cron_files(root: Path) -> tuple[str, ...]:
    """Return the cron files that call fstrim."""
    files = []
    for pattern in _CRON:
        for path in sorted(root.glob(pattern)):
            if path.is_file() and re.search(r"^[^#\n]*\bfstrim\b", _read_text(path), re.M):
                files.append(f"/{path.relative_to(root)}")
    return tuple(files)


def read_schedule(root: Path = Path("/")) -> Schedule:
    """Return the fstrim schedule. `why_none` and `why_unknown` explain missing parts."""
    fstab = parse_fstab(_read_text(root / FSTAB.lstrip("/")))
    container, cron = _find_container(root), _find_cron_files(root)
    # sd_booted(3) checks the same folder.
    if not (root / "run/systemd/system").is_dir():
        none = "systemd is not running, so no timer starts fstrim"
        return Schedule(why_none=none, container=container, cron=cron, fstab=fstab)
    argv = ["systemctl", "show", "--timestamp=unix", f"--property={_PROPERTIES}"]
    try:
        text = run_tool([*argv, "fstrim.timer", "fstrim.service"], timeout_s=10)
    except OpwatchError as error:
        return Schedule(why_unknown=f"systemd: {error}", container=container, cron=cron, fstab=fstab)
    return build_schedule(parse_properties(text), fstab, container, cron)
