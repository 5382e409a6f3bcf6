"""A process that checks the trim of every filesystem: `python -m opwatch.tools.exporter.trim_probe`.

It writes one JSON line per filesystem. A check takes 30 MB for some seconds, and not in the exporter.
"""

from __future__ import annotations

import json
import sys

from opwatch.metrics.trims import find_lost_bytes
from opwatch.sinks.terminal import open_stdout
from opwatch.tools.runs.checking import CheckRun


def main() -> int:
    run = CheckRun(0)
    for subject in run.find_all():
        forecast = run.check_subject(subject).forecast
        free = forecast.free_bytes
        if free is None and forecast.runs:
            free = sum(one.free_bytes for one in forecast.runs)
        lost = find_lost_bytes(forecast.reasons, free)
        row = {
            "mountpoint": subject.mount.point if subject.mount else "",
            "verdict": forecast.outlook.value,
            "lost": [[layer, code, count] for (layer, code), count in lost.items()],
        }
        open_stdout().write_lines([json.dumps(row)])
    return 0


if __name__ == "__main__":
    sys.exit(main())
