"""Purge a drive.

Discards run in pieces and can be stopped by a signal. A format, sanitize or erase always runs to its end.
"""

from __future__ import annotations

import fcntl
import struct
import subprocess
from collections.abc import Callable

from opwatch.collectors.stack.disks import identify_nvme
from opwatch.counters.decode.identify import Namespace
from opwatch.errors import OpwatchError, Unsupported
from opwatch.foreign import decode_text
from opwatch.host.device import BlockDevice
from opwatch.sweep.purges import FORMAT, SANITIZE, SECURE_ERASE, PurgeMethod, find_purge
from opwatch.tools.acting.erasing.password import erase_drive
from opwatch.tools.acting.guard.held_mount import HeldMount
from opwatch.tools.acting.namespaces.controller import HeldController, find_controller
from opwatch.tools.acting.namespaces.sanitizing import run_sanitize
from opwatch.tools.acting.sweep.bench import SweepBench
from opwatch.tools.acting.sweep.offers import find_purge_refusal
from opwatch.tools.acting.trim.fitrim import trim_in_pieces

# linux/fs.h: offset and length in bytes.
_BLKDISCARD = 0x1277
_RANGE = struct.Struct("=2Q")
_PIECE_BYTES = 4 << 30


def require_discards(disk: BlockDevice) -> None:
    """Raise Unsupported if a purge by discards would do nothing."""
    if not disk.read_number("queue/discard_max_bytes"):
        raise Unsupported(
            f"{disk.name} accepts no discards, so it cannot be emptied: opwatch trim check shows why"
        )


def discard_all(descriptor: int, disk: BlockDevice, go_on: Callable[[], None]) -> int:
    """Discard the entire disk and return its size. `go_on` is called before each piece and may raise."""
    require_discards(disk)
    size = disk.size_bytes
    for begin in range(0, size, _PIECE_BYTES):
        go_on()
        length = min(_PIECE_BYTES, size - begin)
        try:
            fcntl.ioctl(descriptor, _BLKDISCARD, _RANGE.pack(begin, length))
        except OSError as error:
            raise OpwatchError(
                f"{disk.name}: the discard of {length} bytes at {begin} failed: {error.strerror}"
            ) from error
    return size


def purge_drive(bench: SweepBench) -> None:
    """Purge the drive by the requested method, or trim the free space of a file system."""
    if bench.state.request.place:
        return discard_space(bench)
    bench.disk_claim.is_purged = True
    way = find_purge(bench.state.request.purge)
    if way is FORMAT:
        return _format_namespace(bench)
    if way is SECURE_ERASE:
        return _erase_drive(bench)
    if way is SANITIZE:
        return _sanitize_drive(bench)
    return discard_space(bench)


def discard_space(bench: SweepBench) -> None:
    """Discard the disk, or trim the file system."""
    claim = bench.claim
    if isinstance(claim, HeldMount):
        trim_in_pieces(
            claim.fileno(), claim.mount, claim.device.size_bytes, lambda: bench.wait_unless_stopped(0)
        )
    else:
        discard_all(claim.fileno(), bench.disk, lambda: bench.wait_unless_stopped(0))


def _format_namespace(bench: SweepBench) -> None:
    """Format the namespace with its current format. A signal takes effect after the format."""
    disk = bench.disk
    bench.wait_unless_stopped(0)
    if refused := find_purge_refusal(disk, FORMAT.name):
        raise Unsupported(f"--purge {FORMAT.name}: {refused}")
    _, before = identify_nvme(disk)
    # The descriptor path survives a rename of the disk. --force, because nvme would take our exclusive open
    # for another user.
    argv = ["nvme", "format", bench.disk_claim.path, f"--lbaf={before.lba_format}", "--ses=0", "--force"]
    done = subprocess.run(argv, capture_output=True, check=False, start_new_session=True)
    if done.returncode:
        raise OpwatchError(
            f"{disk.name}: the format failed: {decode_text(done.stderr).strip() or done.returncode}"
        )
    bench.claim.require_ours()
    _require_unchanged(disk, before, FORMAT)
    bench.wait_unless_stopped(0)


def _sanitize_drive(bench: SweepBench) -> None:
    """Sanitize the drive, then discard it. A signal takes effect after the sanitize.

    Drives need not deallocate sanitized blocks, and the kernel may have cached pages of the old data.
    """
    disk, claim = bench.disk, bench.disk_claim
    bench.wait_unless_stopped(0)
    if refused := find_purge_refusal(disk, SANITIZE.name):
        raise Unsupported(f"--purge {SANITIZE.name}: {refused}")
    _, before = identify_nvme(disk)
    with HeldController(find_controller(claim.devices, disk)) as controller:
        controller.require_drive(claim.identity)
        claim.require_ours()
        run_sanitize(controller, bench.talk.show_progress, bench.journal.resume_command)
    claim.require_ours()
    _require_unchanged(disk, before, SANITIZE)
    discard_space(bench)


def _require_unchanged(disk: BlockDevice, before: Namespace, way: PurgeMethod) -> None:
    """Raise OpwatchError if a purge changed more than the content of the blocks."""
    _, after = identify_nvme(disk)
    if (after.size_lbas, after.lba_bytes) != (before.size_lbas, before.lba_bytes):
        raise OpwatchError(f"{disk.name}: the {way.name} has changed its block size or capacity")


def _erase_drive(bench: SweepBench) -> None:
    """Erase the drive. A signal takes effect after the erase."""
    bench.wait_unless_stopped(0)
    erase_drive(bench.disk_claim, bench.journal, bench.state)
    bench.claim.require_ours()
    bench.wait_unless_stopped(0)
