"""Make the recording to draw: write randomly to an empty drive past its cliff, then mix in reads."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

from opwatch.drive.spec import physical_bytes
from opwatch.errors import OpwatchError
from opwatch.host.loop import LoopDevice
from opwatch.host.process import run_tool
from opwatch.sinks.terminal import print_message
from opwatch.tools import cli
from opwatch.tools.demo_drive import create_temporary_drive, remove_leftovers

USER_BYTES = 512 << 20
_OWN_OP = Fraction(12, 100)
_SUPERBLOCK_BYTES = 256 << 10
_DIES, _BUFFER_BYTES = 4, 256 << 10
# Long enough for a cliff, the steady rate after the cliff, and reads that wait behind writes.
_JOB = """\
[global]
filename={device}
thread=1
direct=1
ioengine=libaio
randrepeat=0
norandommap=1
time_based=1

[random-writes]
rw=randwrite
bs=4k
iodepth=16
runtime=40

[reads-beside]
stonewall
rw=randrw
rwmixread=70
bs=4k
iodepth=8
rate_iops=2100,900
runtime=30
"""


def _load_drive(device: LoopDevice, folder: Path, target: Path) -> None:
    device.require_same()
    run_tool(["blkdiscard", "--force", device.path], ends_with_us=True)
    job = folder / "tour.fio"
    job.write_text(_JOB.format(device=device.path))
    device.require_same()
    words = ["record", "-o", str(target), "--dev", device.node, "--", "fio", str(job)]
    if status := cli.main([*words, "--output-format=normal,json+"]):
        raise OpwatchError(f"opwatch {' '.join(words)} exited with status {status}")


def record_run(folder: Path) -> Path:
    """Make a drive, load it, and return the path of the recording."""
    remove_leftovers(print_message)
    target = folder / "tour.opw"
    config = {
        "user_bytes": USER_BYTES,
        "physical_bytes": physical_bytes(USER_BYTES, _OWN_OP),
        "superblock_bytes": _SUPERBLOCK_BYTES,
        "service.dies": _DIES,
        "service.buffer_bytes": _BUFFER_BYTES,
    }
    with create_temporary_drive(config, ("timing",), print_message) as (_, device):
        _load_drive(device, folder, target)
    return target
