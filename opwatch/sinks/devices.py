"""Block devices as a table or in full for people, and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from opwatch import units
from opwatch.host.details import Details
from opwatch.host.forest import Node

HEADER = ("NAME", "KIND", "SIZE", "MED", "DISCARD", "QUEUES", "SCHED", "CACHE", "MODEL, USE")
_RIGHT = ("SIZE",)
_MEMORY = ("zram", "ram", "pmem")


def build_device_document(details: Details) -> dict[str, Any]:
    """Return one device as JSON. Unknown values are null, sizes are in bytes."""
    device = asdict(details)
    device |= device.pop("identity")
    tracing = device.pop("tracing")
    tracing["leaves"] = [{"device": name, "level": level} for name, level in tracing["leaves"]]
    columns = ("point", "filesystem", "source")
    device["mounts"] = [{key: mount[key] for key in columns} for mount in device["mounts"]]
    return device | {"limits": device.pop("limits"), "queue": device.pop("queue"), "traced": tracing}


def _format_media(details: Details) -> str:
    if details.kind in _MEMORY:
        return "ram"
    rotational = details.queue.rotational
    return "-" if rotational is None else "rot" if rotational else "ssd"


def _format_discard(details: Details) -> str:
    limits = details.limits
    if not limits.discard_max_bytes:
        return "-" if limits.discard_max_bytes is None else "no"
    most, granularity = limits.discard_max_bytes, limits.discard_granularity_bytes
    return f"{units.format_binary(most, '')}/{units.format_binary(granularity, '')}"


def _format_queues(details: Details) -> str:
    queue = details.queue
    if not queue.hardware_queues:
        return "-" if queue.hardware_queues is None else "bio"
    return f"{queue.hardware_queues}x{'-' if queue.tags_per_queue is None else queue.tags_per_queue}"


def _format_use(details: Details) -> str:
    """Return model, dm name or backing file, and the device's use."""
    words = [] if details.disk else [details.identity.model or details.label or details.backing_file or ""]
    if details.mounts:
        words.append(f"on {details.mounts[0].point}")
    elif details.swap:
        words.append("swap")
    elif details.member_of:
        words.append(details.member_of)
    return " ".join(word for word in words if word)


def _build_cells(details: Details, again: bool) -> tuple[str, ...]:
    kind = "part" if details.kind == "partition" else details.kind
    size = "-" if details.size_bytes is None else units.format_capacity(details.size_bytes)
    if again:
        return kind, size, "", "", "", "", "", "(above)"
    if details.disk:
        # The blank fields of a partition are the same as its disk's.
        return kind, size, "", "", "", "", "", _format_use(details)
    cache = (details.queue.write_cache or "-").removeprefix("write ").replace("through", "thru")
    scheduler = (details.queue.scheduler or "-").removeprefix("mq-")
    return (
        *(
            kind,
            size,
            _format_media(details),
            _format_discard(details),
            _format_queues(details),
            scheduler,
            cache,
        ),
        _format_use(details),
    )


def _build_rows(
    nodes: Sequence[Node], details: Mapping[str, Details], above: tuple[str, str] | None
) -> list[tuple[str, ...]]:
    """Return the table rows of a tree. `above` is None for roots; its second part is the parent's tree
    prefix."""
    rows = []
    for index, node in enumerate(nodes):
        last = index == len(nodes) - 1
        bend = "" if above is None else above[1] + ("└─" if last else "├─")
        rows.append((bend + node.device.name, *_build_cells(details[node.device.name], node.again)))
        below = ("", "" if above is None else above[1] + ("  " if last else "│ "))
        rows += _build_rows(node.children, details, below)
    return rows


def format_device_table(
    nodes: Sequence[Node], details: Mapping[str, Details], width: int | None
) -> list[str]:
    """Return the forest with one line per device. Lines longer than the width are cut and marked."""
    rows = [HEADER, *_build_rows(nodes, details, None)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADER) - 1)]
    lines = []
    for row in rows:
        cells = [
            f"{cell:>{w}}" if name in _RIGHT else f"{cell:<{w}}"
            for name, cell, w in zip(HEADER, row, widths, strict=False)
        ]
        line = " ".join([*cells, row[-1]]).rstrip()
        lines.append(line if width is None or len(line) <= width else line[: width - 1] + "…")
    return lines


def _format_flag(value: bool | None) -> str:
    return "-" if value is None else "yes" if value else "no"


def _format_number(value: int | None) -> str:
    return "-" if value is None else str(value)


def _format_bytes(value: int | None) -> str:
    if value is None:
        return "-"
    return f"{value} bytes ({units.format_binary(value)})" if value >= 1024 else f"{value} bytes"


def _format_limit(value: int | None) -> str:
    """Return bytes as text. The kernel uses 0 for a missing limit or an unsupported operation."""
    return "none" if value == 0 else _format_bytes(value)


def _join_names(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"


def _format_tracing(details: Details) -> str:
    level, leaves = details.tracing.level, details.tracing.leaves
    if level is None:
        return (
            "not traced: it has no medium" if details.size_bytes == 0 else "not traced: its size is unknown"
        )
    if [name for name, _ in leaves] != [details.name]:
        by_level = {what: [name for name, other in leaves if other == what] for _, what in leaves}
        return ", ".join(f"{what} on {' and '.join(names)}" for what, names in by_level.items())
    if details.disk:
        return f"{level} on {details.disk}, sectors {details.first_sector} to {details.last_sector}"
    return level if level == "requests" else "bios: its driver is bio-based"


def _describe_discard(details: Details) -> str:
    most, hardware = details.limits.discard_max_bytes, details.limits.discard_max_hw_bytes
    if most is None:
        return "-"
    if most:
        return "yes"
    return f"no: switched off; the drive supports {_format_bytes(hardware)}" if hardware else "no"


def _build_place_rows(details: Details) -> list[tuple[str, str]]:
    """Return the rows about the device's identity and place. Rows that cannot apply are left out."""
    uses = [f"{mount.point} ({mount.filesystem})" for mount in details.mounts]
    uses += ["swap"] * details.swap + ([details.member_of] if details.member_of else [])
    rows = [
        ("device number", details.dev or "none: it has no device node"),
        ("disk sequence", _format_number(details.diskseq)),
        ("size", "-" if details.size_bytes is None else f"{details.size_bytes} bytes"),
    ]
    if details.label:
        rows.append(("device mapper name", details.label))
    if details.kind == "loop":
        rows.append(("backing file", details.backing_file or "none"))
    if details.disk:
        rows.append(("partition of", details.disk))
    else:
        rows.append(("partitions", _join_names(details.partitions)))
    if details.paths:
        rows.append(("paths", _join_names(details.paths)))
    return [
        *rows,
        ("lower devices", _join_names(details.stands_on)),
        ("holders", _join_names(details.holders)),
        ("used as", _join_names(uses)),
        ("traced as", _format_tracing(details)),
    ]


def _build_drive_rows(details: Details) -> list[tuple[str, str]]:
    identity = details.identity
    drivers = f" ({', '.join(identity.drivers)})" if identity.drivers else ""
    return [
        ("model", identity.model or "-"),
        ("vendor", identity.vendor or "-"),
        ("serial", identity.serial or "-"),
        ("firmware", identity.firmware or "-"),
        ("wwid", identity.wwid or "-"),
        ("transport", (identity.transport or "-") + drivers),
        ("rotational", _format_flag(details.queue.rotational)),
        ("read-only", _format_flag(details.read_only)),
        ("removable", _format_flag(details.removable)),
    ]


def _build_limit_rows(details: Details) -> list[tuple[str, str]]:
    limits = details.limits
    return [
        ("logical block", _format_bytes(limits.logical_block_bytes)),
        ("physical block", _format_bytes(limits.physical_block_bytes)),
        ("minimum I/O", _format_bytes(limits.minimum_io_bytes)),
        ("optimal I/O", _format_limit(limits.optimal_io_bytes)),
        ("largest I/O", _format_bytes(limits.max_io_bytes)),
        ("  by hardware", _format_bytes(limits.max_hw_io_bytes)),
        ("segments", _format_number(limits.max_segments)),
        ("chunk", _format_limit(limits.chunk_bytes)),
        ("read-ahead", _format_bytes(limits.read_ahead_bytes)),
        ("discard", _describe_discard(details)),
        ("  largest", _format_bytes(limits.discard_max_bytes)),
        ("  by hardware", _format_bytes(limits.discard_max_hw_bytes)),
        ("  granularity", _format_bytes(limits.discard_granularity_bytes)),
        ("  alignment", _format_bytes(limits.discard_alignment_bytes)),
        ("  segments", _format_number(limits.max_discard_segments)),
        ("largest write-zeroes", _format_limit(limits.write_zeroes_max_bytes)),
    ]


def _build_queue_rows(details: Details) -> list[tuple[str, str]]:
    queue = details.queue
    choices = [name for name in queue.schedulers if name != queue.scheduler]
    others = f" (or {', '.join(choices)})" if choices else ""
    wbt = "-" if queue.wbt_lat_us is None else f"{queue.wbt_lat_us} us" if queue.wbt_lat_us else "off"
    hardware = (
        "none: its driver is bio-based"
        if queue.hardware_queues == 0
        else _format_number(queue.hardware_queues)
    )
    return [
        ("hardware queues", hardware),
        ("tags per queue", _format_number(queue.tags_per_queue)),
        ("requests per queue", _format_number(queue.nr_requests)),
        ("scheduler", (queue.scheduler or "-") + others),
        ("write cache", queue.write_cache or "-"),
        ("FUA", _format_flag(queue.fua)),
        ("write-back throttling", wbt),
        ("statistics", _format_flag(queue.iostats)),
        ("polling", _format_flag(queue.io_poll)),
        ("zoned", queue.zoned or "-"),
    ]


def format_device(details: Details) -> list[str]:
    """Return one device in full."""
    size = "size unknown" if details.size_bytes is None else units.format_capacity(details.size_bytes)
    of = f" (of {details.disk})" if details.disk else ""
    lines = [f"{details.name}: {details.kind}, {size}"]
    for title, rows in (
        (None, _build_place_rows(details)),
        (f"drive{of}", _build_drive_rows(details)),
        (f"limits{of}", _build_limit_rows(details)),
        (f"queue{of}", _build_queue_rows(details)),
    ):
        if title:
            lines.append(f"  {title}")
        lines += [f"    {name:<22}{value}" for name, value in rows]
    return lines
