"""`make demo`: the main job on a disk of our own. A loop device, fio on it, and opwatch beside it."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from opwatch.errors import OpwatchError
from opwatch.scratch import ScratchDisk
from opwatch.tools import cli

SECONDS = 15

# What a database does to its disk: reads and writes at random, a log that is flushed, and trims.
JOBS = """
[global]
filename={node}
direct=1
time_based
runtime={seconds}
size=1g

[mixed]
rw=randrw
rwmixread=70
bs=4k
ioengine=libaio
iodepth=16
rate_iops=20000,8000

[log]
rw=write
bs=16k
ioengine=sync
fdatasync=1
rate_iops=500

[trims]
rw=randtrim
bs=64k
ioengine=sync
rate_iops=,,200
"""


def main() -> int:
    try:
        with ScratchDisk(1 << 30) as disk, tempfile.TemporaryDirectory(prefix="opwatch-") as folder:
            jobs = Path(folder) / "demo.fio"
            jobs.write_text(JOBS.format(node=disk.node, seconds=SECONDS))
            print(f"opwatch: fio loads {disk.node}, a disk in memory, for {SECONDS} s", file=sys.stderr)
            fio = ["fio", "--output=/dev/null", str(jobs)]
            return cli.main(["--dev", disk.node, "1", "--", *fio])
    except OpwatchError as error:
        return cli.report(error)


if __name__ == "__main__":
    sys.exit(main())
