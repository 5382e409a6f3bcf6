"""`opwatch devices`: every block device as a tree, or some of them in full."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TextIO

from opwatch import SCHEMA
from opwatch.errors import Unsupported
from opwatch.host.details import read_details
from opwatch.host.device import BlockDevice, Devices
from opwatch.host.forest import Node, build_forest
from opwatch.host.usage import Usage, read_usage
from opwatch.sinks.devices import build_device_document, format_device, format_device_table
from opwatch.sinks.terminal import Writer

# Device kinds that often exist without a medium.
_OFTEN_EMPTY = ("loop", "nbd", "ram", "zram", "rbd", "sr", "fd")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "opwatch devices [-a] [-v] [--json] [NAME...]"
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help="show this device in full (a name, node or link)",
    )
    parser.add_argument(
        "-a", "--all", action="store_true", help="also list empty loop, nbd, zram, sr, ... devices"
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="show every device in full")
    parser.add_argument("--json", action="store_true", help='print one JSON document, "schema":"opwatch/1"')


def _is_empty(device: BlockDevice) -> bool:
    # List a drive without capacity after a failure, but not a loop device without a file.
    return device.read_number("size") == 0 and device.read_kind() in _OFTEN_EMPTY


def _drop_empty(nodes: Sequence[Node]) -> list[Node]:
    return [
        replace(node, children=tuple(_drop_empty(node.children)))
        for node in nodes
        if not _is_empty(node.device)
    ]


def _list_unique(nodes: Sequence[Node]) -> Iterator[BlockDevice]:
    for node in nodes:
        if not node.again:
            yield node.device
            yield from _list_unique(node.children)


def _resolve_names(devices: Devices, names: Sequence[str]) -> list[Node]:
    """Return the named devices, each once, in the given order."""
    nodes = {device.name: Node(device) for device in map(devices.resolve, names)}
    return list(nodes.values())


def show_devices(devices: Devices, usage: Usage, args: argparse.Namespace, stream: TextIO) -> int:
    """Write the requested devices to the stream; return the exit status."""
    nodes = _resolve_names(devices, args.names) if args.names else build_forest(devices)
    if not nodes:
        raise Unsupported("there is no block device in /sys/block; is sysfs mounted?")
    if not args.names and not args.all:
        nodes = _drop_empty(nodes)
    details = {device.name: read_details(devices, device, usage) for device in _list_unique(nodes)}
    writer = Writer(stream)
    if args.json:
        listed = [build_device_document(detail) for detail in details.values()]
        writer.write_json({"schema": SCHEMA, "devices": listed}, indent=2)
        return 0
    if args.names or args.verbose:
        lines = [line for detail in details.values() for line in ("", *format_device(detail))][1:]
    else:
        lines = format_device_table(nodes, details, writer.width)
    writer.write_lines(lines)
    return 0


def run(args: argparse.Namespace) -> int:
    return show_devices(Devices(), read_usage(), args, sys.stdout)
