"""The parts of a workload follow from fio's options, and are those that fio writes."""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path

import pytest

from opwatch.load.distribution import find_write_parts
from opwatch.load.fio_arguments import LoadWindow, build_round_arguments, keep_hot_addresses
from opwatch.load.workload import LoadPattern, find_workload, list_workloads, parse_job_file
from opwatch.steady.skew import UNIFORM, WritePart

USED = 1 << 27
# Of fio's hash.
_GOLDEN_RATIO = 0x61C8864680B583EB


def _assert_parts(found: tuple[WritePart, ...], *wanted: tuple[float, float]) -> None:
    assert len(found) == len(wanted)
    for part, expected in zip(found, wanted, strict=True):
        assert part == pytest.approx(expected)


def _parse_job(*options: str) -> LoadPattern:
    return parse_job_file("\n".join(["[a]", "rw=randwrite", "bs=4k", *options]).encode(), "test.fio")


@pytest.mark.parametrize("name", list_workloads())
def test_every_workload_has_known_parts(name: str) -> None:
    pattern = find_workload(name)
    parts = find_write_parts(pattern, USED)
    assert (parts == UNIFORM) == pattern.is_uniform
    assert sum(part.space_ratio for part in parts) == pytest.approx(1)
    assert sum(part.write_ratio for part in parts) == pytest.approx(1)
    assert all(cold.density < hot.density for cold, hot in pairwise(parts))


def test_zones_of_several_jobs_add_up() -> None:
    zoned = _parse_job("random_distribution=zoned:99/1:1/99")
    _assert_parts(find_write_parts(zoned, USED), (0.99, 0.01), (0.01, 0.99))
    # Writes have their own zones after the comma.
    reads_too = _parse_job("random_distribution=zoned:50/50:50/50,90/10:10/90")
    _assert_parts(find_write_parts(reads_too, USED), (0.9, 0.1), (0.1, 0.9))
    # Half of the threads write everywhere.
    both = parse_job_file(
        b"[global]\nrw=randwrite\n[hot]\nrandom_distribution=zoned:100/10\n[all]\n", "test.fio"
    )
    _assert_parts(find_write_parts(both, USED), (0.9, 0.45), (0.1, 0.55))
    absolute = _parse_job(f"random_distribution=zoned_abs:80/{USED // 4}:20/{USED // 4 * 3}")
    _assert_parts(find_write_parts(absolute, USED), (0.75, 0.2), (0.25, 0.8))


def test_distribution_that_is_not_understood_has_no_parts() -> None:
    assert find_write_parts(_parse_job("random_distribution=sequence:1"), USED) == ()


def test_hot_addresses_stay_in_place_between_rounds() -> None:
    assert keep_hot_addresses("zipf:1.1") == "zipf:1.1:0"
    assert keep_hot_addresses("zipf:1.1:0.5") == "zipf:1.1:0.5"
    assert keep_hot_addresses("zoned:99/1:1/99") == "zoned:99/1:1/99"


@pytest.mark.parametrize("blocks", [1 << 14, 51_200, 54_784, 60_000])
def test_parts_have_the_unwritten_share_of_fios_hash(blocks: int) -> None:
    """The share depends on the number of blocks: none of a power of two, and 62 % of 51,200."""
    weights: dict[int, float] = defaultdict(float)
    for rank in range(blocks):
        weights[rank * _GOLDEN_RATIO % 2**64 % blocks] += (rank + 1) ** -0.9
    parts = find_write_parts(_parse_job("random_distribution=zipf:0.9"), blocks * 4096)
    unwritten = sum(part.space_ratio for part in parts if not part.write_ratio)
    assert unwritten == pytest.approx(1 - len(weights) / blocks, abs=0.005)
    hottest = sorted(weights.values(), reverse=True)
    for share in (0.02, 0.1, 0.3, 0.6):
        exact = sum(hottest[: round(share * blocks)]) / sum(hottest)
        assert _sum_hottest(parts, share) == pytest.approx(exact, abs=0.035)


@pytest.mark.skipif(not shutil.which("fio"), reason="fio is not installed")
@pytest.mark.parametrize(
    "distribution", ["zipf:1.1", "zipf:0.8", "pareto:0.2", "normal:10", "zoned:80/20:20/80"]
)
def test_parts_are_those_that_fio_writes(distribution: str, tmp_path: Path) -> None:
    """Half of the addresses that a part predicts as hottest get the predicted share of fio's writes."""
    pattern, size = _parse_job(f"random_distribution={distribution}"), 1 << 24
    counts: Counter[int] = Counter()
    for seed in (1, 2):
        window = LoadWindow("x", size)
        words = build_round_arguments(pattern, window, 16 * size, seed)
        words = [
            word for word in words if not word.startswith(("--filename", "--allow", "--ioengine", "--direct"))
        ]
        log = tmp_path / f"log{seed}"
        name = next(word for word in words if word.startswith("--name"))
        words.insert(words.index(name) + 1, "--ioengine=null")
        done = subprocess.run(
            ["fio", f"--write_iolog={log}", "--filename=x", *words],
            capture_output=True,
            cwd=tmp_path,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        counts += Counter(
            int(line.split()[-2]) // 4096 for line in log.read_text().splitlines() if " write " in line
        )
    hottest = sorted(counts.values(), reverse=True)
    blocks = size // 4096
    hottest += [0] * (blocks - len(hottest))
    for share in (0.02, 0.1, 0.3):
        measured = sum(hottest[: round(share * blocks)]) / counts.total()
        assert _sum_hottest(find_write_parts(pattern, size), share) == pytest.approx(measured, abs=0.06)


def _sum_hottest(parts: tuple[WritePart, ...], share: float) -> float:
    writes = 0.0
    for part in reversed(parts):
        taken = min(part.space_ratio, share)
        writes += taken * part.density
        share -= taken
    return writes


def test_random_mix_of_offsets_is_drawn_from_the_parts() -> None:
    """A quarter of the writes is sequential, which is spread evenly."""
    parts = find_write_parts(_parse_job("percentage_random=75", "random_distribution=zoned:100/50"), USED)
    _assert_parts(parts, (0.5, 0.125), (0.5, 0.875))
