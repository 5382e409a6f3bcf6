"""A command line of fio: what it asks for, and what can be added without changing what it does. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from opwatch.foreign import text_of
from opwatch.frozen import frozen

# Each of these has fio say or do something that we do not follow.
_ELSEWHERE = ("client", "server", "remote-config", "showcmd", "parse-only", "minimal", "status-interval")
_FORMAT, _OUTPUT = "output-format", "output"
# Options of a job that have to do with its logs, in a job file or behind --.
_OF_LOGS = re.compile(r"^[ \t]*(write_[a-z]+_log|log_[a-z_]+|per_job_logs)\b", re.MULTILINE)
_INCLUDE = re.compile(r"^[ \t]*include\b", re.MULTILINE)
# As fio averages bandwidth for what it prints: with another time that would change.
LOG_MS = 500
REPORT, LOGS = "report", "fio"


@frozen
class FioPlan:
    """How a command of fio is run. `argv` is what to run. `report` is where fio will have written its report,
    None with a `no_report` why there is none; `is_ours`, whether it has in it what the user would have seen
    on standard output. `no_logs` is why no logs are written, None when they are."""

    argv: tuple[str, ...]
    report: Path | None
    is_ours: bool
    no_report: str | None
    no_logs: str | None


def is_fio(command: Sequence[str]) -> bool:
    return bool(command) and Path(command[0]).name == "fio"


def plan(
    command: Sequence[str], folder: Path, read: Callable[[str], bytes | None], *, has_clock: bool
) -> FioPlan:
    """What to run in place of a command line of fio. `folder` is empty, and ours; `read` gives the begin of a
    job file, None of what is none. `has_clock` says that this fio can write its logs by the clock of the
    samples."""
    options = dict(_option(word) for word in command[1:] if word.startswith("-") and word != "-")
    added: list[str] = []
    report, is_ours, no_report = _report(options, folder)
    if is_ours:
        added += [f"--{_OUTPUT}={report}"]
        if not options.get(_FORMAT):
            added += [f"--{_FORMAT}=normal,json+"]
    no_logs = _no_logs(command[1:], options, read, has_clock=has_clock)
    if no_logs is None:
        prefix = folder / LOGS
        added += [f"--write_{kind}_log={prefix}" for kind in ("bw", "iops", "lat")]
        added += [f"--log_avg_msec={LOG_MS}", "--log_alternate_epoch=1", "--log_alternate_epoch_clock_id=1"]
    # What stands before the first job is the default of all jobs; what the command says itself prevails.
    return FioPlan((command[0], *added, *command[1:]), report, is_ours, no_report, no_logs)


def _option(word: str) -> tuple[str, str]:
    """(its whole name, its value): fio takes one dash for two, and names that are cut short."""
    name, _, value = word.lstrip("-").partition("=")
    for whole in (_FORMAT, *_ELSEWHERE):
        if name != _OUTPUT and len(name) > 3 and whole.startswith(name):
            return whole, value
    return name, value


def _report(options: dict[str, str], folder: Path) -> tuple[Path | None, bool, str | None]:
    for name in _ELSEWHERE:
        if name in options:
            return None, False, f"--{name} has it report otherwise"
    formats, output = options.get(_FORMAT), options.get(_OUTPUT)
    has_json = formats is None or bool({"json", "json+"} & set(formats.split(",")))
    if not has_json:
        return None, False, f"--{_FORMAT}={formats} has no JSON in it: add json+"
    if output is None and _OUTPUT not in options:
        return folder / REPORT, True, None
    if not output:
        return None, False, f"write --{_OUTPUT}=FILE, in one word"
    if formats is None:
        return None, False, f"--{_OUTPUT} without JSON: add --{_FORMAT}=normal,json+"
    return Path(output), False, None


def _no_logs(
    words: Sequence[str],
    options: dict[str, str],
    read: Callable[[str], bytes | None],
    *,
    has_clock: bool,
) -> str | None:
    if not has_clock:
        return "this fio has no log_alternate_epoch, which puts them on the clock of the samples"
    if any(name in options for name in ("client", "server", "remote-config", "showcmd", "parse-only")):
        return "its jobs do not run here"
    own = [name for name in options if _OF_LOGS.match(name)]
    if own:
        return f"--{own[0]} is the command's own"
    for word in words:
        if word == "-":
            return "its jobs come from standard input, where they may have logs of their own"
        text = text_of(read(word) or b"") if not word.startswith("-") else ""
        if option := _OF_LOGS.search(text):
            return f"{word} has {option[1]} of its own"
        if _INCLUDE.search(text):
            return f"{word} includes others, which may have logs of their own"
    return None
