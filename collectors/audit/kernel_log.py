"""Read kernel log messages about the devices of a stack from a point in time."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

from opwatch.host.device import Devices
from opwatch.trim.audit.kernel_log import KernelLog, find_messages, parse_records
from opwatch.trim.layers.dm import Dm
from opwatch.trim.layers.kinds import find_kind
from opwatch.trim.stack.layers import Kind, Stack

# Driver names for a disk in kernel messages, found in its sysfs path.
_ADDRESS = re.compile(r"ata\d+|nvme\d+|\d+:\d+:\d+:\d+")


def collect_kernel_names(stack: Stack) -> set[str]:
    """Return the kernel's names for the devices of a stack, including their ports and controllers."""
    devices, names = Devices(), {layer.device for layer in stack.layers}
    for layer in stack.layers:
        if layer.kind is Kind.DISK and (device := devices.by_name(layer.device)):
            names |= {part for part in device.sysfs.resolve().parts if _ADDRESS.fullmatch(part)}
        if isinstance(find_kind(layer), Dm):
            names.add(layer.dev)  # dm targets use the device number in messages
    return names


class LogTail:
    """Kernel log from construction on. An unreadable log yields no messages, with the reason."""

    def __init__(self, stack: Stack, path: Path = Path("/dev/kmsg")) -> None:
        self._stack = stack
        self._descriptor = -1
        self._unknown: str | None = None
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.lseek(self._descriptor, 0, os.SEEK_END)
        except OSError as error:
            self._unknown = f"{path}: {error.strerror}"

    def _read_records(self) -> str:
        text = []
        while True:
            try:
                record = os.read(self._descriptor, 8192)
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno != errno.EPIPE:  # EPIPE: overwritten before the read; continue behind the gap
                    self._unknown = f"kernel log: {error.strerror}"
                    break
                self._unknown = "messages were overwritten before opwatch read them"
                continue
            if not record:
                break
            text.append(record.decode(errors="replace"))
        return "".join(text)

    def read_log(self) -> KernelLog:
        """Return the messages since construction. Can be called once."""
        if self._descriptor < 0:
            return KernelLog((), self._unknown)
        try:
            text = self._read_records()
        finally:
            os.close(self._descriptor)
            self._descriptor = -1
        devs = {layer.dev for layer in self._stack.layers}
        return KernelLog(
            tuple(find_messages(parse_records(text), collect_kernel_names(self._stack), devs)), self._unknown
        )
