"""Recordings of `opwatch trim audit`: the evidence is kept, and a replay shows the same output."""

from __future__ import annotations

import gzip
import io
import json
import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path

import pytest

from opwatch.errors import BadInput
from opwatch.recording.coding.audits import SeenAudit, decode_audit, encode_audit
from opwatch.recording.reading.reader import RecordedRun
from opwatch.recording.schema import AUDIT
from opwatch.sinks.trim_audit import write_json, write_lines
from opwatch.tools.cli import main
from opwatch.tools.runs.audit_recorder import AuditRecorder, read_audits
from opwatch.trim.audit import ledger
from opwatch.trim.audit.audit import Verdict
from tests.fuzz.audits import make_audit_fuzzer
from tests.unit.trim.audit.sample_audits import make_sample_audits

RECORDINGS = Path(__file__).parents[2] / "fixtures" / "good" / "recordings"
SKIPPED = "left out: /mnt/x"


def write_audits(path: Path, audits: Iterable[SeenAudit | str]) -> Path:
    with AuditRecorder(path, ()) as file:
        for one in audits:
            if isinstance(one, str):
                file.record_skipped(one)
            else:
                file.record_audit(ledger.build_audit(one.evidence, one.subject), one.blind)
    assert file.problem is None
    return path


@pytest.mark.parametrize(
    "audited", make_sample_audits(), ids=lambda one: one.subject.encode("ascii", "replace")
)
def test_evidence_is_read_back_unchanged(audited: SeenAudit) -> None:
    assert decode_audit(encode_audit(audited), "it") == audited


@pytest.mark.parametrize("form", [[], ["--json"], ["--quiet"]])
def test_replay_shows_the_audits_output(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], form: list[str]
) -> None:
    path, live = write_audits(tmp_path / "a.opw", [*make_sample_audits(), SKIPPED]), io.StringIO()
    for audited in make_sample_audits():
        audits = [ledger.build_audit(audited.evidence, audited.subject)]
        if form == ["--json"]:
            write_json(audits, live, audited.blind)
        else:
            write_lines(audits, live, quiet=bool(form))
    assert main(["replay", *form, str(path)]) == 0
    out, err = capsys.readouterr()
    assert out == live.getvalue()
    assert SKIPPED in err
    assert path.stat().st_mode & 0o777 == 0o600


def test_replay_reports_a_kernel_that_skips_programs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    blind = [audited for audited in make_sample_audits() if audited.blind]
    path = write_audits(tmp_path / "a.opw", blind)
    assert main(["replay", str(path)]) == 0
    assert str(blind[0].blind) in capsys.readouterr().err


def test_verdicts_are_readable_by_sql(tmp_path: Path) -> None:
    path = write_audits(tmp_path / "a.opw", make_sample_audits())
    with closing(sqlite3.connect(path)) as file:
        rows = file.execute(
            "SELECT json_extract(words, '$.subject'), json_extract(words, '$.verdict') FROM events "
            "WHERE kind = 'trim audit'"
        ).fetchall()
    assert rows[0] == ("/mnt/data", "PROVEN")
    assert len(rows) == len(make_sample_audits())


@pytest.mark.parametrize(
    "command", [["dump", "-O", "csv"], ["dump", "-O", "jsonl"], ["compare"], ["replay", "--at", "1"]]
)
def test_commands_for_intervals_point_to_replay(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    path = str(write_audits(tmp_path / "a.opw", make_sample_audits()))
    status = main([*command, path, *([path] if command == ["compare"] else [])])
    out, err = capsys.readouterr()
    assert status == (2 if command[0] == "replay" else 6)
    assert (out, "opwatch trim audit" in err) == ("", True)
    assert command[0] == "replay" or "opwatch replay" in err


def test_recording_without_an_audit_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_audits(tmp_path / "a.opw", [SKIPPED])
    assert main(["replay", str(path)]) == 0
    assert SKIPPED in capsys.readouterr().err


def test_kept_audit_recording_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.opw"
    path.write_bytes(gzip.decompress((RECORDINGS / "1-audit.opw.gz").read_bytes()))
    with closing(RecordedRun(path)) as run:
        [audited, why] = read_audits(run)
    assert why == "/mnt/b: it is mounted read-only"
    assert isinstance(audited, SeenAudit)
    audit = ledger.build_audit(audited.evidence, audited.subject)
    assert (audit.subject, audit.verdict) == ("/mnt/data", Verdict.PROVEN)
    assert audit.reached_bytes == audit.claimed_bytes == 8 << 20
    assert [row.layer for row in audit.rows] == ["filesystem", "partition", "disk", "granules"]
    assert audited.evidence.log.lines == ("sda: a message of the kernel's",)


def _stack_layers(document: dict[str, object], below: list[str], times: int = 1) -> None:
    """Stack both layers of the first audit on `below`, the given number of times."""
    evidence = document["audit"][1]  # type: ignore[index]
    layers = evidence[0][1]
    for layer in layers:
        layer[8] = below
    evidence[0][1] = layers * times


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda document: document.pop("shapes"), "shapes"),
        (lambda document: document["shapes"].update(Stack=["layers"]), r"\b2 .*\bStack"),
        (lambda document: document["shapes"].update(Stack=["x", "x"]), "duplicate"),
        (lambda document: document["audit"].__setitem__(0, 7), r"\bsubject: "),
        (lambda document: _stack_layers(document, ["sda1", "sda"]), "cycle"),
        (lambda document: _stack_layers(document, []), "connected"),
        (lambda document: _stack_layers(document, ["sda"], 2), "duplicate layer"),
        (lambda document: document["audit"][1][4].__setitem__(1, 1 << 31), r"\b2147483648\b"),
        (lambda document: document["audit"][1].__setitem__(0, 3), r"\bStack .*\(3\)"),
    ],
)
def test_impossible_evidence_is_refused_with_its_place(
    change: Callable[[dict[str, object]], object], words: str
) -> None:
    document = json.loads(encode_audit(make_sample_audits()[0]))
    change(document)
    with pytest.raises(BadInput, match=words) as refused:
        decode_audit(json.dumps(document).encode(), "it")
    assert "it" in str(refused.value)


def test_an_event_without_its_file_is_refused(tmp_path: Path) -> None:
    path = write_audits(tmp_path / "a.opw", make_sample_audits())
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        file.execute("DELETE FROM events WHERE kind = 'file'")
    with closing(RecordedRun(path)) as run, pytest.raises(BadInput, match=f"table events, {AUDIT}"):
        list(read_audits(run))


def test_every_input_is_refused_or_judged() -> None:
    make_audit_fuzzer(5).run_inputs(1500)
