"""Run the cases of tests/fixtures/good/steady/traces.json again, and write the file.

python -m tests.bench.steady_bench.traces
"""

from __future__ import annotations

import json
from pathlib import Path

from .flash import FlashCase, build_ftl, run_case

TRACES = Path(__file__).parents[2] / "fixtures" / "good" / "steady" / "traces.json"


def main() -> None:
    program = build_ftl(Path("build"))
    cases = [trace["case"] for trace in json.loads(TRACES.read_text())]
    traces = [{"case": case, "pages": run_case(program, FlashCase(**case))} for case in cases]
    TRACES.write_text("[\n" + ",\n".join(map(json.dumps, traces)) + "\n]\n")


if __name__ == "__main__":
    main()
