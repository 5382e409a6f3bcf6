"""Read a drive's promises about deallocated blocks, and its count of blocks in use."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from opwatch.collectors.firmware.simulated import find_simulated
from opwatch.collectors.space.device_handle import open_device
from opwatch.errors import OpwatchError
from opwatch.host.device import BlockDevice
from opwatch.trim.stale.sentinel import ReadsAs

if TYPE_CHECKING:
    from opwatch.counters.decode.identify import Namespace


_READS = {"zeros": ReadsAs.ZEROS, "ones": ReadsAs.ONES}


@dataclass(frozen=True, slots=True)
class Promise:
    """Promised content of trimmed blocks, with the source. `reads` is None without a promise."""

    reads: ReadsAs | None
    words: str


def _identify_namespace(device: BlockDevice) -> Namespace | None:
    """Return Identify Namespace of an NVMe or simulated drive, or None for others."""
    simulated, number = find_simulated(device), device.read_number("nsid")
    if not simulated and not number:
        return None
    # Imported only for such drives, because each audit calls this function.
    from opwatch.collectors.firmware.transports import KernelTransport
    from opwatch.counters.decode import identify

    if simulated:
        return identify.decode_namespace(simulated.identify(identify.NAMESPACE, 1))
    assert number
    with closing(KernelTransport(open_device(device))) as transport:
        return identify.decode_namespace(transport.identify(identify.NAMESPACE, number))


def read_promise(device: BlockDevice) -> Promise:
    """Return the promise for a device, either a whole disk or a stacked device."""
    try:
        namespace = _identify_namespace(device)
    except OpwatchError as error:
        return Promise(None, f"how trimmed blocks read is unknown: {error}")
    if namespace:
        reads = _READS.get(namespace.deallocated_read or "")
        said = (
            f"reports that trimmed blocks read as {reads}"
            if reads
            else "does not report how trimmed blocks read"
        )
        return Promise(reads, f"the drive {said} (NVMe DLFEAT)")
    if device.read_kind() in ("loop", "zram"):
        return Promise(ReadsAs.ZEROS, f"holes of a {device.read_kind()} device read as zeros")
    page = device.read_raw("device/vpd_pgb2") or b""
    if len(page) > 5 and page[1] == 0xB2 and page[5] >> 2 & 7 == 1:
        return Promise(ReadsAs.ZEROS, "the drive reports that trimmed blocks read as zeros (SCSI LBPRZ)")
    return Promise(None, "the drive does not report how trimmed blocks read")


def read_use_count(device: BlockDevice) -> int | None:
    """Return NUSE in bytes, the space in use by an NVMe drive's count. None if not reported."""
    try:
        namespace = _identify_namespace(device)
    except OpwatchError:
        return None
    if not namespace or not namespace.lba_bytes or namespace.used_lbas is None:
        return None
    return namespace.used_lbas * namespace.lba_bytes
