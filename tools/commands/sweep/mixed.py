"""Mixed I/O on file systems side by side, from the words to the document."""

from __future__ import annotations

import argparse
from contextlib import closing
from pathlib import Path
from typing import Any

from opwatch.collectors.scenarios.mixed import mix_place, run_mix
from opwatch.errors import UsageError
from opwatch.host.device import Devices
from opwatch.scenarios.mixed import mix_loads, mix_setup, mix_statements
from opwatch.scenarios.scenario import Scenario
from opwatch.sinks.scenario.document import experiment_document, mixed_fields
from opwatch.tools.commands.sweep.level_arguments import MODEL_OPTIONS, refuse_others
from opwatch.tools.talk import ProgressTalk
from opwatch.tools.waiting import Waiter


def mixed(scenario: Scenario, args: argparse.Namespace) -> dict[str, Any]:
    """Run it, and return its document."""
    if args.virtual is not None:
        raise UsageError(
            f"--scenario {scenario.name}: no model of a set of drives is here; make the sets "
            "on drives or on simulated ones (opwatch drive create), file systems on them, and name these by "
            "--on NAME=DIR"
        )
    refuse_others(args, [*MODEL_OPTIONS, "op"], "a scenario on simulated flash")
    setup, loads = mix_setup(scenario.setup), mix_loads(scenario.published)
    devices = Devices()
    # All of them are looked at before anything is written to one.
    places = [mix_place(devices, name, folder, setup) for name, folder in _folders(args.on)]
    with Waiter() as waiter, closing(ProgressTalk(quiet=args.quiet)) as talk:
        results = [run_mix(place, loads, setup, waiter, talk) for place in places]
    workload = f"{len(loads)} loads of {setup.run_s:g} s, {setup.threads} I/Os outstanding"
    document = experiment_document(scenario, ", ".join(one.name for one in results), workload, None)
    return document | mixed_fields(results, mix_statements(results, scenario.published))


def _folders(words: list[str]) -> list[tuple[str, Path]]:
    folders: dict[str, Path] = {}
    for word in words:
        name, equals, folder = word.partition("=")
        if not equals or not name or not folder:
            raise UsageError(f"--on {word}: write NAME=DIR, such as raid1=/mnt/raid1")
        if name in folders:
            raise UsageError(f"--on {word}: there is a {name} already")
        folders[name] = Path(folder)
    if not folders:
        raise UsageError("--scenario mixed-io: say where (--on NAME=DIR), once a configuration")
    return list(folders.items())
