"""Read /sys/block/*/stat: the kernel's own counts, an independent check of the tracer."""

from __future__ import annotations

import time
from dataclasses import replace

from opwatch.errors import BadInput
from opwatch.foreign import parse_all_unsigned
from opwatch.host.device import BlockDevice, LiveAttribute
from opwatch.trace.stat import KernelTicks, StatSample

SECTOR = 512
# CLOCK_MONOTONIC_COARSE of Linux, which Python does not name.
_MONOTONIC_COARSE = 6
# Index of the in-flight count among the fields of a stat file.
IN_FLIGHT = 8


def decode_stat(text: str) -> tuple[dict[str, int], dict[str, int]]:
    """Return (requests, bytes) by group, without groups that the kernel does not have. Pure."""
    return _group_fields(_parse_fields(text))


def _parse_fields(text: str) -> list[int]:
    fields = parse_all_unsigned(text.split())
    if fields is None:
        raise BadInput(f"a stat file has a field that is not a number: {text[:200]!r}")
    if len(fields) < 11:
        raise BadInput(f"a stat file has at least 11 fields, not {len(fields)}")
    return fields


def _group_fields(fields: list[int]) -> tuple[dict[str, int], dict[str, int]]:
    requests = {"read": fields[0], "write": fields[4]}
    bytes_ = {"read": fields[2] * SECTOR, "write": fields[6] * SECTOR}
    if len(fields) >= 15:
        requests["discard"] = fields[11]
        bytes_["discard"] = fields[13] * SECTOR
    if len(fields) >= 17:
        requests["flush"] = fields[15]
    return requests, bytes_


def decode_ticks(fields: list[int], jiffy_ns: int) -> KernelTicks:
    """Return the times in the same fields. Pure."""
    groups = {"read": fields[3], "write": fields[7]}
    if len(fields) >= 15:
        groups["discard"] = fields[14]
    if len(fields) >= 17:
        groups["flush"] = fields[16]
    return KernelTicks(groups, fields[9], fields[10], jiffy_ns)


def drop_unmaintained(
    requests: dict[str, int], bytes_: dict[str, int]
) -> tuple[dict[str, int], dict[str, int]]:
    """Return the groups that a bio-based driver counts, assuming that a count of 0 is not maintained. Pure.

    Drivers differ: zram counts reads and writes but no discards, brd nothing at all.
    """
    kept = {group: count for group, count in requests.items() if count}
    return kept, {group: count for group, count in bytes_.items() if group in kept}


def explain_unverified(device: BlockDevice) -> str | None:
    """Return the reason why the kernel's statistics cannot check the tracer, or None."""
    if not device.disk.is_request_based:
        return "a bio-based driver keeps its own statistics"
    if device.disk.read_number("queue/iostats") == 0:
        return f"statistics are off: echo 1 > /sys/block/{device.disk.name}/queue/iostats"
    return None


def counts_refused_clones(device: BlockDevice) -> bool:
    """Return whether the kernel may count requests that the disk's driver never accepted.

    Request-based device mapper (multipath) sends clones to its paths. A busy path refuses a clone, and
    blk_insert_cloned_request() of newer kernels (seen on v6.1 and later) counts it as completed nevertheless,
    with no bytes. No tracepoint reports that.
    """
    holders = device.disk.sysfs / "holders"
    return any(
        (holders / name.replace("/", "!") / "dm").is_dir()
        and (holders / name.replace("/", "!") / "mq").is_dir()
        for name in device.disk.list_holders()
    )


def is_idle(device: BlockDevice) -> bool:
    """Return whether nothing is in flight according to the kernel. False if the kernel does not count."""
    return device.read_number("queue/iostats") == 1 and (
        device.read_attribute("inflight") or "1"
    ).split() == ["0", "0"]


class StatReader:
    """Stat file of one device. `reason` explains why it is unusable, else None.

    For a path of request-based device mapper, only bytes are returned.
    """

    def __init__(self, device: BlockDevice) -> None:
        self._requests = device.disk.is_request_based
        # Bio-based drivers count regardless of the iostats switch.
        self.reason = explain_unverified(device) if self._requests else None
        self._file = LiveAttribute(device.sysfs / "stat")
        self._has_clones = counts_refused_clones(device)
        self._switch = LiveAttribute(device.disk.sysfs / "queue" / "iostats")
        self._looks = False
        # The file often has not changed since the last reading.
        self._text = ""
        self._in_flight = 0
        self._groups: tuple[dict[str, int], dict[str, int]] = {}, {}
        self._fields: list[int] = []
        # A coarse clock advances once per jiffy.
        self._jiffy_ns = round(time.clock_getres(_MONOTONIC_COARSE) * 1e9)

    def read_with_ticks(self) -> StatSample | None:
        """Return the counters with their times."""
        sample = self.read_stats()
        return replace(sample, ticks=decode_ticks(self._fields, self._jiffy_ns)) if sample else None

    def read_stats(self) -> StatSample | None:
        """Return the current counters, or None if meaningless or if the device is gone."""
        # Checking every second reading suffices, because a sample lies between two readings.
        self._looks = not self._looks
        if (
            self._looks
            and self._requests
            and not self.reason
            and (self._switch.read_text() or "").strip() == "0"
        ):
            # The reason is permanent: after re-enabling, the counts have a gap.
            self.reason = "statistics were switched off during the watch"
        if self.reason:
            return None
        begin = time.monotonic_ns()
        text = self._file.read_text()
        end = time.monotonic_ns()
        if not text:
            return None
        if text != self._text:
            self._decode_text(text)
        return StatSample(begin, end, *self._groups, self._in_flight)

    def _decode_text(self, text: str) -> None:
        fields = _parse_fields(text)
        groups = _group_fields(fields)
        if self._has_clones:
            groups = {}, groups[1]
        self._groups = groups if self._requests else drop_unmaintained(*groups)
        self._text, self._fields, self._in_flight = text, fields, fields[IN_FLIGHT]

    def close(self) -> None:
        self._file.close()
        self._switch.close()
