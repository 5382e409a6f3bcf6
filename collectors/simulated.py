"""The log pages of a simulated drive, found from its loop device. The bytes are a real drive's."""

from __future__ import annotations

from pathlib import Path

from opwatch.device import BlockDevice
from opwatch.errors import OpwatchError, PermissionMissing

_IDENTIFY = {0: "identify-namespace", 1: "identify-controller"}


class SimulatedDrive:
    """Get Log Page and Identify, as an NVMe drive answers them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get_log(self, lid: int, length: int) -> bytes:
        """The first `length` bytes of a log page, as they are now."""
        return self._read(f"log-{lid:02x}", length, f"log page {lid:02X}h")

    def identify(self, cns: int) -> bytes:
        """Identify Namespace (CNS 0) or Controller (CNS 1)."""
        if cns not in _IDENTIFY:
            raise OpwatchError(f"the simulated drive has no Identify structure {cns}")
        return self._read(_IDENTIFY[cns], 4096, f"Identify structure {cns}")

    def _read(self, name: str, length: int, what: str) -> bytes:
        try:
            # One read is one command: what a page shows is of one moment.
            with (self.folder / name).open("rb", buffering=0) as page:
                return page.read(length) or b""
        except FileNotFoundError as error:
            raise OpwatchError(f"the simulated drive has no {what}") from error
        except PermissionError as error:
            raise PermissionMissing(f"{what} of a simulated drive is for root only") from error
        except OSError as error:
            raise OpwatchError(f"the simulated drive did not give {what}: {error.strerror}") from error


def find_simulated(device: BlockDevice) -> SimulatedDrive | None:
    """The drive behind a loop device or a partition of it; None for every other device."""
    backing = device.disk.attribute("loop/backing_file")
    if not backing or not backing.endswith("/mnt/disk"):
        return None
    folder = Path(backing).parent
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    served = any(line.split()[4] == str(folder) and " - fuse.drive opwatch " in line for line in mounts)
    return SimulatedDrive(folder) if served else None
