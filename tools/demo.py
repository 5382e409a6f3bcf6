"""`make demo`: the main job on a simulated SSD: what over-provisioning and trim do to write amplification.

One drive is loaded at two OP levels under the live view. What its log pages say is then shown beside
what theory predicts. Takes about a minute and leaves nothing behind.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from types import FrameType

from opwatch.collectors.firmware.simulated import find_simulated
from opwatch.collectors.firmware.transports import FolderTransport
from opwatch.counters.decode import identify, ocp, smart_log
from opwatch.drive.spec import physical_bytes
from opwatch.errors import OpwatchError
from opwatch.fio.report import parse_report
from opwatch.ftl.models import greedy
from opwatch.host.device import Devices
from opwatch.host.loop import LoopDevice
from opwatch.host.process import run_tool
from opwatch.sinks.terminal import data, say
from opwatch.tools import cli
from opwatch.tools.demo_drive import CLAIMS, own_drive, remove_leftovers
from opwatch.units import duration, rate

USER_BYTES = 256 << 20
SUPERBLOCK_PAGES, PAGE_BYTES = 64, 4096
DIES = 6
# Spare as a share of what the host uses, (T-U)/U. The second is had by trimming a part and leaving it.
OP_LEVELS = (Fraction(7, 100), Fraction(28, 100))
PHYSICAL_BYTES = physical_bytes(USER_BYTES, OP_LEVELS[0])
SETTLE_WRITES = 3  # of the whole range, before anything is measured
SECONDS = 12


@dataclass(frozen=True, slots=True)
class Level:
    """What one OP level gave."""

    op: Fraction
    iops: float
    p50_ns: int
    p99_ns: int
    host_bytes: int
    nand_bytes: int

    @property
    def waf(self) -> float | None:
        return self.nand_bytes / self.host_bytes if self.host_bytes else None

    @property
    def waf_error(self) -> float | None:
        """The error that the step of the host counter leaves: less than one step at either end."""
        step = smart_log.UNIT_BYTES
        return self.waf * step / self.host_bytes if self.waf else None

    @property
    def predicted(self) -> float:
        return greedy(float(1 + self.op), SUPERBLOCK_PAGES)


def tell(text: str) -> None:
    """Talk of several lines, with an empty one before it."""
    say("", head="")
    say(text)


def read_bytes(pages: FolderTransport) -> tuple[int, int]:
    """Host and NAND bytes, from log pages 02h and C0h."""
    smart = smart_log.decode_smart_log(pages.get_log(smart_log.LID, smart_log.LENGTH))
    cloud = ocp.decode_c0(pages.get_log(ocp.LID, ocp.LENGTH))
    if smart.data_units_written is None or not isinstance(cloud, ocp.CloudLog) or cloud.media_written is None:
        raise OpwatchError("the simulated drive's log pages do not say what it wrote")
    return smart.data_units_written * smart_log.UNIT_BYTES, cloud.media_written


def job(device: str, size: int, *options: str) -> list[str]:
    return [
        *(
            "fio",
            "--name=demo",
            "--thread",
            f"--filename={device}",
            "--bs=4k",
            "--direct=1",
            f"--size={size}",
        ),
        *("--ioengine=libaio", "--iodepth=32", "--norandommap", "--randrepeat=0", *options),
    ]


def measure(device: LoopDevice, pages: FolderTransport, op: Fraction) -> Level:
    """Fill the range, let it settle, then load it under the live view."""
    size = int(PHYSICAL_BYTES / (1 + op)) // (1 << 20) << 20
    tell(f"OP {float(op * 100):.0f} %: the host uses {size >> 20} MiB, the rest is trimmed")
    device.require_same()
    run_tool(["blkdiscard", "--force", device.path], ends_with_us=True)
    run_tool([*job(device.path, size, "--rw=write"), "--bs=1m"], timeout_s=60, ends_with_us=True)
    settle = job(device.path, size, "--rw=randwrite", f"--io_size={SETTLE_WRITES * size}")
    run_tool([*settle, "--time_based=0"], timeout_s=90, ends_with_us=True)
    host, nand = read_bytes(pages)
    report = load(device, size)
    host_after, nand_after = read_bytes(pages)
    result = parse_report(report)
    latency = result.jobs[0].operations["write"].latency
    if latency is None:
        raise OpwatchError("fio measured no latency of writes")
    return Level(
        op,
        result.total.iops,
        latency.percentiles[50],
        latency.percentiles[99],
        host_after - host,
        nand_after - nand,
    )


def load(device: LoopDevice, size: int) -> str:
    """Random writes under the live view; fio's report."""
    output = os.memfd_create("opwatch-demo", os.MFD_CLOEXEC)
    try:
        words = job(device.path, size, "--rw=randwrite", "--time_based", f"--runtime={SECONDS}")
        words += ["--output-format=json", f"--output=/proc/{os.getpid()}/fd/{output}"]
        device.require_same()
        status = cli.main(["--dev", device.node, "2", "--", *words])
        device.require_same()
        if status in (128, 130):  # fio's own, and a shell's, for an interrupt
            raise KeyboardInterrupt
        if status:
            raise OpwatchError(f"the load ended with status {status}")
        return os.pread(output, os.fstat(output).st_size, 0).decode(errors="replace")
    finally:
        os.close(output)


def table(levels: Sequence[Level]) -> None:
    out = data()
    out.line()
    out.line("   OP       IOPS     p50     p99   host MB   NAND MB    WAF (02h, C0h)  model")
    for level in levels:
        waf = "-" if level.waf is None else f"{level.waf:.3f} +-{level.waf_error:.3f}"
        out.line(
            f"{float(level.op * 100):4.0f} %  {rate(level.iops):>9}  {duration(level.p50_ns):>6}"
            f"  {duration(level.p99_ns):>6}  {level.host_bytes / 1e6:8.1f}  {level.nand_bytes / 1e6:8.1f}"
            f"  {waf:>16}  {level.predicted:5.3f}"
        )
    out.line("OP is (T-U)/U. The model is the exact mean-field one for greedy collection.")


def used_mb(pages: FolderTransport) -> float:
    space = identify.decode_namespace(pages.identify(identify.NAMESPACE, 1))
    if space.used_lbas is None or space.lba_bytes is None:
        raise OpwatchError("the simulated drive does not say how much it holds")
    return space.used_lbas * space.lba_bytes / 1e6


def show_trim(device: LoopDevice, pages: FolderTransport) -> None:
    """What the drive holds for files that are gone, until the file system trims."""
    run_tool(["mkfs.ext4", "-q", "-F", "-E", "nodiscard", device.path], ends_with_us=True)
    before = used_mb(pages)
    # The mount is made in a namespace of its own: it goes with the shell, whatever becomes of us. What it
    # covers there is a folder of ours.
    words = 'mount "$0" "$1" && fstrim -v "$1"'
    trim = ["unshare", "--mount", "--propagation", "private", "sh", "-c", words, device.path, str(CLAIMS)]
    trimmed = run_tool(trim, ends_with_us=True).strip().rpartition(": ")[2]
    after = used_mb(pages)
    data().lines(
        [
            "",
            f"A new ext4 on it: the drive still holds {before:.1f} MB of old data (NUSE).",
            f"fstrim: {trimmed}. The drive now holds {after:.1f} MB.",
        ]
    )


def show() -> int:
    remove_leftovers(say)
    config = {
        "user_bytes": USER_BYTES,
        "physical_bytes": PHYSICAL_BYTES,
        "superblock_bytes": SUPERBLOCK_PAGES * PAGE_BYTES,
        "service.dies": DIES,
    }
    with own_drive(config, ("timing",), say) as (drive, device):
        say(f"a simulated SSD of {USER_BYTES >> 20} MiB at {drive.device}, {DIES} dies, in real time")
        pages = find_simulated(Devices().resolve(drive.device))
        if pages is None:
            raise OpwatchError(f"{drive.device} has lost its drive")
        table([measure(device, pages, op) for op in OP_LEVELS])
        show_trim(device, pages)
    return 0


def _end(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def main() -> int:
    # Ended by a signal, we still clean up.
    signal.signal(signal.SIGTERM, _end)
    signal.signal(signal.SIGHUP, _end)
    try:
        return show()
    except OpwatchError as error:
        return cli.report(error)
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
