"""Find hosts that have registered with a SCSI disk or hold a reservation."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

from opwatch.collectors.space.device_handle import open_device
from opwatch.collectors.space.scsi import ScsiRefusal, ask_scsi
from opwatch.errors import BadInput, OpwatchError
from opwatch.guard import reservations
from opwatch.host.device import BlockDevice

Ask = Callable[[int, bytes, int], bytes]


def find_registrants(disk: BlockDevice, ask: Ask = ask_scsi) -> Iterator[str]:
    """Yield the possible users of a SCSI disk, as beginnings of sentences; nothing if the disk does not
    support reservations. A failed query counts as well."""
    try:
        descriptor = open_device(disk)
    except OpwatchError as error:
        yield f"cannot query its reservations ({error})"
        return
    try:
        yield from _describe_reservations(descriptor, ask)
    except ScsiRefusal as error:
        if not error.is_unknown:
            yield f"its reservations are unknown ({error})"
    except (BadInput, OSError) as error:
        yield f"its reservations are unknown ({error})"
    finally:
        os.close(descriptor)


def _describe_reservations(descriptor: int, ask: Ask) -> Iterator[str]:
    size = reservations.ANSWER_BYTES
    reservation = reservations.decode_reservation(
        ask(descriptor, reservations.build_reservation_command(), size)
    )
    if reservation:
        yield f"it has a persistent reservation ({reservation.kind}, key {reservation.key:016X}h)"
    keys = reservations.decode_keys(ask(descriptor, reservations.build_keys_command(), size))
    if keys:
        listed = ", ".join(f"{key:X}h" for key in keys[:4])
        more = f" and {len(keys) - 4} more" if len(keys) > 4 else ""
        yield f"it has {len(keys)} registered reservation keys ({listed}{more})"
