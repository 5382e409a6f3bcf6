"""`--workload` for a model or for filesystems, in the formats of other tools."""

from __future__ import annotations

import argparse

from opwatch.errors import UsageError
from opwatch.load.plain import PlainLoad
from opwatch.load.workload import parse_plain_loads, require_single_load
from opwatch.scenarios.mixed import MixLoad
from opwatch.scenarios.scenario import ScenarioKind, load_scenario


def expand_workload(args: argparse.Namespace) -> argparse.Namespace:
    """Return the arguments with a model's `--workload` expanded into single options.

    Options that were given explicitly take precedence. Loads on filesystems stay unparsed until the
    filesystems are inspected.
    """
    if args.workload is None or (args.dev is not None and args.scenario is None) or _is_mixed(args):
        return args
    load = require_single_load(_parse_plain_loads(args.workload), args.workload)
    if load.seekpct != 100:
        raise UsageError(
            f"--workload {args.workload}: {load.seekpct} % of its offsets are random, but a model supports "
            "only 100 %; scenario mixed-io and sweeps of a drive (--dev) accept it"
        )
    if args.scenario is not None and load.rdpct:
        raise UsageError(
            f"--workload {args.workload}: {load.rdpct} % of its I/Os are reads, but scenario "
            f"{args.scenario} sets reads and writes itself: name a load that only writes, for its size "
            "and depth"
        )
    if load.rdpct == 100:
        raise UsageError(f"--workload {args.workload} only reads, but a sweep needs writes")
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
            f"--workload: {words!r:.60} works only with --dev; without a drive use a name of sysbench "
            "(rndwr), SIZE-N-random, vdbench's rdpct=75,seekpct=100,xfersize=8k,threads=16, or a file "
            ".vdb or .icf"
        )
    return loads
