"""`opwatch top` on its own terminal: keys sort and filter the table, and quit."""

from __future__ import annotations

import re
import subprocess
import sys

from opwatch.host.scratch import ScratchDisk
from tests.terminals import run_on_terminal


def test_keys_sort_filter_and_end(disk: ScratchDisk) -> None:
    load = f"fio --name=x --filename={disk.node} --rw=randwrite --bs=4k --size=16m --direct=1 --rate_iops=100"
    script = f"exec {load} --time_based --runtime=60 --output=/dev/null"
    with subprocess.Popen(["sh", "-c", script]) as running:
        argv = [sys.executable, "-m", "opwatch", "top", "--dev", disk.node, "0.5"]
        typed = {
            b"fio (": b"t",
            b"[time]": b"/no such owner\r",
            b"with 'no such owner'\x1b[0m": b"\x1b",
            b"/ filter  q quit": b"q",
        }
        status, written = run_on_terminal(argv, typed, {"TERM": "xterm-256color"})
        running.terminate()
    assert status == 0
    pages = [re.sub(r"\x1b\[[0-9;]*[mHJ]", "", page) for page in written.split("\x1b[H\x1b[J")]
    [filtered, *_] = [page for page in pages if "only owners with 'no such owner'" in page]
    # Owners without a row are part of "other", so here "other" equals "all".
    other, everything = (line.split() for line in filtered.splitlines()[2:4])
    assert other[:4] == everything[:4]
    assert (other[6], everything[6]) == ("other:", "all")
    assert "fio (" not in filtered
    assert "== " in pages[-1]
