"""The page for programs: its commands are accepted, and its keys and statuses are those of the output."""

from __future__ import annotations

import gzip
import json
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from opwatch import errors
from opwatch.host.diagnosis import make_ok, make_problem
from opwatch.host.usage import Usage
from opwatch.sinks.sweep.document import build_result_document
from opwatch.sinks.trim_check import CheckResult, build_check_document
from opwatch.sinks.trim_stale import build_stale_document
from opwatch.tools import cli
from opwatch.tools.commands.doctor import build_checks_document
from opwatch.tools.commands.trim import check
from opwatch.trim.audit import verdicts
from opwatch.trim.audit.audit import Verdict
from tests.section import DOCS
from tests.unit.compare.counted_disk import generate_entries, write_recording
from tests.unit.host.test_devices import run_devices
from tests.unit.sinks.test_schema import make_lines
from tests.unit.support.sweeps import make_sweep
from tests.unit.support.sysfs import make_machine
from tests.unit.support.trimcases import CASES
from tests.unit.support.trimtree import Machine
from tests.unit.trim.check.test_check import predict_case
from tests.unit.trim.stale.test_stale import make_report
from tests.unit.why.test_command import make_bursts

PAGE = (DOCS / "agents.md").read_text()
RECORDINGS = Path(__file__).parents[2] / "fixtures" / "good" / "recordings"
_ROW = re.compile(r"^\|[^|]+\| `(opwatch [^`]+)` \|(.*)\|$", re.MULTILINE)
# The command, and the keys of its output.
ROWS = [(command, re.findall(r"`([^`]+)`", keys)) for command, keys in _ROW.findall(PAGE)]


def has_key(document: object, key: str) -> bool:
    """Return whether a document has a key such as `a.b[].c`, whatever its value is."""
    name, _, rest = key.partition(".")
    if not isinstance(document, Mapping) or name.removesuffix("[]") not in document:
        return False
    value = document[name.removesuffix("[]")]
    if not name.endswith("[]"):
        return has_key(value, rest) if rest else True
    return isinstance(value, list) and any(has_key(one, rest) for one in value)


def unpack_recording(name: str, folder: Path) -> str:
    path = folder / name
    path.write_bytes(gzip.decompress((RECORDINGS / f"{name}.gz").read_bytes()))
    return str(path)


def write_sweep(folder: Path) -> str:
    path = folder / "s.json"
    path.write_text(json.dumps(build_result_document(make_sweep("0,7,28%", (9e6, 6e6, 4e6)))))
    return str(path)


def make_check_document(folder: Path) -> dict[str, Any]:
    """Return the checks of a machine for each cause."""
    checks = []
    for number, case in enumerate(CASES.values()):
        machine = Machine(folder / str(number))
        outlook = predict_case(case, machine)
        checks.append(build_check_document(CheckResult(machine.read_stack(), outlook, ())))
    return {"checks": checks}


def print_documents(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, Any]]:
    """Return the documents that a command prints."""
    cli.main([*words, "--json"])
    printed = capsys.readouterr().out
    try:
        return [json.loads(printed)]
    except json.JSONDecodeError:
        return [json.loads(line) for line in printed.splitlines()]


def make_documents(command: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """Return documents that a command prints, made without its devices or privileges."""
    words = [word for word in command.split() if not word.startswith("-")]
    run, sweep = unpack_recording("1.opw", folder), write_sweep(folder)
    match words[1:3]:
        case ["doctor", *_]:
            return [build_checks_document([make_ok("a", "b"), make_problem("c", "d", "e", 5)])]
        case ["report", _]:
            return print_documents(capsys, "report", run, "-q")
        case ["why", _]:
            write_recording(folder / "slow.opw", generate_entries(make_bursts()))
            return print_documents(capsys, "why", str(folder / "slow.opw"))
        case ["compare", _]:
            return print_documents(capsys, "compare", run, unpack_recording("1-command.opw", folder))
        case ["waf", *_]:
            return print_documents(capsys, "replay", unpack_recording("1-waf.opw", folder))
        case ["counters", *_]:
            return print_documents(capsys, "counters", "--from", unpack_recording("1-waf.opw", folder))
        case ["trim", "check"]:
            return [make_check_document(folder)]
        case ["trim", "stale"]:
            return [build_stale_document(make_report())]
        case ["trim", "audit"]:
            return print_documents(capsys, "replay", unpack_recording("1-audit.opw", folder))
        case ["sweep", "run"]:
            return [json.loads(Path(sweep).read_text())]
        case ["sweep", "advise"]:
            return print_documents(capsys, *words[1:3], sweep, "--daily", "500GB", "--life", "5y")
        case ["devices", *_]:
            (folder / "machine").mkdir()
            machine = make_machine(folder / "machine")
            return [json.loads(run_devices(machine, Usage([], [], {}), "--json")[1])]
    return make_lines()


def test_key_rule_follows_objects_and_lists() -> None:
    document = {"a": [{"b": None}, {"c": {"d": 1}}], "e": None}
    assert all(has_key(document, key) for key in ("a", "a[].b", "a[].c.d", "e"))
    assert not any(has_key(document, key) for key in ("b", "a[].d", "a[].b.c", "e.f", "a.b", "e[]"))


def test_the_page_is_short_and_has_all_questions() -> None:
    assert len(PAGE.splitlines()) <= 80
    assert len(ROWS) > 10


@pytest.mark.parametrize(("command", "keys"), ROWS, ids=[command for command, _ in ROWS])
def test_commands_are_accepted_and_have_these_keys(
    command: str, keys: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, arguments = cli.parse(shlex.split(command)[1:])
    assert arguments.json
    documents = make_documents(command, tmp_path, capsys)
    assert [key for key in keys if not any(has_key(document, key) for document in documents)] == []


def test_every_exit_status_has_a_meaning() -> None:
    described = {int(status) for status in re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE)}
    kinds: list[type[errors.OpwatchError]] = [errors.OpwatchError, *errors.OpwatchError.__subclasses__()]
    of_trims = {verdicts.exit_status([verdict]) for verdict in Verdict} | {check.ALL, check.NONE, check.SOME}
    assert described >= {kind.exit_status for kind in kinds} | of_trims
