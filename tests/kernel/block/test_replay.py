"""A run that is read back from its entries prints what it printed live: lines and JSON, byte for byte.

OPWATCH_REPLAY_SECONDS makes the run longer.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest

from opwatch.samples.observation import Sink
from opwatch.samples.pack.stream import StreamSource
from opwatch.samples.source import show
from opwatch.samples.story import Story
from opwatch.sinks.jsonl import JsonLines
from opwatch.sinks.lines import Lines
from tests.kernel.support.drives import drive
from tests.requirements import require_drive

SECONDS = int(os.environ.get("OPWATCH_REPLAY_SECONDS", "8"))
INTERVAL_S = 0.5
# Every page that counts writes to NAND: while one of them is read there is a figure.
FAILING = ("log-fail=22", "log-fail=c0", "log-fail=09")

# `opwatch --json`, which also prints its lines and writes its entries, each into a file.
KEEPING = """
import sys
from opwatch.samples.pack.stream import stream_of
from opwatch.sinks.jsonl import JsonLines
from opwatch.sinks.lines import Lines
from opwatch.tools import cli
from opwatch.tools.commands import watch

folder, every_s = sys.argv.pop(1), float(sys.argv.pop(1))

class Both(JsonLines):
    def __init__(self, stream, *, quiet=False):
        super().__init__(stream, quiet=quiet)
        self.lines = Lines(open(folder + "/lines", "w"), quiet=quiet, every_s=every_s)

    def write(self, observation):
        super().write(observation)
        self.lines.write(observation)

    def tell(self, event):
        super().tell(event)
        self.lines.tell(event)

class Kept(watch.LiveRun):
    def entries(self):
        with open(folder + "/entries", "wb") as file:
            run = []
            def passed():
                for entry in super(Kept, self).entries():
                    run.append(entry)
                    yield entry
            pieces = stream_of(passed())
            file.write(next(pieces))
            for piece in pieces:
                file.write(piece)
                yield run.pop()

watch.JsonLines, watch.LiveRun = Both, Kept
sys.exit(cli.main())
"""

LOAD = """
import subprocess, sys
from tests.kernel.support.load import discards
node, seconds = sys.argv[1], sys.argv[2]
fio = subprocess.Popen(["fio", "--name=x", "--filename=" + node, "--rw=randrw", "--bs=16k", "--size=48m",
    "--time_based", "--runtime=" + seconds, "--rate=20m,20m", "--norandommap", "--direct=1",
    "--ioengine=libaio", "--iodepth=4", "--output=/dev/null"])
discards(node, 7)
sys.exit(fio.wait())
"""


@pytest.fixture(autouse=True)
def _drive() -> None:
    require_drive()


def kept_run(device: str, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    load = [sys.executable, "-c", LOAD, device, str(SECONDS)]
    watch = ["--dev", device, "--json", "--discards", "--waf", "0.5", *options, str(INTERVAL_S), "--", *load]
    argv = [sys.executable, "-c", KEEPING, str(folder), str(INTERVAL_S), *watch]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60 + 2 * SECONDS, check=False)


def printed_again(entries: Path, *, plain: bool) -> str:
    out = io.StringIO()
    sink: Sink = Lines(out, every_s=INTERVAL_S) if plain else JsonLines(out)
    with entries.open("rb") as file:
        show(StreamSource(file, entries.name), Story(), sink, lambda _: None)
    return out.getvalue()


def test_a_run_is_the_same_from_its_entries(tmp_path: Path) -> None:
    with drive() as one:
        done = kept_run(one.device, tmp_path)
    assert done.returncode == 0, done.stderr
    assert printed_again(tmp_path / "entries", plain=False) == done.stdout
    assert printed_again(tmp_path / "entries", plain=True) == (tmp_path / "lines").read_text()
    # There was something to be equal: reads, writes, discards with their sender, amplification.
    documents = [json.loads(line) for line in done.stdout.splitlines()]
    kinds = Counter(document["type"] for document in documents)
    assert kinds["interval"] >= SECONDS / INTERVAL_S - 2 and kinds["summary"] == 1
    summary = documents[-1]
    assert min(summary["ops"][op]["count"] for op in ("read", "write", "discard")) > 0
    assert [sender["count"] for sender in summary["discards"]["senders"]] == [7]
    assert summary["waf"]["waf"] is not None, summary["waf"]
    # Each interval has a figure of its own, as more looks become known.
    figures = [document["waf"]["end_mono_ns"] for document in documents if document["waf"]]
    assert len(set(figures)) >= SECONDS / 2


def test_a_drive_that_comes_to_refuse_is_the_same_too(tmp_path: Path) -> None:
    with drive() as one:
        refusing = threading.Timer(SECONDS / 2, one.fault, FAILING)
        refusing.start()
        done = kept_run(one.device, tmp_path)
        refusing.join()
    assert done.returncode == 0, done.stderr
    assert printed_again(tmp_path / "entries", plain=False) == done.stdout
    documents = [json.loads(line) for line in done.stdout.splitlines()]
    reasons = {document["waf"]["reason"] for document in documents if document["waf"]}
    # Before that it had a figure, or none yet.
    assert len(reasons) > 1, reasons
    assert documents[-1]["waf"]["reason"].startswith("counters are not read: ")
