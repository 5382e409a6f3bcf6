"""The tests of SNIA's SSS PTS 2.0.2 by name, as data: workload, steady-state variables, reported results.

The texts are paraphrased because the specification may only be reproduced as a whole.
"""

from __future__ import annotations

from typing import NamedTuple

from opwatch.errors import UsageError

_KIB = 1024
_BLOCKS = tuple(int(kib * _KIB) for kib in (1024, 128, 64, 32, 16, 8, 4, 0.5))
_MIXES = (100, 95, 65, 50, 35, 5, 0)


class PtsPoint(NamedTuple):
    """One test point of a round: a share of reads, a block size, and a duration."""

    read_percent: int
    block_bytes: int
    is_random: bool
    seconds: float
    # Idle time after the point.
    pause_s: float = 0.0


class PtsTest(NamedTuple):
    """A test of the specification.

    `precondition_block_bytes` is the block size of the sequential preconditioning writes (twice the
    capacity), or None if the loop itself conditions the drive. `steady` names the points that the
    steady-state rule tracks.
    """

    name: str
    title: str
    precondition_block_bytes: int | None
    points: tuple[PtsPoint, ...]
    steady: tuple[str, ...]
    variable: str
    most_rounds: int
    outputs: tuple[str, ...]


# Fields that every report must have, whatever the test.
HEADER_FIELDS = (
    *("device", "firmware", "capacity", "interface", "platform", "software version", "test sponsor"),
    *("purge method", "preconditioning", "active range", "outstanding I/Os", "threads", "data pattern"),
    "write cache",
)
# Steady-state fields that every report must have, under their names in PtsVerdict.report().
STEADY_FIELDS = (
    *("rounds", "values", "average", "allowed_data_excursion", "measured_data_excursion"),
    *("allowed_slope_excursion", "measured_slope_excursion", "slope", "intercept"),
    *("least_squares_formula", "is_steady"),
)
PTS_TESTS = (
    PtsTest(
        name="wsat",
        title="write saturation: random 4 KiB writes from new until steady, 4 capacities or 24 hours",
        precondition_block_bytes=None,
        points=(PtsPoint(0, 4 * _KIB, True, 60.0),),
        steady=("0/100 4096",),
        variable="IOPS",
        most_rounds=1440,
        outputs=("IOPS by time", "IOPS by bytes written", "latency by time", "latency by bytes written"),
    ),
    PtsTest(
        name="iops",
        title="IOPS matrix: 7 mixes of reads and writes by 8 block sizes, random",
        precondition_block_bytes=128 * _KIB,
        points=tuple(PtsPoint(mix, block, True, 60.0) for mix in _MIXES for block in _BLOCKS),
        steady=("0/100 4096", "65/35 65536", "100/0 1048576"),
        variable="IOPS",
        most_rounds=25,
        outputs=(
            "IOPS table",
            "steady state convergence",
            "steady state window",
            "IOPS by block size and mix",
        ),
    ),
    *(
        PtsTest(
            name=f"throughput-{block // _KIB}k",
            title=f"throughput of {block // _KIB} KiB, sequential reads and writes",
            precondition_block_bytes=block,
            points=(PtsPoint(100, block, False, 60.0), PtsPoint(0, block, False, 60.0)),
            steady=(f"0/100 {block}",),
            variable="MB/s",
            most_rounds=25,
            outputs=("MB/s table", "steady state convergence", "steady state window"),
        )
        for block in (128 * _KIB, 1024 * _KIB)
    ),
    PtsTest(
        name="latency",
        title="latency of one outstanding I/O: 3 mixes by 3 block sizes, random",
        precondition_block_bytes=128 * _KIB,
        points=tuple(
            PtsPoint(mix, block, True, 60.0) for mix in (100, 65, 0) for block in (8 * _KIB, 4 * _KIB, 512)
        ),
        steady=("0/100 4096",),
        variable="mean latency",
        most_rounds=25,
        outputs=(
            "mean latency table",
            "99.999 % latency table",
            "maximum latency table",
            "steady state window",
        ),
    ),
    PtsTest(
        name="hir",
        title="host idle recovery: IOPS regained by pauses of 5 to 50 s between writes of 5 s",
        precondition_block_bytes=None,
        points=tuple(PtsPoint(0, 4 * _KIB, True, 5.0, pause) for pause in (5.0, 10.0, 15.0, 25.0, 50.0)),
        steady=("0/100 4096",),
        variable="IOPS",
        most_rounds=25,
        outputs=("IOPS by time for every pause", "IOPS back at the baseline"),
    ),
    PtsTest(
        name="xsr",
        title="cross stimulus recovery: sequential 1 MiB for 8 h, random 8 KiB for 6 h, sequential for 8 h",
        precondition_block_bytes=None,
        points=(
            PtsPoint(0, 1024 * _KIB, False, 8 * 3600.0),
            PtsPoint(0, 8 * _KIB, True, 6 * 3600.0),
            PtsPoint(0, 1024 * _KIB, False, 8 * 3600.0),
        ),
        steady=(),
        variable="MB/s",
        most_rounds=1,
        outputs=("MB/s by time", "time to recover"),
    ),
)


def find_pts_test(name: str) -> PtsTest:
    """Return the test with this name."""
    for test in PTS_TESTS:
        if test.name == name:
            return test
    known = ", ".join(test.name for test in PTS_TESTS)
    raise UsageError(f"unknown SNIA test {name!r}; available: {known}")
