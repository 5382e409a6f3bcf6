"""The slot function in BPF against the Python function that interprets the slots."""

from __future__ import annotations

import random
import struct
from pathlib import Path

from opwatch.trace.abi import LATENCY, SIZE
from tests.kernel.support.libbpf import load_object

OBJECT = Path(__file__).parents[3] / "build" / "bpf" / "slot_probe.bpf.o"
BATCH = 512
VALUES = 1_000_000


def list_edges() -> list[int]:
    """Return 0, every power of two with its neighbours, and the largest value."""
    near = {1 << bit for bit in range(64)}
    near |= {value + 1 for value in near} | {value - 1 for value in near}
    return sorted(near | {2**64 - 1})


def test_bpf_slots_of_a_million_values_match_python() -> None:
    generator = random.Random(20)
    values = list_edges()
    # Draw from each octave equally often, so that small values are well represented.
    values += [generator.getrandbits(generator.randrange(1, 65)) for _ in range(VALUES - len(values))]
    values += [0] * (-len(values) % BATCH)
    layout = struct.Struct(f"={BATCH}Q{BATCH}I{BATCH}I")
    with load_object(OBJECT, "slot_probe", "probes") as probe:
        for start in range(0, len(values), BATCH):
            batch = values[start : start + BATCH]
            memory = bytearray(layout.pack(*batch, *([0] * 2 * BATCH)))
            probe.run_program(memory)
            answer = layout.unpack(memory)
            assert list(answer[BATCH : 2 * BATCH]) == [LATENCY.find_slot(value) for value in batch]
            assert list(answer[2 * BATCH :]) == [SIZE.find_slot(value) for value in batch]
