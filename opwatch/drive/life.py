"""Making and unmaking drives."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opwatch.device import Devices
from opwatch.drive import server
from opwatch.drive.place import Place, Record, one_at_a_time, places
from opwatch.drive.spec import Fault
from opwatch.drive.users import is_mount_point, users_of
from opwatch.errors import OpwatchError, PermissionMissing, RefusedError
from opwatch.process import run_tool

MOUNTINFO = Path("/proc/self/mountinfo")


@dataclass(frozen=True, slots=True)
class Wanted:
    """A drive to be made. Sizes of None come from the state file."""

    name: str | None
    config: dict[str, int] = field(default_factory=dict)  # of the FTL, by its own names
    faults: tuple[Fault, ...] = ()
    no_data: bool = False
    state: Path | None = None
    words: tuple[str, ...] = ()  # for the server as they are


def require_root(what: str) -> None:
    if os.geteuid() != 0:
        raise PermissionMissing(f"{what} needs root: it mounts a file system and makes a loop device")


def create(wanted: Wanted) -> Record:
    """Make a drive and its block device. A dead drive of the same name is cleaned up first."""
    require_root("drive create")
    server.require_program()
    with one_at_a_time():
        place = _claim(wanted.name)
        try:
            return _make(place, wanted)
        except BaseException:
            _clean(place)
            raise


def _claim(name: str | None) -> Place:
    if name is None:
        taken = {place.name for place in places()}
        name = next(f"sim{n}" for n in range(len(taken) + 1) if f"sim{n}" not in taken)
    place = Place(name)
    if place.exists():
        if place.is_alive():
            raise OpwatchError(
                f"there is a drive {name} already: opwatch drive destroy {name}, or take another --name"
            )
        _clean(place)
    place.make()
    return place


def _server_words(wanted: Wanted) -> list[str]:
    config = dict(wanted.config)
    for fault in wanted.faults:
        config |= fault.config
    words = [f"{key}={value}" for key, value in config.items()]
    words += [f"fault={fault.words}" for fault in wanted.faults if fault.words]
    words.append(f"serial=OPW{secrets.token_hex(8).upper()}")
    if wanted.no_data:
        words.append("no-data")
    if wanted.state:
        words.append(f"state={wanted.state}")
    return words + list(wanted.words)


def _make(place: Place, wanted: Wanted) -> Record:
    state = str(wanted.state) if wanted.state else None
    pid = server.start(place, _server_words(wanted))
    place.write_record(Record(place.name, "", pid, state, wanted.no_data))
    losetup = ["losetup", "--find", "--show", "--partscan", "--direct-io=on", str(place.disk)]
    record = Record(place.name, run_tool(losetup).strip(), pid, state, wanted.no_data)
    place.write_record(record)
    _allow_discards(record.device)
    return record


def _allow_discards(node: str) -> None:
    """A loop device keeps the limit that whoever had its number before has set."""
    queue = Path("/sys/block") / Path(node).name / "queue"
    grain, most, limit = (
        int((queue / f"discard_{name}").read_text()) for name in ("granularity", "max_hw_bytes", "max_bytes")
    )
    most = most // grain * grain if grain else 0
    if limit < most:
        (queue / "discard_max_bytes").write_text(str(most))


def destroy(name: str) -> list[str]:
    """Unmake a drive, dead or alive; returns what the user should know about it."""
    require_root("drive destroy")
    with one_at_a_time():
        place = Place(name)
        if not place.exists():
            known = ", ".join(place.name for place in places()) or "none"
            raise OpwatchError(f"there is no drive {name}; there are: {known}")
        if not place.is_alive():
            return _clean(place)
        users = _users(place)
        if users:
            raise RefusedError(f"drive {name} is in use: {'; '.join(users)}. Unmount it first")
        _detach(place)
        record = place.record()
        if record and record.state:
            server.tell(place, "save")
        return _remove(place, [])


def _users(place: Place) -> list[str]:
    devices = Devices()
    return [
        user for node in server.loops_over(place.disk) for user in users_of(devices.resolve(node), devices)
    ]


def _detach(place: Place, timeout_s: float = 2) -> None:
    """Take the loop devices away. One that is open goes when it is closed."""
    for node in server.loops_over(place.disk):
        with contextlib.suppress(OpwatchError):
            run_tool(["losetup", "--detach", node])
    end = time.monotonic() + timeout_s
    # Not the disk's fault, but an open device would keep the file system busy.
    while place.is_alive() and server.loops_over(place.disk) and time.monotonic() < end:
        time.sleep(0.01)


def _clean(place: Place) -> list[str]:
    """Remove what there is of a drive, in an order that works for every leftover."""
    users = _users(place)
    _detach(place)
    return _remove(place, users)


def _remove(place: Place, users: list[str]) -> list[str]:
    """What is left once the loop devices are detached, or will be when they are closed."""
    left = server.loops_over(place.disk)
    if is_mount_point(place.mount, MOUNTINFO.read_text()):
        try:
            run_tool(["umount", str(place.mount)])
        except OpwatchError:
            run_tool(["umount", "--lazy", str(place.mount)])
    if not server.wait_dead(place, 0.5 if left else 10):
        _end(place)
    place.remove()
    return [f"{node} fails all I/O and goes away when it is closed" for node in left] + users


def _end(place: Place) -> None:
    """A server that has not ended by itself: something holds its device open."""
    record = place.record()
    if record is None:
        return
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(OSError):
            if Path(f"/proc/{record.pid}/exe").resolve() == server.PROGRAM.resolve():
                os.kill(record.pid, number)
        if server.wait_dead(place, 10):
            return


def sweep() -> list[str]:
    """Detach loop devices over drives whose folder is gone; returns their nodes."""
    known = {str(place.disk) for place in places()}
    found = []
    for backing in Path("/sys/block").glob("loop*/loop/backing_file"):
        with contextlib.suppress(OSError, OpwatchError):
            path = backing.read_text().removesuffix("\n").removesuffix(" (deleted)")
            if path.startswith(f"{Place('x').folder.parent}/") and path not in known:
                node = f"/dev/{backing.parents[1].name}"
                run_tool(["losetup", "--detach", node])
                found.append(node)
    return found


def fault(place: Place, what: Fault) -> None:
    require_root("drive fault")
    server.tell(place, f"fault {what.words}")


def find(name: str | None) -> Place:
    """The drive of this name, or the only one."""
    if name is not None:
        place = Place(name)
        if place.exists():
            return place
        known = ", ".join(place.name for place in places()) or "none"
        raise OpwatchError(f"there is no drive {name}; there are: {known}")
    found = places()
    if len(found) == 1:
        return found[0]
    if not found:
        raise OpwatchError("there is no drive; opwatch drive create makes one")
    raise OpwatchError(f"say which drive: {', '.join(place.name for place in found)}")


def memory_bytes(record: Record) -> int | None:
    """What the server of a drive has in memory; None when it cannot be asked."""
    try:
        status = Path(f"/proc/{record.pid}/status").read_text()
    except OSError:
        return None
    found = re.search(r"^VmRSS:\s*(\d+) kB", status, re.MULTILINE)
    return int(found[1]) * 1024 if found else None


def truth(place: Place) -> dict[str, Any]:
    """The core's own counters. Raises for a drive that is dead."""
    if not place.is_alive():
        raise OpwatchError(
            f"drive {place.name} is dead: its server is gone. opwatch drive destroy {place.name} cleans up"
        )
    try:
        found: dict[str, Any] = json.loads((place.mount / "truth.json").read_bytes())
    except PermissionError as error:
        raise PermissionMissing("drive info needs root: the drive's files are root's alone") from error
    except (OSError, ValueError) as error:
        raise OpwatchError(f"drive {place.name}: {error}") from error
    return found
