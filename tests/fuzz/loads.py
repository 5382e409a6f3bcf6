"""Load names and load files of other tools, with modified words and values, and moved or missing lines.

python -m tests.fuzz.loads [INPUTS [SEED]]
"""

from __future__ import annotations

import random
import re
import sys
from pathlib import Path

from opwatch.load.icf import parse_icf
from opwatch.load.options import REQUEST_OPTIONS
from opwatch.load.plain import PlainLoad, parse_plain_load
from opwatch.load.sysbench import parse_sysbench
from opwatch.load.vdbench import parse_vdbench
from opwatch.load.workload import make_pattern

from .rules import RefusedOrValid, run_from_arguments

_FOLDER = Path(__file__).parents[1] / "fixtures" / "good" / "loads"
_NAMES = (
    "rndwr",
    "seqrd",
    "rndrw",
    "4k-100-random",
    "16K-50-random-70-read",
    "rdpct=75,seekpct=100,xfersize=8k,threads=16",
)
_VALUES = (
    *(
        "0",
        "1",
        "-1",
        "100",
        "101",
        "511",
        "4096",
        "8k",
        "1.5k",
        "9" * 30,
        "9" * 5000,
        "٣",
        "²",
        "",
        "max",
        "rand",
    ),
    *(
        "(1,2)",
        "(",
        ")",
        "((8k))",
        "sd*",
        "[",
        "default",
        "o_direct",
        "a\x00b",
        "\x1b[2J",
        "\ud800",
        "${HOME}",
        "$(id)",
        "=",
        ",",
    ),
)
_NUMBER = re.compile(r"\w+")
_CHARACTERS = ",=()*'\t\r\n #/.-\x00\x1b\u2028é"


class LoadTexts:
    """Sequence of texts from a seed."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._vdbench = (_FOLDER / "mixed.vdb").read_text()
        self._icf = (_FOLDER / "whole-drive.icf").read_text()
        self._sysbench = (_FOLDER.parent / "sysbench" / "rndwr.txt").read_text()

    def check_text(self) -> None:
        """Parse one text. An accepted load must contain only options that are safe for fio."""
        kind = self._chance.randrange(4)
        if kind == 3:
            result = parse_sysbench(self._rearrange_lines(self._sysbench), "it")
            assert result.reads >= 0 and result.writes >= 0 and result.reads + result.writes > 0
            assert result.seconds > 0 and result.mean_ns >= 0
            return
        if kind == 0:
            name = self._change_text(self._chance.choice(_NAMES))
            plain = parse_plain_load(name)
            loads = [plain] if plain else []
        else:
            text, parse = ((self._vdbench, parse_vdbench), (self._icf, parse_icf))[kind - 1]
            loads = parse(self._rearrange_lines(text).encode("utf-8", "surrogatepass"), "it")
            assert loads
        for load in loads:
            _require_valid(load)

    def _rearrange_lines(self, text: str) -> str:
        """Return the text with lines missing, duplicated or moved, and with modified words."""
        lines = text.split("\n")
        for _ in range(self._chance.choice((0, 0, 1, 2))):
            at = self._chance.randrange(len(lines))
            line = lines.pop(at) if self._chance.random() < 0.6 else lines[at]
            if self._chance.random() < 0.6:
                lines.insert(self._chance.randrange(len(lines) + 1), line)
        at = self._chance.randrange(len(lines))
        lines[at] = self._change_text(lines[at])
        return "\n".join(lines)

    def _change_text(self, text: str) -> str:
        """Return the text with words of other types or sizes, and misplaced characters."""
        chance = self._chance
        for _ in range(chance.choice((0, 1, 1, 3))):
            words = list(_NUMBER.finditer(text))
            if words and chance.random() < 0.7:
                word = chance.choice(words)
                text = text[: word.start()] + chance.choice(_VALUES) + text[word.end() :]
            else:
                at = chance.randrange(len(text) + 1)
                text = text[:at] + chance.choice(_CHARACTERS) * chance.choice((1, 1, 40)) + text[at:]
        return text


def _require_valid(load: PlainLoad) -> None:
    assert 0 <= load.rdpct <= 100
    assert 0 <= load.seekpct <= 100
    assert load.xfersize >= 512
    assert load.threads is None or load.threads >= 1
    for job in make_pattern(load, "it").jobs:
        assert set(job.options) <= REQUEST_OPTIONS
        assert not any(set(value) & set("\n\0 $\\") for value in job.options.values())


def run(inputs: int, seed: int) -> None:
    """Run this many inputs. Raises at the first failure."""
    texts = LoadTexts(seed)
    for _ in range(inputs):
        with RefusedOrValid("loads"):
            texts.check_text()


def main() -> int:
    return run_from_arguments(run, 100_000)


if __name__ == "__main__":
    sys.exit(main())
