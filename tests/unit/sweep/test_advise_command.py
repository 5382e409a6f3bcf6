"""`opwatch sweep advise` from every source of a sweep, its exit statuses and refusals."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from opwatch.codec import encode
from opwatch.journal.state import parse_journal
from opwatch.recording.schema import SWEEP
from opwatch.recording.writing.newfile import NewDatabase
from opwatch.recording.writing.writer import RecordingWriter
from opwatch.sinks.sweep.document import build_result_document
from opwatch.tools.cli import main
from tests.section import DOCS
from tests.unit.support.recordings import HEADER, generate_short_run, record_run
from tests.unit.support.sample_run import make_sample_run
from tests.unit.support.sweeps import make_journal_entries, make_sweep, write_journal

SCHEMA: dict[str, Any] = json.loads((DOCS / "schema" / "sweep-advice.json").read_text())
TARGETS = ["--daily", "500GB", "--life", "5y", "--iops", "20k", "--p99", "5ms", "--price-per-tb", "80"]


def write_document(path: Path, levels: str = "0,7,28%", **changes: Any) -> str:  # noqa: ANN401
    path.write_text(json.dumps(build_result_document(make_sweep(levels, (9e6, 6e6, 4e6))) | changes))
    return str(path)


def write_recording(path: Path, entries: list[str]) -> str:
    """Write a recording with the entries of a journal and a few samples."""
    database = NewDatabase(path)
    writer = RecordingWriter(database, HEADER)
    writer.begin_transaction()
    for entry in entries:
        writer.add_event(SWEEP, entry, 7 * 10**12)
    for sample in make_sample_run(ticks=9):
        writer.add_entry(sample)
    writer.commit()
    writer.end_recording("the sweep has ended", 99, 0)
    database.close()
    return str(path)


def read_answer(words: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """Return the printed document, which is valid by its schema."""
    main(["sweep", "advise", *words, "--json"])
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    validator = importlib.import_module("jsonschema").Draft202012Validator(SCHEMA)
    assert [error.message for error in validator.iter_errors(answer)] == []
    return answer


def test_every_source_of_a_sweep_has_the_same_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entries = make_journal_entries("0,7,28%")
    folder, raw = tmp_path / "sweeps", "".join(f"{entry}\n" for entry in entries)
    name = write_journal(folder, "0,7,28%")
    recorded = write_recording(tmp_path / "s.opw", entries)
    main(["report", str(folder / f"{name}.journal"), "--json"])
    document = tmp_path / "s.json"
    document.write_text(json.dumps(json.loads(capsys.readouterr().out)["sweep"]))
    sources = [
        [name, "--journals", str(folder)],
        [str(folder / f"{name}.journal")],
        [recorded],
        [str(document)],
    ]
    answers = [read_answer([*source, "--iops", "100k"], capsys) for source in sources]
    for answer in answers:
        answer.pop("sweep")
    assert all(answer == answers[0] for answer in answers)
    assert answers[0]["level"] == "7 %" and len(parse_journal(raw.encode(), "it").list_outcomes()) == 3


def test_unfinished_sweep_is_judged_by_its_finished_levels(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = write_journal(tmp_path, "0,7,28%", finished=2)
    answer = read_answer([name, "--journals", str(tmp_path)], capsys)
    assert [level["label"] for level in answer["levels"]] == ["0 %", "7 %"]


def test_exit_status_tells_an_answer_from_none(tmp_path: Path) -> None:
    document = write_document(tmp_path / "s.json")
    assert main(["sweep", "advise", document, *TARGETS]) == 0
    assert main(["sweep", "advise", document]) == 0
    assert main(["sweep", "advise", document, "--iops", "10M"]) == 1
    unknown = write_document(tmp_path / "u.json", endurance_bytes=None, endurance_reason="not reported")
    assert main(["sweep", "advise", unknown, *TARGETS]) == 6
    assert main(["sweep", "advise", unknown, *TARGETS, "--endurance", "3000TB"]) == 0


def test_next_step_has_its_price(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = write_document(tmp_path / "s.json")
    answer = read_answer([document, "--iops", "100k", "--price-per-tb", "$80"], capsys)
    step = answer["next_step"]
    assert (step["begin"], step["end"]) == ("7 %", "28 %")
    assert step["price"] == pytest.approx(80 * step["lost_bytes"] / 1e12)
    assert main(["sweep", "advise", document, "--iops", "100k", "--price-per-tb", "$80"]) == 0
    shown = capsys.readouterr().out
    assert f"(${step['price']:.2f})" in shown and all(len(line) <= 80 for line in shown.split("\n"))


@pytest.mark.parametrize(
    ("words", "status", "reason"),
    [
        (["--life", "5y"], 2, "--life needs --daily"),
        (["--daily", "10TB", "--iops", "20k"], 2, "contradict each other"),
        (["--iops", "20k", "--iops", "30k"], 2, "only one at a time"),
        (["--daily", "500"], 2, "has no unit"),
        (["--daily", "0GB"], 2, "is nothing"),
        (["--life", "5", "--daily", "1GB"], 2, "write years or days"),
        (["--p99", "5"], 2, "with its unit"),
        (["--p99", "5m"], 2, "with its unit"),
        (["--iops", "20%"], 2, "is not a rate"),
        (["--iops", "-5"], 2, "is not a rate"),
        (["--price-per-tb", "80%"], 2, "is not a price"),
        (["--price-per-tb", "cheap"], 2, "is not a price"),
        (["--price", "80"], 2, "unknown option --price"),
        (["--price-per-tb", "0"], 2, "out of range"),
        (["--dev", "loop0"], 3, "simulated flash"),
    ],
)
def test_wrong_targets_are_refused_by_name(
    words: list[str], status: int, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = write_document(tmp_path / "s.json")
    try:
        answer = main(["sweep", "advise", document, *words])
    except SystemExit as error:
        answer = int(error.code or 0)
    printed = capsys.readouterr()
    assert answer == status and reason in printed.err and not printed.out


def test_other_sources_are_refused_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record_run(tmp_path / "run.opw", generate_short_run())
    test = tmp_path / "test.json"
    test.write_text(json.dumps({"schema": "opwatch/1", "type": "sweep-test"}))
    for words, status, reason in (
        (["nope"], 2, "neither a file nor a sweep"),
        (["../nope"], 2, "not the name of a sweep"),
        ([str(tmp_path / "run.opw")], 2, "not of a sweep"),
        ([str(test)], 2, "SNIA test"),
    ):
        assert main(["sweep", "advise", *words, "--journals", str(tmp_path)]) == status
        assert reason in capsys.readouterr().err
    name = write_journal(tmp_path / "none", "0,7%", finished=0)
    assert main(["sweep", "advise", name, "--journals", str(tmp_path / "none")]) == 1
    assert "no level of the sweep is finished" in capsys.readouterr().err


def test_a_sweep_of_another_drive_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = write_journal(tmp_path, "0,7%")
    state = parse_journal((tmp_path / f"{name}.journal").read_bytes(), "it")
    swept = encode(state.request.identity)
    answers = []
    for serial in (swept["serial"], "other"):
        identity = type(state.request.identity)(**(swept | {"serial": serial, "dev": tuple(swept["dev"])}))
        monkeypatch.setattr(
            "opwatch.tools.commands.sweep.advise.read_disk_identity", lambda *_, identity=identity: identity
        )
        monkeypatch.setattr("opwatch.tools.commands.sweep.advise.find_disk", lambda *_: None)
        answers.append(main(["sweep", "advise", name, "--journals", str(tmp_path), "--dev", "nvme0n1"]))
    assert answers == [0, 3] and "serial number other, not S1" in capsys.readouterr().err
