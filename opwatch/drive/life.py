"""Create, find and destroy drives."""

from __future__ import annotations

import errno
import re
import secrets
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from opwatch.drive import server
from opwatch.drive.nodes import detach_all, find_abandoned, find_nodes, make_node
from opwatch.drive.place import ROOT, DriveFolder, Record, list_drives, lock_drives
from opwatch.drive.process import (
    ServerProcess,
    abort_connection,
    end_process,
    explain_unreachable,
    make_stopped_error,
    open_server,
    run_with_timeout,
)
from opwatch.drive.spec import Fault
from opwatch.drive.users import Users, find_users
from opwatch.errors import OpwatchError, PermissionMissing, RefusedError
from opwatch.foreign import parse_json, read_bytes, read_text, require_table
from opwatch.host import privilege
from opwatch.host.device import Devices
from opwatch.host.mountspaces import is_in_use, read_own_mounts
from opwatch.host.process import run_tool
from opwatch.host.usage import find_mount_number
from opwatch.units import format_binary

# Time limit for saving: enough for a large drive on a slow disk.
_SAVE_TIMEOUT_S = 600
# Errors from a FUSE file system whose server has ended, and the time such a server has to release its lock.
_SERVER_GONE_ERRORS = (errno.ECONNABORTED, errno.ENOTCONN)
_END_TIMEOUT_S = 10


@dataclass(frozen=True, slots=True)
class DriveSpec:
    """The specification of a drive to create. Sizes missing from `config` come from the state file."""

    name: str | None
    config: dict[str, int] = field(default_factory=dict)  # FTL settings by their own names
    faults: tuple[Fault, ...] = ()
    no_data: bool = False
    state: Path | None = None
    words: tuple[str, ...] = ()  # passed to the server unchanged
    memory_bytes: int | None = None  # limit; a drive that may need more is refused


def require_root(what: str) -> None:
    """Raise PermissionMissing unless run by root. `what` is the command, such as "drive create"."""
    privilege.require_root(
        f"opwatch {what}", "it mounts a filesystem and creates a loop device", f"{what} ..."
    )


def create_drive(wanted: DriveSpec) -> Record:
    """Create a drive and its block device. A dead drive of the same name is cleaned up first."""
    require_root("drive create")
    server.require_program()
    with lock_drives():
        if wanted.state:
            _require_unused_state(wanted.state)
        require_memory(wanted)
        place = _claim_folder(wanted.name)
        try:
            return _make_drive(place, wanted)
        except BaseException:
            _remove_remains(place)
            raise


def estimate_memory(wanted: DriveSpec) -> int:
    """Return the maximum memory of a drive.

    The contents, 4 bytes per unit of user space, and 4 bytes and one bit per unit of flash.
    """
    user, physical = wanted.config.get("user_bytes", 0), wanted.config.get("physical_bytes", 0)
    unit = wanted.config.get("iu_bytes", 4096)
    return (0 if wanted.no_data else user) + user // unit * 4 + physical // unit * 33 // 8


def require_memory(wanted: DriveSpec, meminfo: Path = Path("/proc/meminfo")) -> None:
    """Refuse a drive that may need more memory than available, because the whole machine would suffer."""
    needed = estimate_memory(wanted)
    bound = find_memory_limit(wanted, meminfo)
    if bound is not None and needed > bound:
        limit = f"{format_binary(bound)} is available"
        if bound == wanted.memory_bytes:
            limit = f"--memory allows {format_binary(bound)}"
        size = format_binary(wanted.config["user_bytes"])
        raise OpwatchError(
            f"a drive of {size} can need {format_binary(needed)} of memory, but {limit}: use a smaller "
            "--size" + ("" if wanted.no_data else ", or --no-data")
        )


def find_memory_limit(wanted: DriveSpec, meminfo: Path = Path("/proc/meminfo")) -> int | None:
    """Return the smaller of the requested limit and the available memory, or None if both are unknown."""
    available = re.search(r"^MemAvailable:\s*(\d+) kB", read_text(meminfo), re.MULTILINE)
    bounds = [int(available[1]) * 1024] if available else []
    if wanted.memory_bytes is not None:
        bounds.append(wanted.memory_bytes)
    return min(bounds, default=None)


def _require_unused_state(state: Path) -> None:
    """Refuse a state file that a live drive will save to.

    If the file does not exist yet, the other drive cannot have locked it.
    """
    for place in list_drives():
        record = place.read_record()
        if record and record.state and place.is_alive() and _is_same_file(Path(record.state), state):
            raise RefusedError(
                f"--state {state}: the state file is in use by another drive: opwatch drive destroy "
                f"{place.name} first, or give another file"
            )


def _is_same_file(one: Path, other: Path) -> bool:
    """Return True if two paths name the same file, which need not exist."""
    try:
        return one.name == other.name and one.parent.samefile(other.parent)
    except OSError:
        return False


def _claim_folder(name: str | None) -> DriveFolder:
    if name is None:
        taken = {place.name for place in list_drives()}
        name = next(f"sim{n}" for n in range(len(taken) + 1) if f"sim{n}" not in taken)
    place = DriveFolder(name)
    if place.exists():
        if place.is_alive():
            raise OpwatchError(
                f"drive {name} already exists: opwatch drive destroy {name}, or use another --name"
            )
        _remove_remains(place)
    place.create_folders()
    return place


def _build_server_arguments(wanted: DriveSpec) -> list[str]:
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
        # Only the server knows the sizes of a saved drive, so it checks the limit.
        bound = find_memory_limit(wanted)
        words += [] if bound is None else [f"memory-bytes={bound}"]
    return words + list(wanted.words)


def _make_drive(place: DriveFolder, wanted: DriveSpec) -> Record:
    state = str(wanted.state) if wanted.state else None
    pid = server.start_server(place, _build_server_arguments(wanted), state=wanted.state)
    place.write_record(Record(place.name, "", pid, state, wanted.no_data))
    return _attach_device(place, Record(place.name, "", pid, state, wanted.no_data))


def _attach_device(place: DriveFolder, record: Record) -> Record:
    """Attach a loop device to a drive and record it."""
    node, diskseq = make_node(place)
    record = replace(record, device=node, diskseq=diskseq)
    place.write_record(record)
    return record


def destroy_drive(name: str, *, save: bool = True) -> list[str]:
    """Destroy a drive, dead or alive, and return notes for the user.

    With `save` False, changes since the last save are lost.
    """
    require_root("drive destroy")
    with lock_drives():
        place = DriveFolder(name)
        if not place.exists():
            known = ", ".join(place.name for place in list_drives()) or "none"
            raise OpwatchError(f"unknown drive {name}; available: {known}")
        return _destroy_alive(place, save=save) if place.is_alive() else _remove_remains(place)


def _destroy_alive(place: DriveFolder, *, save: bool) -> list[str]:
    _require_no_users(place, _find_all_users(place).uses)
    record = place.read_record()
    state = record.state if record else None
    with open_server(place) as process:
        if process and process.is_stopped():
            if state and save:
                raise make_stopped_error(place, process.pid)
            return _destroy_stopped(place, process)
    claimed = [node for node in find_nodes(place) if is_in_use(node)]
    _require_no_users(place, [f"{node} is in use by another namespace" for node in claimed])
    if state and not save:
        detach_all(place)
        with open_server(place) as process:
            return [
                *(_destroy_stopped(place, process) if process else _remove_remains(place)),
                _describe_unsaved(place, state),
            ]
    if state and (reason := explain_unreachable(place, "drive destroy")):
        raise RefusedError(f"{reason}. {_describe_no_save(place, state)}")
    detach_all(place)
    if record and state:
        _save_drive(place, record)
    return _remove_drive(place, Users())


def _describe_unsaved(place: DriveFolder, state: str) -> str:
    """Return a sentence about the state of a drive that was not saved."""
    if Path(state).exists():
        return f"drive {place.name} was not saved: {state} has its last saved state"
    return f"drive {place.name} was not saved: {state} does not exist, and all data on it is lost"


def _describe_no_save(place: DriveFolder, state: str) -> str:
    """Return the command that destroys the drive without a save, and its cost."""
    lost = f"all data written since {state} was saved"
    if not Path(state).exists():
        lost = f"all data on it, because {state} does not exist"
    return f"opwatch drive destroy --no-save {place.name} discards {lost}"


def _require_no_users(place: DriveFolder, users: Sequence[str]) -> None:
    if users:
        raise RefusedError(f"drive {place.name} is in use: {'; '.join(users)}. Unmount it first")


def _destroy_stopped(place: DriveFolder, process: ServerProcess) -> list[str]:
    """End a stopped server.

    The connection is aborted first, because processes that wait for the server would keep it from ending.
    """
    abort_connection(find_mount_number(place.mount, read_own_mounts()))
    end_process(process, politely=False)
    return _remove_remains(place)


def _save_drive(place: DriveFolder, record: Record) -> None:
    """Save the drive after its device was detached. After a failure, attach a new device."""
    try:
        server.send_command(place, "save", _SAVE_TIMEOUT_S)
    except (OSError, OpwatchError) as error:
        if (
            isinstance(error, OSError)
            and error.errno in _SERVER_GONE_ERRORS
            and server.wait_for_end(place, _END_TIMEOUT_S)
        ):
            _remove_drive(place, Users())
            raise OpwatchError(
                f"its server ended while saving the drive to {record.state}: "
                f"{_describe_unsaved(place, record.state or '')}"
            ) from error
        why = error.strerror if isinstance(error, OSError) else str(error)
        record = _reattach_device(place, record)
        raise OpwatchError(
            f"drive {place.name} was not saved to {record.state}: {why}. It still exists as "
            f"{record.device}: fix that{_format_mkdir_hint(record)} and destroy it again, or "
            f"{_describe_no_save(place, record.state or '')}"
        ) from error


def _format_mkdir_hint(record: Record) -> str:
    folder = Path(record.state or "/").parent
    return "" if folder.is_dir() else f" (mkdir -p {shlex.quote(str(folder))})"


def _reattach_device(place: DriveFolder, record: Record) -> Record:
    """Attach a new device.

    The record has no device until the server answers, so the record never names another drive's device.
    """
    record = replace(record, device="", diskseq=None)
    place.write_record(record)
    return run_with_timeout(place, lambda: _attach_device(place, record), 10)


def _find_all_users(place: DriveFolder) -> Users:
    devices = Devices()
    users = [find_users(devices.resolve(node), devices) for node in find_nodes(place)]
    unseen = dict.fromkeys(sentence for one in users for sentence in one.unseen)
    return Users(tuple(use for one in users for use in one.uses), tuple(unseen))


def _remove_remains(place: DriveFolder) -> list[str]:
    """Remove the remains of a drive, in an order that works for every partial state."""
    users = _find_all_users(place)
    detach_all(place)
    return _remove_drive(place, users)


def _remove_drive(place: DriveFolder, users: Users) -> list[str]:
    """Unmount the drive, end its server and remove its files. Returns notes about devices still open."""
    left = find_nodes(place)
    if find_mount_number(place.mount, read_own_mounts()):
        try:
            run_tool(["umount", str(place.mount)])
        except OpwatchError:
            run_tool(["umount", "--lazy", str(place.mount)])
    if not server.wait_for_end(place, 0.5 if left else 10):
        _end_server(place)
    place.remove_files()
    notes = [f"{node} fails all I/O and disappears when it is closed" for node in left] + list(users.uses)
    # Some process has the device open, and need not be among the users found.
    if left and users.unseen:
        notes.append(f"it may have other users that opwatch cannot see: {'; '.join(users.unseen)}")
    return notes


def _end_server(place: DriveFolder) -> None:
    """End a server that survived the unmount: its device is still open, or the server was stopped."""
    with open_server(place) as process:
        if process is None:
            return
        if not end_process(process, politely=True):
            raise OpwatchError(
                f"drive {place.name}: its server (process {process.pid}) does not end, even after "
                f"SIGKILL: cat /proc/{process.pid}/stack shows where it waits"
            )


def detach_abandoned() -> list[str]:
    """Detach loop devices of drives without a folder. Returns a sentence for each device left attached."""
    notes = []
    with lock_drives():
        for device, unseen in find_abandoned(ROOT):
            if unseen:
                notes.append(
                    f"{device.node} has no drive behind it and was left alone: its drive may be mounted "
                    f"where opwatch cannot see it ({'; '.join(unseen)}); losetup --detach {device.node} "
                    "removes it"
                )
            else:
                device.detach()
    return notes


def inject_fault(place: DriveFolder, what: Fault) -> None:
    require_root("drive fault")
    try:
        server.send_command(place, f"fault {what.words}")
    except OSError as error:
        # A drive without timing cannot be slower than its model.
        why = "needs a drive with --timing real" if error.errno == errno.EOPNOTSUPP else error.strerror
        raise OpwatchError(f"drive {place.name}: fault {what.words}: {why}") from error


def find_drive(name: str | None) -> DriveFolder:
    """Return the drive of this name, or the only drive."""
    if name is not None:
        place = DriveFolder(name)
        if place.exists():
            return place
        known = ", ".join(place.name for place in list_drives()) or "none"
        raise OpwatchError(f"unknown drive {name}; available: {known}")
    drives = list_drives()
    if len(drives) == 1:
        return drives[0]
    if not drives:
        raise OpwatchError("no drive exists; opwatch drive create makes one")
    raise OpwatchError(f"give the name of a drive: {', '.join(place.name for place in drives)}")


def read_memory_bytes(record: Record) -> int | None:
    """Return the resident memory of a drive's server, or None if the process is gone."""
    try:
        status = read_text(Path(f"/proc/{record.pid}/status"))
    except OSError:
        return None
    resident = re.search(r"^VmRSS:\s*(\d+) kB", status, re.MULTILINE)
    return int(resident[1]) * 1024 if resident else None


def read_true_counters(place: DriveFolder, command: str = "drive info") -> dict[str, Any]:
    """Return the core's true counters.

    Raises OpwatchError if the drive is dead or out of reach. `command` is the caller's command, for the
    message.
    """
    if not place.is_alive():
        raise OpwatchError(
            f"drive {place.name} is dead: its server has ended. opwatch drive destroy {place.name} cleans up"
        )
    if reason := explain_unreachable(place, command):
        raise OpwatchError(reason)
    try:
        file = place.mount / "truth.json"
        document = parse_json(run_with_timeout(place, lambda: read_bytes(file), 10), str(file))
    except PermissionError as error:
        raise PermissionMissing(
            "drive info needs root, because only root can read the drive's files"
        ) from error
    except OSError as error:
        raise OpwatchError(f"drive {place.name}: {error}") from error
    return require_table(document, str(file))
