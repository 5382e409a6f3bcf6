"""The journal of a file-system experiment is readable however its writer ended."""

from __future__ import annotations

import errno
import json
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from opwatch.codec import encode
from opwatch.errors import BadInput
from opwatch.scenarios.experiment_file import (
    create_experiment,
    has_experiment,
    read_experiments,
    reopen_experiment,
)
from opwatch.scenarios.experiment_journal import (
    ExperimentPlace,
    ExperimentRequest,
    ExperimentState,
    make_rate_entry,
    make_run_entry,
    parse_experiment,
)
from opwatch.scenarios.mixed import MemberCount, MixLoad, MixRate
from opwatch.scenarios.untrimmed import CliffPrediction, UntrimmedRun, WrittenRound
from opwatch.tools.cli import main

LOADS = (MixLoad("a", 75, 100, 8192), MixLoad("b", 0, 0, 131072, 4))
REQUEST = ExperimentRequest(
    name="20260101-000000-abcd",
    created="2026-01-01T00:00:00+00:00",
    scenario="mixed-io",
    changes={"threads": 4, "run_s": 1.5},
    places=(
        ExperimentPlace("one", "/mnt/a", "x-1", 1 << 20),
        ExperimentPlace("two", "/mnt/b", "y-1", 1 << 20),
    ),
    loads=LOADS,
    io_bytes=0,
    queue_depth=0,
    seed=0,
)
RATE = MixRate(
    LOADS[0], 3, 1, 32768, 1.5, 2e6, 0.25, {"sda": MemberCount(3, 2, 24576, 16384, 9, 8), "sdb": None}
)
RUN = UntrimmedRun(
    "A untrimmed", 5e6, 4e6, CliffPrediction(1e6, None, 1e6), (WrittenRound(5e5, 0.5),) * 3, 1.01e6, 4096.0
)


FIXTURES = Path(__file__).parents[2] / "fixtures"


def _write_journal(folder: Path) -> Path:
    with create_experiment(folder, REQUEST) as journal:
        journal.append_entry("rate", make_rate_entry("one", RATE))
        journal.append_entry("of a later opwatch", {"what": "?"})
        journal.append_entry("rate", make_rate_entry("one", replace(RATE, load=LOADS[1])))
        journal.append_entry("stopped", {"reason": "a signal"})
        return journal.path


def test_experiment_journal_is_read_back_as_written(tmp_path: Path) -> None:
    path = _write_journal(tmp_path)
    assert path.stat().st_mode & 0o777 == 0o600
    journal, state = reopen_experiment(tmp_path, REQUEST.name)
    journal.close()
    assert state.request == REQUEST
    assert state.rates == {"one": [RATE, replace(RATE, load=LOADS[1])]}
    assert state.stops == ["a signal"]
    assert (state.completed_count, state.is_ended) == (2, False)
    assert has_experiment(tmp_path, REQUEST.name) and not has_experiment(tmp_path, "another")


def test_runs_are_stored_with_their_round_size(tmp_path: Path) -> None:
    request = replace(REQUEST, scenario="untrimmed-cliff", loads=(), places=REQUEST.places[:1])
    with create_experiment(tmp_path, request) as journal:
        journal.append_entry("run", make_run_entry(RUN, 4096))
        journal.append_entry("end", {})
    state = parse_experiment(journal.path.read_bytes(), "it")
    assert (state.runs, state.round_bytes, state.is_ended) == ([RUN], 4096, True)


def test_truncated_experiment_continues_from_the_last_complete_entry(tmp_path: Path) -> None:
    raw = _write_journal(tmp_path).read_bytes()
    ends = [at + 1 for at, byte in enumerate(raw) if byte == ord("\n")]
    for size in range(ends[0], len(raw), 11):
        state = parse_experiment(raw[:size], "it")
        whole = max(end for end in ends if end <= size)
        assert state.cut_bytes == size - whole
        # The entry between the two rates is of an unknown kind.
        assert state.completed_count == sum(end <= size for end in (ends[1], ends[3]))


def test_intact_experiment_is_read_and_damaged_experiments_are_refused() -> None:
    good = FIXTURES / "good" / "scenarios" / "two-loads.experiment"
    assert parse_experiment(good.read_bytes(), "it").is_ended
    for path in sorted((FIXTURES / "bad" / "scenarios").glob("*.experiment")):
        with pytest.raises(BadInput):
            parse_experiment(path.read_bytes(), path.name)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"scenario": "no such"}, "scenario"),
        ({"places": []}, r"\bno place\b"),
        ({"places": [{"name": "a", "folder": "/a", "mark": "m", "used_bytes": 0}]}, r"\b0 bytes\b"),
        ({"loads": [{"name": "a", "rdpct": 101, "seekpct": 0, "xfersize": 4096}]}, r"\bload\b"),
        ({"schema": "opwatch-sweep/1"}, r"\bjournal\b"),
    ],
)
def test_impossible_request_is_refused(change: dict[str, object], why: str) -> None:
    first = {"entry": "request", "schema": "opwatch-experiment/1", **encode(REQUEST), **change}
    with pytest.raises(BadInput, match=why):
        parse_experiment(json.dumps(first).encode() + b"\n", "it")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"place": "three"}, r"\bplace\b"),
        ({"seconds": 0}, "duration of 0"),
        ({"members": {"a": [1]}}, "members: a: 1 values instead of 6"),
    ],
)
def test_impossible_entry_is_refused(tmp_path: Path, change: dict[str, object], why: str) -> None:
    with create_experiment(tmp_path, REQUEST) as journal:
        journal.append_entry("rate", make_rate_entry("one", RATE) | change)
    with pytest.raises(BadInput, match=why):
        parse_experiment(journal.path.read_bytes(), "it")


def test_list_names_resumable_experiments(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _write_journal(tmp_path)
    (tmp_path / "broken.experiment").write_bytes(b"\0\n")
    kept = dict(read_experiments(tmp_path))
    assert isinstance(kept["broken"], BadInput) and isinstance(kept[REQUEST.name], ExperimentState)
    assert main(["sweep", "list", "--journals", str(tmp_path)]) == 0
    text = " ".join(capsys.readouterr().out.split())
    where = "one (/mnt/a), two (/mnt/b)"
    assert re.search(rf"{re.escape(where)}: .* 2 loads .*: opwatch sweep resume {REQUEST.name}", text)
    create_experiment(tmp_path / "new", REQUEST).close()
    assert main(["sweep", "list", "--journals", str(tmp_path / "new")]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert re.search(rf"{re.escape(where)}: .* no loads .*: opwatch sweep resume {REQUEST.name}", text)
    assert main(["sweep", "list", "--journals", str(tmp_path), "--json"]) == 0
    listed = {one["name"]: one for one in json.loads(capsys.readouterr().out)["experiments"]}
    assert listed[REQUEST.name]["done"] == 2 and listed["broken"]["problem"]


def test_options_for_a_sweep_of_a_drive_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _write_journal(tmp_path)
    words = ["sweep", "resume", REQUEST.name, "--journals", str(tmp_path)]
    assert main([*words, "--destroy"]) == 2
    assert "--destroy: " in capsys.readouterr().err
    # The mount point of the experiment does not exist here.
    assert main([*words, "-q"]) == 2
    assert f"--on one=/mnt/a: {os.strerror(errno.ENOENT)}" in capsys.readouterr().err


def test_journals_of_root_are_hidden_from_other_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def deny_permission(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "stat", deny_permission)
    assert not has_experiment(tmp_path, REQUEST.name)
