"""Analyze a fio command line, and add options without changing the workload. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from opwatch.foreign import decode_text

# Options that change fio's output or behaviour in ways opwatch does not support.
_REPORTS_ELSEWHERE = (
    "client",
    "server",
    "remote-config",
    "showcmd",
    "parse-only",
    "minimal",
    "status-interval",
)
_FORMAT, _OUTPUT = "output-format", "output"
# Log options of a job, in a job file or on the command line.
_LOG_OPTION = re.compile(r"^[ \t]*(write_[a-z]+_log|log_[a-z_]+|per_job_logs)\b", re.MULTILINE)
_INCLUDE = re.compile(r"^[ \t]*include\b", re.MULTILINE)
# fio's default averaging interval for bandwidth; another value would change the printed figures.
LOG_MS = 500
REPORT, LOGS = "report", "fio"


@dataclass(frozen=True, slots=True)
class FioPlan:
    """The command to run in place of the user's fio command.

    `argv` is the command line. `report` is the path of fio's report, or None with the reason in `no_report`.
    `is_ours` means that the report also contains the text for standard output. `no_logs` is the reason for
    not writing logs, or None if they are written.
    """

    argv: tuple[str, ...]
    report: Path | None
    is_ours: bool
    no_report: str | None
    no_logs: str | None


def is_fio(command: Sequence[str]) -> bool:
    return bool(command) and Path(command[0]).name == "fio"


def plan_command(
    command: Sequence[str], folder: Path, read: Callable[[str], bytes | None], *, has_clock: bool
) -> FioPlan:
    """Return the command to run in place of a fio command line.

    `folder` is an empty folder of ours. `read` returns the beginning of a job file, or None if the word is
    not a file. `has_clock` means that the installed fio can log with the clock of the samples.
    """
    options = dict(_parse_option(word) for word in command[1:] if word.startswith("-") and word != "-")
    added: list[str] = []
    report, is_ours, no_report = _plan_report(options, folder)
    if is_ours:
        added += [f"--{_OUTPUT}={report}"]
        if not options.get(_FORMAT):
            added += [f"--{_FORMAT}=normal,json+"]
    no_logs = _explain_missing_logs(command[1:], options, read, has_clock=has_clock)
    if no_logs is None:
        prefix = folder / LOGS
        added += [f"--write_{kind}_log={prefix}" for kind in ("bw", "iops", "lat")]
        added += [f"--log_avg_msec={LOG_MS}", "--log_alternate_epoch=1", "--log_alternate_epoch_clock_id=1"]
    # Options before the first job are defaults of all jobs, so the command's own options take precedence.
    return FioPlan((command[0], *added, *command[1:]), report, is_ours, no_report, no_logs)


def _parse_option(word: str) -> tuple[str, str]:
    """Return (the option's full name, its value). fio accepts a single dash and abbreviated names."""
    name, _, value = word.lstrip("-").partition("=")
    for whole in (_FORMAT, *_REPORTS_ELSEWHERE):
        if name != _OUTPUT and len(name) > 3 and whole.startswith(name):
            return whole, value
    return name, value


def _plan_report(options: dict[str, str], folder: Path) -> tuple[Path | None, bool, str | None]:
    for name in _REPORTS_ELSEWHERE:
        if name in options:
            return None, False, f"--{name} changes its report"
    formats, output = options.get(_FORMAT), options.get(_OUTPUT)
    has_json = formats is None or bool({"json", "json+"} & set(formats.split(",")))
    if not has_json:
        return None, False, f"--{_FORMAT}={formats} has no JSON: add json+"
    if output is None and _OUTPUT not in options:
        return folder / REPORT, True, None
    if not output:
        return None, False, f"write --{_OUTPUT}=FILE as one word"
    if formats is None:
        return None, False, f"--{_OUTPUT} without JSON: add --{_FORMAT}=normal,json+"
    return Path(output), False, None


def _explain_missing_logs(
    words: Sequence[str],
    options: dict[str, str],
    read: Callable[[str], bytes | None],
    *,
    has_clock: bool,
) -> str | None:
    if not has_clock:
        return "this fio lacks log_alternate_epoch, which logs with the samples' clock"
    if any(name in options for name in ("client", "server", "remote-config", "showcmd", "parse-only")):
        return "its jobs do not run on this host"
    own = [name for name in options if _LOG_OPTION.match(name)]
    if own:
        return f"the command already has --{own[0]}"
    for word in words:
        if word == "-":
            return "its jobs come from standard input and may have their own logs"
        text = decode_text(read(word) or b"") if not word.startswith("-") else ""
        if option := _LOG_OPTION.search(text):
            return f"{word} has its own {option[1]}"
        if _INCLUDE.search(text):
            return f"{word} includes other files, which may have their own logs"
    return None
