"""`opwatch sweep advise --history`: predict a change, make it on a simulated drive, and compare."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from opwatch.tools.acting.trim.fitrim import require_mount, trim_mount
from tests.kernel.support.drives import MIB, Drive, create_drive, run_plain_fio
from tests.kernel.support.filesystems import find_free_extents, make_filesystem, mount_device
from tests.kernel.support.recordings import start_recorder
from tests.kernel.support.watching import run_opwatch
from tests.requirements import require_drive
from tests.section import DOCS

SIZE, FILE = 256 * MIB, 96 * MIB
# A collector and a superblock size that no prediction assumes.
COLLECTOR = {"policy": 4, "policy_arg": 48, "superblock_bytes": 128 * 4096}


def write_randomly(file: Path, size: int, seed: int) -> None:
    done = run_plain_fio(
        str(file),
        *("--rw=randwrite", "--bs=4k", "--iodepth=16", "--norandommap", f"--randseed={seed}"),
        *(f"--size={FILE}", f"--io_size={size}", "--overwrite=1", "--fallocate=none"),
    )
    assert done.returncode == 0, done.stderr


def measure_waf(drive: Drive, file: Path, size: int, seed: int) -> float:
    """Return the WAF of random writes, by the drive's own counters."""
    before = drive.read_truth()
    write_randomly(file, size, seed)
    after = drive.read_truth()
    host, nand = (after[name] - before[name] for name in ("host_write_bytes", "nand_write_bytes"))
    return float(nand / host)


def ask(path: Path, *words: str, status: int = 0) -> Any:  # noqa: ANN401
    done = run_opwatch("sweep", "advise", "--history", str(path), *words, "--json")
    assert done.returncode == status, done.stderr
    if status:
        return done.stderr
    answer = json.loads(done.stdout)
    schema = json.loads((DOCS / "schema" / "history-advice.json").read_text())
    validator = importlib.import_module("jsonschema").Draft202012Validator(schema)
    assert [error.message for error in validator.iter_errors(answer)] == []
    return answer


def test_waf_after_a_trim_is_within_the_predicted_band(tmp_path: Path) -> None:
    require_drive()
    (tmp_path / "mnt").mkdir()
    with create_drive(SIZE, "12%", config=COLLECTOR) as drive:
        # Before the filesystem, the whole drive was in use.
        assert run_plain_fio(drive.device, "--rw=write", "--bs=1m").returncode == 0
        make_filesystem("ext4", drive.device)
        with mount_device(drive.device, tmp_path / "mnt") as point:
            file, path = point / "data", tmp_path / "disk.history"
            file.touch()
            assert run_plain_fio(str(file), "--rw=write", "--bs=1m", f"--size={FILE}").returncode == 0
            write_randomly(file, 6 * FILE, 1)
            with start_recorder(drive.device, path):
                before = measure_waf(drive, file, 4 * FILE, 2)
            answer = ask(path, "--waf", f"{before:.3f}", "--op", "7,14%", "--dev", drive.device)
            assert answer["change"] == "trim" and answer["answer"] == "no targets"
            free = find_free_extents(point).total_bytes
            assert answer["free_bytes"] == pytest.approx(free, rel=0.02)
            trim_mount(require_mount(str(point)))
            write_randomly(file, 4 * FILE, 3)
            after = measure_waf(drive, file, 4 * FILE, 4)
            trim = next(one for one in answer["changes"] if one["label"] == "trim")
            assert trim["waf"]["low"] <= after <= trim["waf"]["high"] < before
            assert (trim["waf"]["high"] - trim["waf"]["low"]) / after < 0.4
            with create_drive(SIZE // 2) as other:
                refusal = ask(path, "--waf", "2", "--dev", other.device, status=3)
                assert "is the history of" in refusal
