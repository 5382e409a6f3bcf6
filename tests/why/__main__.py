"""`python -m tests.why --cause gc --seed 3 --load medium --seconds 120 --out FOLDER` makes one run."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from opwatch.errors import OpwatchError
from tests.why.causes import CAUSES
from tests.why.effect import measure_effect
from tests.why.plan import LOADS, SHAPES
from tests.why.runs import make_run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.why")
    parser.add_argument("--cause", choices=tuple(CAUSES), help="what makes requests slow")
    parser.add_argument("--list", action="store_true", help="list the causes")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--load", choices=tuple(LOADS), default="medium")
    parser.add_argument("--shape", choices=tuple(SHAPES), help="of the base load")
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--out", type=Path, default=Path())
    args = parser.parse_args()
    if args.list or args.cause is None:
        for name, cause in CAUSES.items():
            print(f"{name:<18} {cause.what}")
        return 0
    try:
        made = make_run(args.cause, args.seed, args.load, args.out, args.seconds, args.shape)
    except OpwatchError as error:
        print(error, file=sys.stderr)
        return 1
    late = (
        f"{100 * made.late_share:.1f} % of answers late, by {100 * made.late_time_share:.1f} % of their time"
    )
    print(f"{made.recording}: {len(made.injections)} injections, {late}")
    inside, outside = measure_effect(made.recording, made.injections)
    print(f"mean latency {inside.mean_ms:.2f} ms while the cause acted, else {outside.mean_ms:.2f} ms")
    return 0


if __name__ == "__main__":
    sys.exit(main())
