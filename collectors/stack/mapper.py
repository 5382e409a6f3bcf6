"""Read device mapper tables and status lines by ioctl, without a process for each."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from opwatch.errors import OpwatchError
from opwatch.trim.stack import dmioctl
from opwatch.trim.stack.dmtable import DmTarget

CONTROL = Path("/dev/mapper/control")
_ROOM, _MAX_ROOM = 1 << 14, 1 << 24


class Mapper:
    """Tables and status lines of the kernel. Raises OpwatchError with the reason if not readable."""

    def read_table(self, dev: tuple[int, int]) -> list[DmTarget]:
        return self._read_targets(dev, table=True)

    def read_status(self, dev: tuple[int, int]) -> list[DmTarget]:
        return self._read_targets(dev, table=False)

    def _read_targets(self, dev: tuple[int, int], *, table: bool) -> list[DmTarget]:
        if os.geteuid() != 0:
            raise OpwatchError("reading device-mapper tables requires root")
        try:
            control = os.open(CONTROL, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise OpwatchError(f"{CONTROL}: {error.strerror}") from error
        try:
            return _request_targets(control, dev, table=table)
        except OSError as error:
            raise OpwatchError(f"device mapper, {dev[0]}:{dev[1]}: {error.strerror}") from error
        finally:
            os.close(control)


def _request_targets(control: int, dev: tuple[int, int], *, table: bool) -> list[DmTarget]:
    room = _ROOM
    while room <= _MAX_ROOM:
        buffer = dmioctl.encode_request(dev, table=table, room=room)
        fcntl.ioctl(control, dmioctl.TABLE_STATUS, buffer)
        targets = dmioctl.decode_targets(bytes(buffer))
        if targets is not None:
            return targets
        room *= 4
    raise OpwatchError(f"device mapper's table of {dev[0]}:{dev[1]} is larger than {_MAX_ROOM} bytes")
