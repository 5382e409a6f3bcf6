"""NAND bytes of a simulated drive by the owners of its parts."""

from __future__ import annotations

from pathlib import Path

from opwatch.drive.spec import parse_owners
from tests.kernel.support.drives import MIB, create_drive, run_plain_fio
from tests.requirements import require_drive

SIZE = 64 * MIB
WORDS = tuple(f"owner={part.words}" for part in parse_owners(["log=0-16M,db=16M-48M"], SIZE))


def test_owners_add_up_to_the_drives_counters_also_when_saved(tmp_path: Path) -> None:
    require_drive()
    state = tmp_path / "drive.state"
    with create_drive(SIZE, "10%", words=WORDS, state=state) as drive:
        assert run_plain_fio(drive.device, "--rw=write", "--bs=1m").returncode == 0
        for offset, load in ((0, "write"), (16, "randwrite")):
            done = run_plain_fio(
                drive.device,
                *(f"--rw={load}", "--bs=4k", f"--offset={offset}m", "--size=16m", "--io_size=64m"),
                "--norandommap",
            )
            assert done.returncode == 0, done.stderr
        truth = drive.read_truth()
        owners = {one["name"]: one for one in truth["owners"]}
        assert [*owners] == ["log", "db", ""]
        for field in owners["db"].keys() - {"name"}:
            assert sum(one[field] for one in owners.values()) == truth[field], field
        written = {name: one["host_write_bytes"] for name, one in owners.items()}
        assert written == {"log": 80 * MIB, "db": 96 * MIB, "": 16 * MIB}
        assert owners["db"]["nand_write_gc_bytes"] > owners["log"]["nand_write_gc_bytes"]
    with create_drive(op=None, words=WORDS, state=state) as again:
        assert again.read_truth()["owners"] == truth["owners"]
