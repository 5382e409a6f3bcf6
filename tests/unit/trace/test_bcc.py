"""The bcc backend without bcc: the generated C, and the sums of the returned maps."""

from __future__ import annotations

import sys

import pytest

from opwatch.collectors.block import bcc, bcc_source
from opwatch.collectors.block.blk import Plan
from opwatch.errors import Unsupported
from opwatch.trace import abi
from opwatch.trace.abi import OpSample

TARGETS = [abi.Target(0, 2**64 - 1, 0, 2, 256), abi.Target(2048, 4095, 512, 1, 64)]


def make_plan(*keys: bytes) -> Plan:
    return Plan([], TARGETS, b"".join(keys), 576, 0)


def test_bcc_dialect_defines_every_shared_table() -> None:
    known = bcc_source.make_constants(make_plan(), 4, queue_time=True, own_queue_stamp=True)
    text = bcc_source.build_source(known)
    assert "map_lookup" not in text.replace("BPF_", "")
    assert "stamps.lookup(&key)" in text
    assert "hashed_stamps.update(&key, &time)" in text
    assert "hashed_stamps.delete(&key)" in text
    assert "SEC(" not in text
    assert '#include "' not in text


def test_included_files_are_those_of_the_bpf_object() -> None:
    for name in ("opwatch_abi.h", "hist.h", "target.h", "inflight.h", "rq.h"):
        assert (bcc_source.FOLDER / name).resolve().parents[1].name == "bpf"


def test_tables_are_as_large_as_the_plan() -> None:
    disk = abi.pack_disk_key((259, 3), "nvme0n1", 0)
    known = bcc_source.make_constants(make_plan(disk), 4, queue_time=False, own_queue_stamp=False)
    assert (known["OWB_ROWS"], known["OWB_COLD_HISTS"], known["OWB_STATUSES"]) == (8, 2 * (4 + 4), 14)
    assert (known["OWB_STAMPS"], known["OWB_QUEUE_STAMPS"], known["OWB_QUEUE_HISTS"]) == (576, 1, 1)
    assert known["OWB_LOOK_UP"] == f"if (a == {259 << 20 | 3:#x}ULL && b == 0x0ULL) return 1;"
    assert (known["OWB_ANY_HIDDEN"], known["OWB_ANY_PARTITION"]) == (0, 1)


@pytest.mark.parametrize("cpus", [1, 2, 3, 17, 64])
def test_every_histogram_belongs_to_a_single_operation(cpus: int) -> None:
    known = bcc_source.make_constants(make_plan(), cpus, queue_time=True, own_queue_stamp=True)
    ops = range(len(abi.OPS))
    cold = [i for t in range(2) for op in ops[2:] for i in bcc_source.cold_hists(t, op, cpus)]
    queue = [i for t in range(2) for op in ops for i in bcc_source.queue_hists(t, op, cpus)]
    assert sorted(cold) == list(range(int(known["OWB_COLD_HISTS"])))
    assert sorted(queue) == list(range(int(known["OWB_QUEUE_HISTS"])))


def test_hidden_disks_are_known_by_name() -> None:
    path = abi.pack_disk_key((0, 0), "nvme0c1n1", 1)
    known = bcc_source.make_constants(make_plan(path), 1, queue_time=False, own_queue_stamp=False)
    assert known["OWB_ANY_HIDDEN"] == 1
    assert int.from_bytes(b"nvme0c1n", "little") == int(str(known["OWB_LOOK_UP"]).split()[3][:-3], 16)


def test_cpus_are_added_and_maxima_compared() -> None:
    names = OpSample._fields[OpSample._fields.index("issued") : OpSample._fields.index("latency")]
    one, other = list(range(len(names))), [100] * len(names)
    total = dict(zip(names, bcc.sum_rows([one, other]), strict=True))
    assert total["bytes"] == 100 + names.index("bytes")
    assert total["requeued"] == 100 + names.index("requeued")
    assert (total["max_ns"], total["queue_max_ns"], total["next_sector"]) == (100, 100, 0)
    assert bcc.sum_lanes([[1, 2], [3, 4], [5, 6]]) == [9, 12]


@pytest.mark.parametrize(("text", "cpus"), [("0\n", 1), ("0-3\n", 4), ("0-1,8-11\n", 12)])
def test_possible_cpus_are_parsed(text: str, cpus: int) -> None:
    assert bcc._count_possible_cpus(text) == cpus


def test_the_compilers_errors_are_kept_and_its_warnings_are_not() -> None:
    said = "a.h:1:1: warning: dull\nb.h:2:2: error: unknown type name 'x'\n note: there\n"
    assert bcc._extract_errors(said) == "b.h:2:2: error: unknown type name 'x'"
    assert bcc._extract_errors("killed\n") == "killed"


def test_missing_bcc_names_the_packages_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bcc", None)
    with pytest.raises(Unsupported, match="apt-get install python3-bpfcc linux-headers-"):
        bcc.import_bcc()
    assert bcc.SYSTEM_PACKAGES not in sys.path
