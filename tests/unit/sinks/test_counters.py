"""Drive counters as text, at several widths."""

from __future__ import annotations

from pathlib import Path

import pytest

from opwatch.collectors.firmware.recorded import read_recorded
from opwatch.counters.catalogue.families import load_catalogue
from opwatch.counters.prove.report import make_report
from opwatch.sinks import wrapping
from opwatch.sinks.counters import HEADER, format_counters

REPORTS = Path(__file__).parents[2] / "fixtures" / "good" / "counters" / "smartctl_exporter"


@pytest.mark.parametrize("width", [80, 72, 60, 40])
def test_no_line_is_wider_than_the_terminal(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wrapping, "get_width", lambda _: width)
    catalogue = load_catalogue([])
    for path in sorted(REPORTS.glob("*.json")):
        shown = format_counters(make_report(read_recorded([path]), catalogue))
        assert max(map(len, shown)) <= width
        # Every layout shows the value and its source.
        [at] = [number for number, line in enumerate(shown) if line.startswith("host_written")]
        assert any(
            word in " ".join(shown[at : at + 4]) for word in ("log", "attribute", "statistics", "counter")
        )
        assert (HEADER[0] in " ".join(shown)) == (width >= 72)
