"""What a drive says of trimmed blocks: how they read, and how much it holds by its own count."""

from __future__ import annotations

from contextlib import closing

from opwatch.collectors.firmware.simulated import find_simulated
from opwatch.collectors.space.device_handle import open_device
from opwatch.errors import OpwatchError
from opwatch.frozen import frozen
from opwatch.host.device import BlockDevice
from opwatch.trim.stale.sentinel import ReadsAs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from opwatch.counters.decode.identify import Namespace

_READS = {"zeros": ReadsAs.ZEROS, "ones": ReadsAs.ONES}


@frozen
class Promise:
    """What blocks read as once they are trimmed, and who says so. `reads` is None when nobody does."""

    reads: ReadsAs | None
    words: str


def _namespace(device: BlockDevice) -> Namespace | None:
    """Identify Namespace of an NVMe or a simulated drive; None for all others."""
    simulated, number = find_simulated(device), device.number("nsid")
    if not simulated and not number:
        return None
    # These are imported for such drives alone: every audit asks whether a disk is one.
    from opwatch.collectors.firmware.transports import KernelTransport
    from opwatch.counters.decode import identify

    if simulated:
        return identify.decode_namespace(simulated.identify(identify.NAMESPACE, 1))
    assert number
    with closing(KernelTransport(open_device(device))) as transport:
        return identify.decode_namespace(transport.identify(identify.NAMESPACE, number))


def promise(device: BlockDevice) -> Promise:
    """What is promised of a device: a whole disk, or one that is built on others."""
    try:
        namespace = _namespace(device)
    except OpwatchError as error:
        return Promise(None, f"what the drive promises cannot be read: {error}")
    if namespace:
        reads = _READS.get(namespace.deallocated_read or "")
        said = f"trimmed blocks read as {reads}" if reads else "nothing about how trimmed blocks read"
        return Promise(reads, f"the drive says {said} (NVMe DLFEAT)")
    if device.kind() in ("loop", "zram"):
        return Promise(ReadsAs.ZEROS, f"holes of a {device.kind()} device read as zeros")
    page = device.raw("device/vpd_pgb2") or b""
    if len(page) > 5 and page[1] == 0xB2 and page[5] >> 2 & 7 == 1:
        return Promise(ReadsAs.ZEROS, "the drive says trimmed blocks read as zeros (SCSI LBPRZ)")
    return Promise(None, "the drive does not say how trimmed blocks read")


def held_by_count(device: BlockDevice) -> int | None:
    """NUSE in bytes: what an NVMe drive counts as in use. None where it does not tell."""
    try:
        namespace = _namespace(device)
    except OpwatchError:
        return None
    if not namespace or not namespace.lba_bytes or namespace.used_lbas is None:
        return None
    return namespace.used_lbas * namespace.lba_bytes
