"""Pages of saved experiments with values of other types and sizes anywhere.

python -m tests.fuzz.experiments [INPUTS [SEED]]
"""

from __future__ import annotations

import copy
import json
import random
import sys
from pathlib import Path
from typing import Any

from opwatch.sinks.sweep.scenario_page import format_experiment_markdown, render_experiments

from .rules import RefusedOrValid, run_from_arguments

_FOLDER = Path(__file__).parents[1] / "fixtures" / "good" / "scenarios"
_VALUES: tuple[Any, ...] = (
    *(
        None,
        True,
        -1,
        0,
        1,
        1e300,
        5e-324,
        float("nan"),
        float("inf"),
        10**30,
        "",
        "x\n",
        "<script>",
        "\x1b[2J",
    ),
    *([], {}, [[]], [None], [1], "reproduced", "saturation", "mixed", "sweep"),
)


class ExperimentDocuments:
    """Sequence of documents from a seed."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._documents = [
            _shrink_rounds(json.loads(path.read_bytes())) for path in sorted(_FOLDER.glob("*.json"))
        ]

    def check_document(self) -> None:
        """Render a modified document. Injected text must not become markup."""
        document = copy.deepcopy(self._chance.choice(self._documents))
        for _ in range(self._chance.choice((0, 1, 1, 2))):
            self._change_value(document)
        page = render_experiments([("it", document)])
        assert "<script" not in page
        assert "\x1b" not in page
        assert list(format_experiment_markdown([("it", document)]))

    def _change_value(self, document: dict[str, Any]) -> None:
        place: Any = document
        while isinstance(place, dict | list) and place:
            key = self._chance.choice(list(place) if isinstance(place, dict) else list(range(len(place))))
            if not isinstance(place[key], dict | list) or self._chance.random() < 0.2:
                if self._chance.random() < 0.2:
                    del place[key]
                else:
                    place[key] = self._chance.choice(_VALUES)
                return
            place = place[key]


def _shrink_rounds(value: Any) -> Any:  # noqa: ANN401
    """Return a copy with few rounds, so that most modifications hit other fields."""
    if isinstance(value, dict):
        return {key: _shrink_rounds(member) for key, member in value.items()}
    return [_shrink_rounds(member) for member in value[:26]] if isinstance(value, list) else value


def run(inputs: int, seed: int) -> None:
    """Run this many inputs. Raises at the first failure."""
    documents = ExperimentDocuments(seed)
    for _ in range(inputs):
        with RefusedOrValid("experiments"):
            documents.check_document()


def main() -> int:
    return run_from_arguments(run, 100_000)


if __name__ == "__main__":
    sys.exit(main())
