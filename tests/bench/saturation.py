"""`make bench-saturation`: IOPS of a null_blk device that completes immediately, untraced and traced.

Run manually in a guest. Every CPU is busy with I/O, so a tracer's CPU time reduces the IOPS. The guest is
emulated: its figures compare tracers, and do not represent a real machine.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from opwatch.tools.acting.fio.fio import run_fio
from tests.vm.guest.support.nullblk import Irq, NullBlk, create_null_blk

from .default_set import attach_ours

ROUNDS, SECONDS = 7, 3
LOAD = ("--rw=randread", "--bs=4k", "--iodepth=64", "--ioengine=libaio", "--time_based")


@contextmanager
def attach_nothing(_: str) -> Iterator[object]:
    yield None


def make_tracer(*argv: str) -> Callable[[str], AbstractContextManager[object]]:
    """Return a context manager that runs a separate program as the tracer."""

    @contextmanager
    def run_tracer(_: str) -> Iterator[object]:
        process = subprocess.Popen([shutil.which(argv[0]) or argv[0], *argv[1:]], stdout=subprocess.DEVNULL)
        try:
            time.sleep(3)
            if process.poll() is not None:
                raise RuntimeError(f"{argv[0]} exited before the load started")
            yield process
        finally:
            process.terminate()
            process.wait()

    return run_tracer


TRACERS: dict[str, Callable[[str], AbstractContextManager[object]]] = {
    "untraced": attach_nothing,
    "opwatch --dev D": attach_ours,
    "biolatency -D -F": make_tracer("biolatency", "-D", "-F", "600"),
    "biosnoop": make_tracer("biosnoop"),
    "biosnoop.bt": make_tracer("biosnoop.bt"),
}


def main() -> int:
    iops: dict[str, list[float]] = {name: [] for name in TRACERS}
    failed: dict[str, str] = {}
    config = NullBlk(size=256, memory_backed=1, discard=1, irqmode=Irq.NONE, submit_queues=2)
    with create_null_blk(config) as disk:
        for _ in range(ROUNDS):
            for name, tracer in TRACERS.items():
                if name in failed:
                    continue
                try:
                    with tracer(f"/dev/{disk}"):
                        iops[name].append(run_fio(f"/dev/{disk}", [*LOAD, f"--runtime={SECONDS}"]).iops)
                except RuntimeError as error:
                    failed[name] = str(error)
    base = iops["untraced"]
    print("| tracer | IOPS | ratio to untraced |\n|---|---|---|")
    for name, rates in iops.items():
        if name in failed:
            print(f"| {name} | {failed[name]} | |")
            continue
        ratio = statistics.median(a / b for a, b in zip(rates, base, strict=True))
        print(f"| {name} | {statistics.median(rates):.0f} | {ratio:.3f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
