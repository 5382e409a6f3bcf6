"""Kernels that skip BPF programs while PID 1 is current."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from opwatch.collectors.block.contexts import ContextProbe, is_global, watch_switches
from opwatch.host.usage import Mount
from opwatch.tools import cli
from opwatch.tools.commands.trim import audit as trim_audit
from opwatch.trace.contexts import SwitchCounts, count_switches, describe_missing
from opwatch.trace.trust import Drift
from opwatch.trim.audit.ledger import build_audit
from tests.unit.support.trim_evidence import make_evidence, make_layer, make_stack

STATUS = "Name:\tinit\nvoluntary_ctxt_switches:\t{}\nnonvoluntary_ctxt_switches:\t{}\n"


def test_switches_of_all_threads_are_added() -> None:
    assert count_switches([STATUS.format(362, 19), STATUS.format(1, 0)]) == 382
    assert count_switches(["", "voluntary_ctxt_switches:", "voluntary_ctxt_switches:\tx\n"]) == 0


@pytest.mark.parametrize(
    ("kernel", "program", "skipped"),
    [
        (0, 0, None),
        (2, 0, None),
        (3, 0, True),
        (29, 0, True),
        (3, 3, False),
        (29, 31, False),
        (29, 28, False),
    ],
)
def test_program_without_events_counts_as_skipped(kernel: int, program: int, skipped: bool | None) -> None:
    assert SwitchCounts(kernel, program).is_skipping is skipped


def test_missing_requests_are_bounded_by_the_kernels_count() -> None:
    drift = {"read": Drift(7, 2), "write": Drift(-1, 0), "flush": Drift(3, 0)}
    assert " 10 " in describe_missing(drift)
    assert "none" in describe_missing({"read": Drift(0, 5)})
    assert "unknown" in describe_missing({})


@pytest.mark.parametrize("blind", [None, "this kernel runs no programs there"])
def test_audit_prints_the_warning(
    blind: str | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr(trim_audit, "_trim_mounts", lambda args, contexts: 0)
    monkeypatch.setattr(ContextProbe, "start", lambda probe: None)
    monkeypatch.setattr(ContextProbe, "describe_effect", lambda probe, wait_s: blind)
    assert cli.main(["trim", "audit", "/"]) == 0
    assert capsys.readouterr().err == (f"opwatch: {blind}\n" if blind else "")
    assert cli.main(["trim", "audit", "-q", "/"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("blind", [None, "this kernel runs no programs there"])
def test_json_of_an_audit_has_the_warning(
    blind: str | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The audit waits for the probe only if requests are missing."""
    waited = []

    def record_wait(probe: ContextProbe, wait_s: float) -> str | None:
        waited.append(wait_s > 0)
        return blind

    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr(ContextProbe, "start", lambda probe: None)
    monkeypatch.setattr(ContextProbe, "describe_effect", record_wait)
    monkeypatch.setattr(trim_audit, "_choose_mounts", lambda args: [Mount("8:0", "/m", "ext4", "/dev/sda")])
    lost = make_evidence(make_stack(make_layer("sda", "8:0")), [], 1 << 20)
    whole = make_evidence(make_stack(make_layer("sda", "8:0")), [], 0)
    for number, case in enumerate((lost, whole)):
        monkeypatch.setattr(trim_audit, "audit_mount", lambda *_, case=case, **__: build_audit(case, "/m"))
        status = cli.main(["trim", "audit", "--json", "/m"])
        assert json.loads(capsys.readouterr().out)["blind"] == blind
        assert waited[0] is bool(status), number
        waited.clear()


def make_proc(folder: Path, namespace: int, number: int) -> Path:
    """A /proc in which our process has this number."""
    (folder / str(number) / "ns").mkdir(parents=True)
    (folder / "self").symlink_to(str(number))
    (folder / str(number) / "ns" / "pid").symlink_to(f"pid:[{namespace}]")
    return folder


def test_pid_1_of_a_container_is_not_the_machines(tmp_path: Path) -> None:
    assert is_global(make_proc(tmp_path / "host", 0xEFFFFFFC, os.getpid()))
    inner = make_proc(tmp_path / "container", 0xEFFFFFFC - 5, os.getpid())
    assert not is_global(inner)
    assert not is_global(make_proc(tmp_path / "other", 0xEFFFFFFC, os.getpid() + 1))
    assert not is_global(tmp_path)
    switches = watch_switches(0.1, inner)
    assert isinstance(switches, str) and "container" in switches
