"""The table in SECURITY.md, row by row: each command as nobody, and with only CAP_BPF and CAP_PERFMON."""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kernel.support.drives import create_drive, make_name, run
from tests.kernel.support.filesystems import make_filesystem, mount_device
from tests.kernel.support.trims import create_folder
from tests.requirements import require_nobody, skip_or_fail

TOP = Path(__file__).parents[3]
REPORT = next(iter(sorted((TOP / "tests/fixtures/good/counters/smartctl_exporter").glob("*.json"))))
KEPT = TOP / "tests/fixtures/good/recordings/1.opw.gz"
IOSTAT = TOP / "tests/fixtures/good/imports/iostat.json"
_HEAD = "| Command | As nobody | With the two | "
_SETPRIV = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
_PRIVILEGES = {
    "nobody": (*_SETPRIV, "--bounding-set=-all", "--no-new-privs"),
    "the two": (
        *_SETPRIV,
        *("--inh-caps=-all,+bpf,+perfmon", "--ambient-caps=+bpf,+perfmon"),
        "--bounding-set=-all,+bpf,+perfmon",
    ),
}


def read_rows() -> list[tuple[str, str, str]]:
    """Return (command, exit status as nobody, exit status with the two capabilities) for each row."""
    _, table = (TOP / "SECURITY.md").read_text().split(_HEAD)
    table = table.partition("\n\n")[0]
    lines = [line.strip("| \n").split(" | ") for line in table.split("\n")[2:] if line.startswith("|")]
    return [(cells[0].strip("`"), cells[1], cells[2]) for cells in lines]


@pytest.fixture(scope="module")
def words() -> Iterator[dict[str, str]]:
    """Yield values for the capitalised words: a drive of our own with a file system on it, and files."""
    if not shutil.which("setpriv"):
        skip_or_fail("kernel", "setpriv is not installed")
    # Each pytest of root closes the folder of tmp_path to other users.
    with create_folder(Path("/tmp")) as home, create_drive() as one:
        point, open_folder = home / "mount", home / "for-everybody"
        home.chmod(0o755)
        point.mkdir()
        open_folder.mkdir()
        open_folder.chmod(0o1777)
        (open_folder / "kept.opw").write_bytes(gzip.decompress(KEPT.read_bytes()))
        (open_folder / "kept.opw").chmod(0o644)
        make_filesystem("ext4", one.device)
        with mount_device(one.device, point):
            yield {
                "DISK": one.device,
                "MOUNT": str(point),
                "DRIVE": one.name,
                "REPORT": str(REPORT),
                "NEW": make_name(),
                "HISTORY": str(point / "history"),
                "RECORDING": str(open_folder / f"{make_name()}.opw"),
                "KEPT": str(open_folder / "kept.opw"),
                "IOSTAT": str(IOSTAT),
                "FOLDER": str(open_folder),
            }


def _run_as(who: str, command: str, words: dict[str, str]) -> subprocess.CompletedProcess[str]:
    # A fresh name for each run, because no command overwrites a file.
    fresh = {"FRESH": f"{words['FOLDER']}/{make_name()}.opw"}
    arguments = [(words | fresh).get(word, word) for word in command.split()[1:]]
    argv = [*_PRIVILEGES[who], sys.executable, "-P", "-m", "opwatch", *arguments]
    environment = {"PATH": os.environ["PATH"] + ":/usr/sbin:/sbin", "PYTHONPATH": str(TOP)}
    return subprocess.run(
        argv, capture_output=True, text=True, timeout=120, check=False, cwd="/", env=environment
    )


@pytest.mark.parametrize("who", list(_PRIVILEGES))
@pytest.mark.parametrize(
    ("command", "nobody", "two"), [pytest.param(*row, id=row[0].replace(" ", "-")) for row in read_rows()]
)
def test_exit_status_matches_the_table(
    words: dict[str, str], command: str, nobody: str, two: str, who: str
) -> None:
    require_nobody()
    done = _run_as(who, command, words)
    wanted = nobody if who == "nobody" else two
    assert "Traceback" not in done.stderr
    assert str(done.returncode) == wanted, f"{done.stdout[-1000:]}\n{done.stderr[-1000:]}"
    if done.returncode == 4:
        said = done.stdout + done.stderr
        assert "root" in said or "CAP_BPF" in said, said


def test_commands_leave_existing_drives_unchanged(words: dict[str, str]) -> None:
    """The drive still exists, and no other was created."""
    listed = run(sys.executable, "-m", "opwatch", "drive", "list")
    assert words["DRIVE"] in listed and words["NEW"] not in listed
