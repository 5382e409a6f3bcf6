"""The usual alternative tracer, measured in the same run: `biolatency -D -F` of libbpf-tools."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

PEER = shutil.which("biolatency") or "/usr/sbin/biolatency"


def _read_programs() -> dict[int, tuple[str, int, int]]:
    """Return program ID -> (name, runs, ns) for every BPF program in the kernel."""
    listing = json.loads(subprocess.check_output(["bpftool", "prog", "show", "--json"]))
    return {p["id"]: (p.get("name", ""), p.get("run_cnt", 0), p.get("run_time_ns", 0)) for p in listing}


class Peer:
    """The BPF programs of a running biolatency."""

    def __init__(self, ids: set[int]) -> None:
        self._ids = ids

    def read_counts(self) -> dict[int, tuple[int, int]]:
        return {i: (runs, ns) for i, (_, runs, ns) in _read_programs().items() if i in self._ids}


@contextmanager
def start_peer() -> Iterator[Peer]:
    """Start biolatency and wait until its programs are attached."""
    before = set(_read_programs())
    process = subprocess.Popen([PEER, "-D", "-F", "600"], stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 10
        ids: set[int] = set()
        while time.monotonic() < deadline:
            now = _read_programs()
            ids = {i for i in set(now) - before if now[i][0].startswith("block_rq_")}
            if len(ids) >= 2:
                time.sleep(0.2)
                break
            time.sleep(0.05)
        else:
            raise RuntimeError("biolatency attached no program within 10 s")
        yield Peer(ids)
    finally:
        process.terminate()
        process.wait()
