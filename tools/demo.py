"""`make demo`: the main use on a simulated SSD: the effect of over-provisioning and trim on write
amplification.

A drive is loaded under the live view, a filesystem on the drive is trimmed, its writes are followed to NAND,
and the drive is swept at three levels of over-provisioning to a proven steady state. Takes less than two
minutes, and leaves only the page of the sweep.
"""

from __future__ import annotations

import signal
import sys
import tempfile
from fractions import Fraction
from pathlib import Path
from types import FrameType

from opwatch.collectors.firmware.simulated import find_simulated
from opwatch.collectors.firmware.transports import FolderTransport
from opwatch.collectors.guard.disk_facts import read_disk_identity
from opwatch.counters.decode import identify
from opwatch.drive.spec import physical_bytes
from opwatch.errors import OpwatchError
from opwatch.host.device import Devices
from opwatch.host.loop import LoopDevice
from opwatch.host.process import run_tool
from opwatch.journal.file import list_journals
from opwatch.sinks.terminal import open_stdout, print_message
from opwatch.tools import cli
from opwatch.tools.demo_drive import CLAIMS, create_temporary_drive, get_journal_folder, remove_leftovers

USER_BYTES = 256 << 20
SUPERBLOCK_PAGES, PAGE_BYTES = 64, 4096
DIES, BUFFER_BYTES = 4, 256 << 10
# Spare area of the drive itself, and the levels that the sweep adds by leaving a part trimmed, (T-U)/U.
OWN_OP = Fraction(7, 100)
OP_LEVELS = "0,12,28%"
PHYSICAL_BYTES = physical_bytes(USER_BYTES, OWN_OP)
SECONDS = 15
# Rated erase cycles of the flash, and what it has to do: more than it can without more spare area.
CYCLES, DAILY, LIFE = 3000, "200MB", "5y"
# A level without steady state by then is reported as unsteady, so the demo ends on a busy machine too.
MAX_ROUNDS = 60
NOT_REACHED = 6
# Exit statuses of fio, a shell and a sweep after an interrupt.
INTERRUPTED = (128, 130, 7)


def print_paragraph(text: str) -> None:
    """Print a message after an empty line."""
    print_message("", head="")
    print_message(text)


def build_job(device: str, *options: str) -> list[str]:
    return [
        *("fio", "--name=demo", "--thread", f"--filename={device}", "--bs=4k", "--direct=1"),
        *("--ioengine=libaio", "--iodepth=32", "--norandommap", "--randrepeat=0", *options),
    ]


def show_live_view(device: LoopDevice) -> None:
    """Fill the drive, then write at random under the live view."""
    device.require_same()
    run_tool(["blkdiscard", "--force", device.path], ends_with_us=True)
    run_tool([*build_job(device.path, "--rw=write"), "--bs=1m"], timeout_s=60, ends_with_us=True)
    print_paragraph(
        "4 KiB random writes to a full drive, which has to copy data once its spare area is used up:"
    )
    print_message("opwatch --dev D 2 -- fio ...")
    load = build_job(device.path, "--rw=randwrite", "--time_based", f"--runtime={SECONDS}")
    device.require_same()
    status = cli.main(["--dev", device.node, "2", "--", *load, "--output=/dev/null"])
    device.require_same()
    require_status(status, "load")


def sweep_levels(device: LoopDevice, name: str) -> None:
    """Sweep three levels, each to its steady state."""
    serial = read_disk_identity(Devices(), Devices().resolve(device.node)).serial
    if serial is None:
        raise OpwatchError(f"{device.node} does not report its serial number")
    words = ["--dev", device.node, "--op", OP_LEVELS, "--destroy", "--confirm", serial, "--allow-virtual"]
    print_paragraph("increase the spare area level by level: opwatch sweep run " + " ".join(words))
    device.require_same()
    # Remove leftovers of a filesystem, which the sweep would refuse to destroy.
    run_tool(["blkdiscard", "--force", device.path], ends_with_us=True)
    pace = ["--settle", "0", "--fill", "1", "--rounds", str(MAX_ROUNDS), "--refresh", "0"]
    pace += ["--journals", str(get_journal_folder(name))]
    status = cli.main(["sweep", "run", *words, *pace])
    # On a busy host a level may not get steady; the table reports it.
    require_status(0 if status == NOT_REACHED else status, "sweep")
    show_answer(get_journal_folder(name))


def show_answer(folder: Path) -> None:
    """Answer how much spare area is enough, and make the page of the sweep."""
    [sweep] = list_journals(folder)
    # On the flash of this drive, each byte of which endures this many writes.
    endurance = CYCLES * PHYSICAL_BYTES
    words = [sweep, "--daily", DAILY, "--life", LIFE, "--endurance", f"{endurance // 10**9}GB"]
    print_paragraph("how much is enough? opwatch sweep advise " + " ".join(words))
    status = cli.main(["sweep", "advise", *words, "--journals", str(folder)])
    if status in INTERRUPTED:
        raise KeyboardInterrupt
    page = Path(tempfile.gettempdir()) / "opwatch-demo.html"
    print_paragraph(f"the same as a page: opwatch report {sweep} -o {page}")
    require_status(cli.main(["report", sweep, "--journals", str(folder), "-o", str(page)]), "report")


def require_status(status: int, what: str) -> None:
    """Raise an error unless the status is 0."""
    if status in INTERRUPTED:
        raise KeyboardInterrupt
    if status:
        raise OpwatchError(f"the {what} ended with status {status}")


def read_used_mb(pages: FolderTransport) -> float:
    space = identify.decode_namespace(pages.identify(identify.NAMESPACE, 1))
    if space.used_lbas is None or space.lba_bytes is None:
        raise OpwatchError("the simulated drive does not report how much it holds")
    return space.used_lbas * space.lba_bytes / 1e6


def show_trim(device: LoopDevice, pages: FolderTransport) -> None:
    """Show the stale data that the drive holds until the filesystem trims."""
    run_tool(["mkfs.ext4", "-q", "-F", "-E", "nodiscard", device.path], ends_with_us=True)
    before = read_used_mb(pages)
    # Mount in a private namespace, so that the mount disappears with the shell. The mount point is our own
    # folder.
    words = 'mount "$0" "$1" && fstrim -v "$1"'
    trim = ["unshare", "--mount", "--propagation", "private", "sh", "-c", words, device.path, str(CLAIMS)]
    trimmed = run_tool(trim, ends_with_us=True).strip().rpartition(": ")[2]
    after = read_used_mb(pages)
    open_stdout().write_lines(
        [
            "",
            f"After making an ext4 on it, the drive still holds {before:.1f} MB of old data (NUSE).",
            f"fstrim: {trimmed}. The drive now holds {after:.1f} MB.",
        ]
    )


def show_writes(device: LoopDevice) -> None:
    """Show what the writes of a program become on their way to NAND."""
    load = [*build_job(f"{CLAIMS}/file", "--rw=randwrite"), "--size=32m", "--io_size=2m"]
    load += ["--ioengine=psync", "--direct=0", "--fsync=8", "--output=/dev/null"]
    print_paragraph(
        "what 4 KiB writes with an fsync after each eighth become: opwatch writes MOUNT --sync -- fio ..."
    )
    device.require_same()
    own = [sys.executable, "-m", "opwatch", "writes", str(CLAIMS), "--sync", "-q", "--", *load]
    # The kernel would write its inode tables meanwhile.
    words = 'mount -o noinit_itable "$0" "$1" && shift && exec "$@"'
    private = ["unshare", "--mount", "--propagation", "private", "sh", "-c", words]
    shown = run_tool([*private, device.path, str(CLAIMS), *own], timeout_s=60, ends_with_us=True)
    open_stdout().write_lines(shown.splitlines())


def run_demo() -> int:
    remove_leftovers(print_message)
    config = {
        "user_bytes": USER_BYTES,
        "physical_bytes": PHYSICAL_BYTES,
        "superblock_bytes": SUPERBLOCK_PAGES * PAGE_BYTES,
        "service.dies": DIES,
        # The default buffer would hold most of a round on a drive of this size.
        "service.buffer_bytes": BUFFER_BYTES,
    }
    with create_temporary_drive(config, ("timing",), print_message) as (drive, device):
        print_message(
            f"a simulated SSD of {USER_BYTES >> 20} MiB at {drive.device}, {DIES} dies, in real time"
        )
        pages = find_simulated(Devices().resolve(drive.device))
        if pages is None:
            raise OpwatchError(f"the drive behind {drive.device} is gone")
        show_live_view(device)
        show_trim(device, pages)
        show_writes(device)
        sweep_levels(device, drive.name)
    return 0


def _raise_exit(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def main() -> int:
    # Clean up when ended by a signal, too.
    signal.signal(signal.SIGTERM, _raise_exit)
    signal.signal(signal.SIGHUP, _raise_exit)
    try:
        return run_demo()
    except OpwatchError as error:
        return cli.report_error(error)
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
