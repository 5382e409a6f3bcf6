"""The loop devices of a drive, known by what is behind them: a number or the text of a path is no proof."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from opwatch.drive.place import Place, Record
from opwatch.errors import OpwatchError
from opwatch.host.loop import Binding, LoopDevice, attach, open_loop
from opwatch.host.mountspaces import own_mounts, survey
from opwatch.host.usage import number_of_mount

SYS = Path("/sys")
_DISK_INODE = 2  # of the file that the server shows as "disk"
_PROBE_S = 5


def diskseq_of(node: str, sys: Path = SYS) -> int | None:
    """The number that no other disk of this boot has had; None without one (before Linux 5.15)."""
    try:
        return int((sys / "block" / Path(node).name / "diskseq").read_text())
    except (OSError, ValueError):
        return None


def backing_text(node: str, sys: Path = SYS) -> str | None:
    """The path that a loop device says is behind it, in its own mount namespace; None for one without."""
    try:
        text = (sys / "block" / Path(node).name / "loop/backing_file").read_bytes().decode(errors="replace")
    except OSError:
        return None
    return text.removesuffix("\n").removesuffix(" (deleted)")


def is_still(record: Record, sys: Path = SYS) -> bool:
    """Whether the device of a record is the one that was made for it. Asks the server nothing."""
    if not record.device or backing_text(record.device, sys) is None:
        return False
    if record.diskseq is not None:
        return diskseq_of(record.device, sys) == record.diskseq
    return backing_text(record.device, sys) == str(Place(record.name).disk)


def node_over(place: Place, sys: Path = SYS) -> str | None:
    """Return the loop device whose text names the drive's disk, or None. No proof, but it needs no root."""
    folders = sorted((sys / "block").glob("loop*/loop"))
    nodes = (f"/dev/{folder.parent.name}" for folder in folders)
    return next((node for node in nodes if backing_text(node, sys) == str(place.disk)), None)


def make_node(place: Place) -> tuple[str, int | None]:
    """(the node, its diskseq) of a new loop device over the drive's disk."""
    disk = os.open(place.disk, os.O_RDWR | os.O_CLOEXEC)
    try:
        # It must outlive us: the drive is there until it is destroyed.
        with attach(disk, Binding(direct_io=True, partscan=True, autoclear=False)) as device:
            return device.node, diskseq_of(device.node)
    except OSError as error:
        raise OpwatchError(f"cannot make a loop device of {place.disk}: {error.strerror}") from error
    finally:
        os.close(disk)


def nodes_of(place: Place, sys: Path = SYS) -> list[str]:
    """Nodes of the loop devices over this drive's disk. The server is asked nothing."""
    record = place.record()
    number = number_of_mount(place.mount, own_mounts())
    nodes = []
    for folder in sorted((sys / "block").glob("loop*/loop")):
        node = f"/dev/{folder.parent.name}"
        ours = record is not None and node == record.device and is_still(record, sys)
        # A `create` that was killed may have left it, without a record of it.
        if not ours and number and backing_text(node, sys) == str(place.disk):
            ours = _is_over(node, number)
        if ours:
            nodes.append(node)
    return nodes


def _is_over(node: str, number: tuple[int, int]) -> bool:
    """Whether the file behind it is the disk of the file system of this number, which is ours."""
    with contextlib.suppress(OpwatchError), open_loop(node) as device:
        return device.identity.backing == (os.makedev(*number), _DISK_INODE)
    return False


def detach_all(place: Place, timeout_s: float = 2) -> list[str]:
    """Take the loop devices away; those that are left are open, and go when they are closed."""
    for node in nodes_of(place):
        sequence = diskseq_of(node)
        with contextlib.suppress(OpwatchError):
            device = open_loop(node)
            # The number may have passed to another between looking and opening.
            if sequence is None or device.identity.diskseq in (None, sequence):
                device.detach()
            device.close()
    end = time.monotonic() + timeout_s
    # A device that is still open would keep the file system busy, so it is given some time.
    while (left := nodes_of(place)) and place.is_alive() and time.monotonic() < end:
        time.sleep(0.01)
    return left


def abandoned(root: Path, sys: Path = SYS) -> Iterator[tuple[LoopDevice, tuple[str, ...]]]:
    """Loop devices over drives whose folder is gone, and which nobody serves any more: those of another mount
    namespace have a folder and a server there. With each, what could not be looked at for such a mount."""
    for folder in sorted((sys / "block").glob("loop*/loop")):
        node = f"/dev/{folder.parent.name}"
        text = backing_text(node, sys)
        if text is None or not text.startswith(f"{root}/") or Path(text).parents[1].exists():
            continue
        with contextlib.suppress(OpwatchError), open_loop(node) as device:
            backing, inode = device.identity.backing
            looked = survey([(os.major(backing), os.minor(backing))])
            if inode == _DISK_INODE and not looked.mounts and _is_dead(device):
                yield device, looked.unseen


def _is_dead(device: LoopDevice) -> bool:
    """Whether it answers with errors. One that does not answer in time is not dead: it may be stopped."""
    answers: list[bool] = []

    def flush() -> None:
        try:
            os.fsync(device.fileno())
            answers.append(False)
        except OSError:
            answers.append(True)

    thread = threading.Thread(target=flush, daemon=True)
    thread.start()
    thread.join(_PROBE_S)
    return answers == [True]
