"""Arguments of published experiments: the experiment, its changes, and loads named after other tools."""

from __future__ import annotations

import argparse

from opwatch.errors import UsageError
from opwatch.load.plain import PlainLoad
from opwatch.load.sysbench import LOADERS
from opwatch.load.workload import parse_plain_loads, require_single_load
from opwatch.quantities import parse_count, parse_size
from opwatch.scenarios.mixed import MixLoad
from opwatch.scenarios.scenario import Scenario, ScenarioKind, list_scenarios, load_scenario
from opwatch.times import parse_time
from opwatch.tools.arguments import Once


def add_scenario_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--scenario",
        action=Once,
        metavar="NAME",
        help=f"repeat a published experiment: {', '.join(list_scenarios())}",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="change a number of the scenario (opwatch sweep list has the keys); may be given several times",
    )
    parser.add_argument(
        "--on",
        action="append",
        default=[],
        metavar="NAME=DIR",
        help="for scenarios mixed-io and untrimmed-cliff: a folder to load, under a name of yours; existing "
        "files are not touched",
    )


def add_loader_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--load",
        action=Once,
        choices=LOADERS,
        help="with --on: the load generator (fio)",
    )


def read_scenario(args: argparse.Namespace) -> Scenario:
    """Return the experiment of `--scenario`, with the changes of `--set`."""
    return load_scenario(args.scenario).with_setup(parse_changes(args.set))


def parse_changes(words: list[str]) -> dict[str, float]:
    """Return the changes by key."""
    changes: dict[str, float] = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals:
            raise UsageError(f"--set {word}: write KEY=VALUE")
        try:
            changes[key] = _parse_value(key, text)
        except UsageError as error:
            raise UsageError(f"--set {word}: {error}") from None
    return changes


def _parse_value(key: str, text: str) -> float:
    if key.endswith("_bytes"):
        return parse_size(text)
    return parse_time(text) if key.endswith("_s") else parse_count(text)


def expand_workload(args: argparse.Namespace) -> argparse.Namespace:
    """Return the arguments with a `--workload` of one size expanded into single options.

    Options that were given explicitly take precedence. Loads on filesystems stay unparsed until the
    filesystems are inspected, and other workloads of a sweep until its model is known.
    """
    if args.workload is None or (args.dev is not None and args.scenario is None) or _is_mixed(args):
        return args
    if args.scenario is None:
        plain = parse_plain_loads(args.workload)
        if len(plain) != 1 or plain[0].seekpct != 100 or plain[0].rdpct == 100:
            return args
    load = require_single_load(_parse_plain_loads(args.workload), args.workload)
    if load.seekpct != 100:
        raise UsageError(
            f"--workload {args.workload}: {load.seekpct} % of its offsets are random, but a model supports "
            "only 100 %; scenario mixed-io and sweeps without --scenario accept it"
        )
    if args.scenario is not None and load.rdpct:
        raise UsageError(
            f"--workload {args.workload}: {load.rdpct} % of its I/Os are reads, but scenario "
            f"{args.scenario} sets reads and writes itself: name a load that only writes, for its size "
            "and depth"
        )
    reads = load.rdpct / 100 if load.rdpct else None
    given = {
        "bs": args.bs or load.xfersize,
        "depth": args.depth or load.threads,
        "reads": args.reads or reads,
    }
    return argparse.Namespace(**{**vars(args), **given, "workload": None})


def parse_mix_workloads(words: str) -> tuple[MixLoad, ...]:
    """Return the named loads on filesystems, which replace the published ones."""
    return tuple(
        MixLoad(load.name, load.rdpct, load.seekpct, load.xfersize, load.threads)
        for load in _parse_plain_loads(words)
    )


def _is_mixed(args: argparse.Namespace) -> bool:
    return args.scenario is not None and load_scenario(args.scenario).kind is ScenarioKind.MIXED


def _parse_plain_loads(words: str) -> list[PlainLoad]:
    loads = parse_plain_loads(words)
    if not loads:
        raise UsageError(
            f"--workload: {words!r:.60} works only without --scenario; a scenario takes a name of sysbench "
            "(rndwr), SIZE-N-random, vdbench's rdpct=75,seekpct=100,xfersize=8k,threads=16, or a file "
            ".vdb or .icf"
        )
    return loads
