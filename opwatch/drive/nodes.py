"""A drive's loop devices, identified by their backing file. A device number or a path alone is no proof."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from opwatch.drive.place import DriveFolder, Record
from opwatch.errors import OpwatchError
from opwatch.host.loop import Binding, LoopDevice, attach_loop, open_loop
from opwatch.host.mountspaces import read_own_mounts, survey_mounts
from opwatch.host.usage import find_mount_number

SYS = Path("/sys")
_DISK_INODE = 2  # of the server's file "disk"
_PROBE_S = 5


def read_diskseq(node: str, sys: Path = SYS) -> int | None:
    """Return the device's sequence number, which is unique per boot, or None before Linux 5.15."""
    try:
        return int((sys / "block" / Path(node).name / "diskseq").read_text())
    except (OSError, ValueError):
        return None


def read_backing_path(node: str, sys: Path = SYS) -> str | None:
    """Return the backing path that a loop device reports, or None.

    The path is that of the attaching process's mount namespace.
    """
    try:
        text = (sys / "block" / Path(node).name / "loop/backing_file").read_bytes().decode(errors="replace")
    except OSError:
        return None
    return text.removesuffix("\n").removesuffix(" (deleted)")


def is_record_current(record: Record, sys: Path = SYS) -> bool:
    """Return True if a record's device is still the one made for it. Does not ask the server."""
    if not record.device or read_backing_path(record.device, sys) is None:
        return False
    if record.diskseq is not None:
        return read_diskseq(record.device, sys) == record.diskseq
    return read_backing_path(record.device, sys) == str(DriveFolder(record.name).disk)


def guess_node(place: DriveFolder, sys: Path = SYS) -> str | None:
    """Return the loop device whose text names the drive's disk, or None. No proof, but needs no root."""
    folders = sorted((sys / "block").glob("loop*/loop"))
    nodes = (f"/dev/{folder.parent.name}" for folder in folders)
    return next((node for node in nodes if read_backing_path(node, sys) == str(place.disk)), None)


def make_node(place: DriveFolder) -> tuple[str, int | None]:
    """Create a loop device over the drive's disk. Returns its node and diskseq."""
    disk = os.open(place.disk, os.O_RDWR | os.O_CLOEXEC)
    try:
        # Without autoclear, because the device must outlive this process.
        with attach_loop(disk, Binding(direct_io=True, partscan=True, autoclear=False)) as device:
            return device.node, read_diskseq(device.node)
    except OSError as error:
        raise OpwatchError(f"cannot create a loop device for {place.disk}: {error.strerror}") from error
    finally:
        os.close(disk)


def find_nodes(place: DriveFolder, sys: Path = SYS) -> list[str]:
    """Return the nodes of the loop devices over this drive's disk, without asking the server."""
    record = place.read_record()
    number = find_mount_number(place.mount, read_own_mounts())
    nodes = []
    for folder in sorted((sys / "block").glob("loop*/loop")):
        node = f"/dev/{folder.parent.name}"
        ours = record is not None and node == record.device and is_record_current(record, sys)
        # A killed `create` may have left a device without a record.
        if not ours and number and read_backing_path(node, sys) == str(place.disk):
            ours = _is_backed_by_disk(node, number)
        if ours:
            nodes.append(node)
    return nodes


def _is_backed_by_disk(node: str, number: tuple[int, int]) -> bool:
    """Return True if the backing file is the disk in the file system with this device number."""
    with contextlib.suppress(OpwatchError), open_loop(node) as device:
        return device.identity.backing == (os.makedev(*number), _DISK_INODE)
    return False


def detach_all(place: DriveFolder, timeout_s: float = 2) -> list[str]:
    """Detach the loop devices. Returns the nodes of devices still open, which go away when closed."""
    for node in find_nodes(place):
        sequence = read_diskseq(node)
        with contextlib.suppress(OpwatchError):
            device = open_loop(node)
            # The node may have been reused between the listing and the open.
            if sequence is None or device.identity.diskseq in (None, sequence):
                device.detach()
            device.close()
    end = time.monotonic() + timeout_s
    # An open device keeps the file system busy, so wait for a moment.
    while (left := find_nodes(place)) and place.is_alive() and time.monotonic() < end:
        time.sleep(0.01)
    return left


def find_abandoned(root: Path, sys: Path = SYS) -> Iterator[tuple[LoopDevice, tuple[str, ...]]]:
    """Yield each loop device of a drive without folder and server, with the places that were not searched.

    A drive of another mount namespace has its folder and server there, so a device is yielded only if no
    visible namespace mounts its file system and its I/O fails.
    """
    for folder in sorted((sys / "block").glob("loop*/loop")):
        node = f"/dev/{folder.parent.name}"
        text = read_backing_path(node, sys)
        if text is None or not text.startswith(f"{root}/") or Path(text).parents[1].exists():
            continue
        with contextlib.suppress(OpwatchError), open_loop(node) as device:
            backing, inode = device.identity.backing
            looked = survey_mounts([(os.major(backing), os.minor(backing))])
            if inode == _DISK_INODE and not looked.mounts and _is_dead(device):
                yield device, looked.unseen


def _is_dead(device: LoopDevice) -> bool:
    """Return True if the device answers with errors.

    A device that does not answer in time may only be stopped.
    """
    answers: list[bool] = []

    def sync_device() -> None:
        try:
            os.fsync(device.fileno())
            answers.append(False)
        except OSError:
            answers.append(True)

    thread = threading.Thread(target=sync_device, daemon=True)
    thread.start()
    thread.join(_PROBE_S)
    return answers == [True]
