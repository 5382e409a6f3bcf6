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
from opwatch.host.forest import Node, forest
from opwatch.host.usage import Usage, read_usage
from opwatch.sinks.devices import detail_lines, document, table
from opwatch.sinks.terminal import Writer

# Device kinds that often exist without a medium.
_OFTEN_EMPTY = ("loop", "nbd", "ram", "zram", "rbd", "sr", "fd")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "opwatch devices [-a] [-v] [--json] [NAME...]"
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help="show this device in full: a name, a node or a link",
    )
    parser.add_argument(
        "-a", "--all", action="store_true", help="list empty loop, nbd, zram, sr, ... devices too"
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="show every device in full")
    parser.add_argument("--json", action="store_true", help='one document, "schema":"opwatch/1"')


def _is_empty(device: BlockDevice) -> bool:
    # List a drive without capacity after a failure, but not a loop device without a file.
    return device.number("size") == 0 and device.kind() in _OFTEN_EMPTY


def _without_empty(nodes: Sequence[Node]) -> list[Node]:
    return [
        replace(node, children=tuple(_without_empty(node.children)))
        for node in nodes
        if not _is_empty(node.device)
    ]


def _each_once(nodes: Sequence[Node]) -> Iterator[BlockDevice]:
    for node in nodes:
        if not node.again:
            yield node.device
            yield from _each_once(node.children)


def _resolved(devices: Devices, names: Sequence[str]) -> list[Node]:
    """Return the named devices, each once, in the given order."""
    nodes = {device.name: Node(device) for device in map(devices.resolve, names)}
    return list(nodes.values())


def show(devices: Devices, usage: Usage, args: argparse.Namespace, stream: TextIO) -> int:
    """Write the requested devices to the stream; return the exit status."""
    nodes = _resolved(devices, args.names) if args.names else forest(devices)
    if not nodes:
        raise Unsupported("there is no block device in /sys/block; is sysfs mounted?")
    if not args.names and not args.all:
        nodes = _without_empty(nodes)
    details = {device.name: read_details(devices, device, usage) for device in _each_once(nodes)}
    writer = Writer(stream)
    if args.json:
        listed = [document(detail) for detail in details.values()]
        writer.json({"schema": SCHEMA, "devices": listed}, indent=2)
        return 0
    if args.names or args.verbose:
        lines = [line for detail in details.values() for line in ("", *detail_lines(detail))][1:]
    else:
        lines = table(nodes, details, writer.width)
    writer.lines(lines)
    return 0


def run(args: argparse.Namespace) -> int:
    return show(Devices(), read_usage(), args, sys.stdout)
