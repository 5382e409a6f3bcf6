"""opwatch doctor's findings on our BPF programs and on other tools."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

import pytest

from opwatch.collectors.block import probes
from opwatch.errors import OpwatchError, PermissionMissing, ProbeRejected, Unsupported
from opwatch.host import diagnosis, toolbox
from opwatch.host.diagnosis import Attempt, State, make_ok
from opwatch.host.toolbox import ToolAnswer
from opwatch.trace.programs import BIO_PROGRAMS, REQUEST_PROGRAMS
from tests.unit.support.sysfs import Tree, make_machine

LOG = """libbpf: prog 'rq_requeue': BPF program load failed: Permission denied
libbpf: prog 'rq_requeue': -- BEGIN PROG LOAD LOG --
R1 invalid mem access 'scalar'
-- END PROG LOAD LOG --
libbpf: prog 'rq_requeue_raw': failed to load: -13
libbpf: failed to load object 'opwatch_blk'
"""


TYPED = Attempt("tp_btf", {"rq_issue": 0, "rq_requeue": 3})
RAW = Attempt("raw_tp", {"rq_issue": 0, "rq_requeue": 0})
REJECTED = Attempt("", {}, ProbeRejected("cannot load: EACCES", LOG), LOG)


def test_a_program_that_loads_is_fine() -> None:
    check = diagnosis.check_program("rq_issue", TYPED, RAW)
    assert (check.name, check.state, check.fix, check.exit_status) == ("probe rq_issue", State.OK, None, 0)
    assert re.findall("tp_btf|raw_tp", check.finding) == ["tp_btf", "raw_tp"]
    assert re.search(r"\b3\b", diagnosis.check_program("rq_requeue", TYPED, RAW).finding)


def test_a_program_without_its_tracepoint_is_missing() -> None:
    check = diagnosis.check_program("rq_queue", TYPED, RAW)
    assert check.state is State.NOTE and check.finding.startswith("missing")


def test_a_kernel_that_takes_only_the_twins_is_noted() -> None:
    check = diagnosis.check_program("rq_issue", RAW, RAW)
    assert check.state is State.NOTE and "raw_tp" in check.finding


def test_rejected_program_has_its_log_and_others_do_not() -> None:
    culprit = diagnosis.check_program("rq_requeue", REJECTED, REJECTED)
    assert (culprit.state, culprit.exit_status, culprit.log) == (State.PROBLEM, 1, LOG)
    assert culprit.fix == diagnosis.REPORT_HINT
    other = diagnosis.check_program("rq_issue", REJECTED, REJECTED)
    assert (other.state, other.exit_status) == (State.NOTE, 0)
    assert "rq_requeue" in other.finding


def test_rejection_without_a_program_applies_to_all_programs() -> None:
    nameless = Attempt("", {}, ProbeRejected("cannot load: E2BIG", "argh"), "argh")
    assert diagnosis.check_program("rq_issue", nameless, nameless).exit_status == 1


def test_rejected_twin_is_also_a_bug() -> None:
    check = diagnosis.check_program("rq_requeue", TYPED, REJECTED)
    assert (check.state, check.exit_status) == (State.PROBLEM, 1)
    assert re.findall("tp_btf|raw_tp", check.finding) == ["tp_btf", "raw_tp"]


@pytest.mark.parametrize(("error", "status"), [(PermissionMissing("x"), 4), (Unsupported("x"), 5)])
def test_refusals_outside_our_programs_keep_their_status(error: OpwatchError, status: int) -> None:
    check = diagnosis.check_program("rq_issue", Attempt("", {}, error), RAW)
    assert (check.state, check.exit_status) == (State.PROBLEM, status)


class FakeTracer:
    """Loads or fails as configured, and must be closed."""

    open = 0
    error: Exception | None = None

    def __init__(self, leaves: object, *, queue_time: bool, raw_tp: bool) -> None:
        if self.error:
            raise self.error
        assert queue_time
        self.hooks = "raw_tp" if raw_tp else "tp_btf"
        FakeTracer.open += 1

    def list_programs(self) -> list[tuple[str, int, int, int, int]]:
        suffix = "_raw" if self.hooks == "raw_tp" else ""
        names = (*REQUEST_PROGRAMS, *BIO_PROGRAMS)
        return [(name + suffix, 1, 0, 0, 0) for name in names]

    def close(self) -> None:
        FakeTracer.open -= 1


def test_every_program_is_tried_and_detached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "BlockTracer", FakeTracer)
    checks = probes.check_programs(make_machine(tmp_path).devices)
    assert [check.name for check in checks] == [
        f"probe {name}" for name in (*REQUEST_PROGRAMS, *BIO_PROGRAMS)
    ]
    assert {check.state for check in checks} == {State.OK}
    assert all("(tp_btf; raw_tp " in check.finding for check in checks)
    assert FakeTracer.open == 0


def test_without_a_disk_the_request_programs_are_not_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probes, "BlockTracer", FakeTracer)
    tree = Tree(tmp_path)
    tree.add_disk("zram0", "252:0")
    tree.add_disk("loop1", "7:1", sectors=0, tags=[128])
    first, *rest = probes.check_programs(tree.devices)
    assert (first.state, first.name) == (State.NOTE, "probes rq_*")
    assert [check.name for check in rest] == [f"probe {name}" for name in BIO_PROGRAMS]


@pytest.mark.parametrize(
    ("error", "log"),
    [
        (ProbeRejected("no", "its log"), "its log"),
        (Unsupported("no BTF"), ""),
        (FileNotFoundError(2, "No such file or directory"), ""),
    ],
)
def test_failed_attempt_is_returned_as_a_value(
    monkeypatch: pytest.MonkeyPatch, error: Exception, log: str
) -> None:
    monkeypatch.setattr(FakeTracer, "error", error)
    monkeypatch.setattr(probes, "BlockTracer", FakeTracer)
    attempt = probes.try_attach(probes.NOBODY, raw_tp=False)
    assert isinstance(attempt.error, OpwatchError)
    assert (attempt.misses, attempt.log) == ({}, log)


# --- other programs


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("fio-3.33\n", (3, 33)),
        ("fio-3.36-12-gabc\n", (3, 36)),
        ("nvme version 2.3 (git 2.3)\nlibnvme version 1.3\n", (2, 3)),
        ("smartctl 7.3 2022-02-28 r5338 [x86_64-linux-6.18]\n", (7, 3)),
        ("bpftrace v0.17.0\n", (0, 17, 0)),
        ("QEMU emulator version 7.2.9 (Debian 1:7.2+dfsg-7)\n", (7, 2, 9)),
        ("usage: x86_64.tool\n", ()),
        ("", ()),
    ],
)
def test_version_is_found_in_a_tools_output(text: str, expected: tuple[int, ...]) -> None:
    assert toolbox.parse_version(text) == expected


FIO = toolbox.Tool("fio", ("fio",), ("--version",), "fio", "makes load", (3, 33))


@pytest.mark.parametrize(
    ("path", "answer", "state", "words", "fix"),
    [
        ("/usr/bin/fio", ToolAnswer("fio-3.33"), State.OK, "3.33", None),
        ("/usr/bin/fio", ToolAnswer("fio-4.0"), State.OK, "4.0", None),
        (
            "/usr/bin/fio",
            ToolAnswer("fio-3.7"),
            State.NOTE,
            "3.7 is too old: at least 3.33",
            "sudo apt-get install fio",
        ),
        ("/usr/bin/fio", ToolAnswer("hello"), State.NOTE, "version", None),
        ("/usr/bin/fio", ToolAnswer("", "no answer within 9.5 s"), State.NOTE, "within 9.5 s", None),
        ("/usr/bin/fio", None, State.OK, "/usr/bin/fio", None),
        (None, None, State.NOTE, "missing; ", "sudo apt-get install fio"),
    ],
)
def test_tool_versions_are_judged(
    path: str | None, answer: ToolAnswer | None, state: State, words: str, fix: str | None
) -> None:
    check = toolbox.judge_tool(FIO, path, answer)
    assert (check.state, check.fix, check.exit_status) == (state, fix, 0)
    assert words in check.finding


def test_tools_are_run_and_may_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, script in {
        "fio": "echo fio-3.35",
        "nvme": "sleep 60",
        "smartctl": "exit 1",
        "biolatency": "exit 1",
    }.items():
        (tmp_path / name).write_text(f"#!/bin/sh\nPATH=/usr/bin:/bin\n{script}\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "bpftrace").write_text("\x7fELF not really")
    (tmp_path / "bpftrace").chmod(0o755)
    monkeypatch.setattr(toolbox, "PATH", str(tmp_path))
    monkeypatch.setattr(toolbox, "TIMEOUT_S", 2.5)
    checks = {check.name: check for check in toolbox.check_tools("x86_64")}
    assert checks["fio"] == make_ok("fio", "3.35")
    assert "2.5 s" in checks["nvme"].finding
    assert "status 1" in checks["smartctl"].finding
    assert os.strerror(errno.ENOEXEC) in checks["bpftrace"].finding
    assert checks["biolatency"] == make_ok("biolatency", str(tmp_path / "biolatency"))
    assert checks["qemu"].fix == "sudo apt-get install qemu-system-x86"
