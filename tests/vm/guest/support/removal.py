"""Remove disks and CPUs while they are in use."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterator
from pathlib import Path

from tests.vm.guest.support.shell import write_attribute
from tests.vm.guest.support.sysfs import SYS_BLOCK, wait_for


def _find_monitor_port() -> Path:
    for port in Path("/sys/class/virtio-ports").iterdir():
        if (port / "name").read_text().strip() == "opwatch.qmp":
            return Path("/dev") / port.name
    raise LookupError("the guest has no port to QEMU's monitor")


def run_monitor_commands(*commands: tuple[str, dict[str, object]]) -> list[object]:
    """Send commands to QEMU's monitor and return the answers. Allows one caller at a time."""
    answers = []
    with _find_monitor_port().open("r+b", buffering=0) as port:
        for command, arguments in (("qmp_capabilities", {}), *commands):
            request = {"execute": command, "arguments": arguments}
            port.write(json.dumps(request).encode() + b"\n")
            answers.append(_read_answer(port, command))
    return answers[1:]


def _read_answer(port: io.RawIOBase, command: str) -> object:
    line = b""
    while True:
        byte = port.read(1) or b""
        line += byte
        if byte != b"\n":
            continue
        answer = json.loads(line)
        line = b""
        if "error" in answer and command != "qmp_capabilities":
            raise RuntimeError(f"{command}: {answer['error']}")
        if "return" in answer or "error" in answer:
            return answer.get("return")


def unplug_device(device_id: str, disk: str, timeout_s: float = 180.0) -> None:
    """Unplug an emulated device by its id in devices.toml; return when its disk has gone."""
    run_monitor_commands(("device_del", {"id": device_id}))
    wait_for(f"removal of {disk}", lambda: not (SYS_BLOCK / disk).exists(), timeout_s)


def remove_from_pci(disk: str) -> None:
    """Remove a disk's PCI device from the kernel's view; the emulated hardware stays."""
    path = (SYS_BLOCK / disk / "device").resolve()
    slots = [p for p in path.parents if (p / "remove").exists() and (p / "vendor").exists()]
    if not slots:
        raise LookupError(f"{disk} hangs on no PCI device")
    write_attribute(slots[0] / "remove", 1)


def delete_scsi(disk: str) -> None:
    """Delete a SCSI disk."""
    write_attribute(SYS_BLOCK / disk / "device/delete", 1)


@contextlib.contextmanager
def take_cpu_offline(cpu: int) -> Iterator[None]:
    """Take a CPU offline for the duration."""
    online = Path(f"/sys/devices/system/cpu/cpu{cpu}/online")
    write_attribute(online, 0)
    try:
        yield
    finally:
        write_attribute(online, 1)
