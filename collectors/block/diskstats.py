"""/sys/block/*/stat: the kernel's own counts, an independent witness of what the tracer saw."""

from __future__ import annotations

import time

from opwatch.errors import BadInput
from opwatch.foreign import numbers
from opwatch.frozen import replace
from opwatch.host.device import BlockDevice, LiveAttribute
from opwatch.trace.stat import KernelTicks, StatSample

SECTOR = 512
# Of Linux, which Python has no name for.
_MONOTONIC_COARSE = 6
# The place of this count among the fields of a stat file.
IN_FLIGHT = 8


def decode_stat(text: str) -> tuple[dict[str, int], dict[str, int]]:
    """(requests, bytes) by group. Pure. Groups the kernel does not have are left out."""
    return _groups(_fields(text))


def _fields(text: str) -> list[int]:
    fields = numbers(text.split())
    if fields is None:
        raise BadInput(f"a stat file with what is no number: {text[:200]!r}")
    if len(fields) < 11:
        raise BadInput(f"a stat file has at least 11 fields, not {len(fields)}")
    return fields


def _groups(fields: list[int]) -> tuple[dict[str, int], dict[str, int]]:
    requests = {"read": fields[0], "write": fields[4]}
    bytes_ = {"read": fields[2] * SECTOR, "write": fields[6] * SECTOR}
    if len(fields) >= 15:
        requests["discard"] = fields[11]
        bytes_["discard"] = fields[13] * SECTOR
    if len(fields) >= 17:
        requests["flush"] = fields[15]
    return requests, bytes_


def ticks_of(fields: list[int], jiffy_ns: int) -> KernelTicks:
    """The times among the same fields. Pure."""
    groups = {"read": fields[3], "write": fields[7]}
    if len(fields) >= 15:
        groups["discard"] = fields[14]
    if len(fields) >= 17:
        groups["flush"] = fields[16]
    return KernelTicks(groups, fields[9], fields[10], jiffy_ns)


def without_what_is_not_kept(
    requests: dict[str, int], bytes_: dict[str, int]
) -> tuple[dict[str, int], dict[str, int]]:
    """What a driver of bios counted. Each counts what it cares for: zram reads and writes but no discards,
    brd nothing at all. What it never counted, it does not keep. Pure."""
    kept = {group: count for group, count in requests.items() if count}
    return kept, {group: count for group, count in bytes_.items() if group in kept}


def no_witness(device: BlockDevice) -> str | None:
    """Why the kernel's statistics of a device cannot be held against the tracer's, None when they can."""
    if not device.disk.is_request_based:
        return "a bio-based driver keeps its own statistics"
    if device.disk.number("queue/iostats") == 0:
        return f"statistics are off: echo 1 > /sys/block/{device.disk.name}/queue/iostats"
    return None


def counts_refused_clones(device: BlockDevice) -> bool:
    """Whether the kernel may count requests of a disk that its driver never took.

    Request-based device mapper (multipath) sends clones to its paths. A busy path refuses a clone, and
    blk_insert_cloned_request() of newer kernels (seen on v6.1 and later) counts it as completed nevertheless,
    with no bytes. No tracepoint reports that.
    """
    holders = device.disk.sysfs / "holders"
    return any(
        (holders / name.replace("/", "!") / "dm").is_dir()
        and (holders / name.replace("/", "!") / "mq").is_dir()
        for name in device.disk.holders()
    )


def is_idle(device: BlockDevice) -> bool:
    """Whether the kernel says that nothing is in flight. False as well where it does not count."""
    return device.number("queue/iostats") == 1 and (device.attribute("inflight") or "1").split() == ["0", "0"]


class StatReader:
    """The stat file of one device. `reason` says why there is nothing to read, None when there is. Only bytes
    are read of a path of request-based device mapper."""

    def __init__(self, device: BlockDevice) -> None:
        self._requests = device.disk.is_request_based
        # A driver of bios counts whatever that switch says.
        self.reason = no_witness(device) if self._requests else None
        self._file = LiveAttribute(device.sysfs / "stat")
        self._has_clones = counts_refused_clones(device)
        self._switch = LiveAttribute(device.disk.sysfs / "queue" / "iostats")
        self._looks = False
        # A reading often tells what the one before it told.
        self._text = ""
        self._in_flight = 0
        self._groups: tuple[dict[str, int], dict[str, int]] = {}, {}
        self._fields: list[int] = []
        # A coarse clock goes on once a jiffy.
        self._jiffy_ns = round(time.clock_getres(_MONOTONIC_COARSE) * 1e9)

    def read_with_ticks(self) -> StatSample | None:
        """The counters with their times."""
        sample = self.read()
        return replace(sample, ticks=ticks_of(self._fields, self._jiffy_ns)) if sample else None

    def read(self) -> StatSample | None:
        """The counters now; None when they mean nothing or the device is gone."""
        # Every other time is enough: a sample lies between two readings.
        self._looks = not self._looks
        if self._looks and self._requests and not self.reason and (self._switch.read() or "").strip() == "0":
            # The reason stays for good: what is counted after they are switched on again has a hole in it.
            self.reason = "statistics were switched off meanwhile"
        if self.reason:
            return None
        begin = time.monotonic_ns()
        text = self._file.read()
        end = time.monotonic_ns()
        if not text:
            return None
        if text != self._text:
            self._decode(text)
        return StatSample(begin, end, *self._groups, self._in_flight)

    def _decode(self, text: str) -> None:
        fields = _fields(text)
        groups = _groups(fields)
        if self._has_clones:
            groups = {}, groups[1]
        self._groups = groups if self._requests else without_what_is_not_kept(*groups)
        self._text, self._fields, self._in_flight = text, fields, fields[IN_FLIGHT]

    def close(self) -> None:
        self._file.close()
        self._switch.close()
