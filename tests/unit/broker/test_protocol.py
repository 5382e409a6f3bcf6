"""The Python mirror of the broker's protocol has the layout of the C header, and refuses damaged replies."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from opwatch.collectors.block.blk import Plan
from opwatch.collectors.broker import protocol
from opwatch.collectors.broker.protocol import RequestKind
from opwatch.errors import OpwatchError
from opwatch.trace import abi
from opwatch.trace.programs import list_program_sets
from tests.fuzz import broker as fuzz
from tests.tracked import ROOT

_HEADER = ROOT / "tools/broker/protocol.h"
_SIZES = Path(__file__).parent / "print_sizes.c"
PLAN = Plan((), [abi.Target(0, 9, 5, 2, 64)], abi.pack_disk_key((8, 16), "sdb", 0), 128, 0)
PROGRAMS = list_program_sets(requests=True, bios=False, queue_time=False)["tp_btf"]


def pack_every_kind() -> dict[RequestKind, bytes]:
    """Return a request of each kind."""
    arguments = {
        RequestKind.OPEN_TRACER: protocol.pack_open(PLAN, PROGRAMS, queue_time=False, by=0),
        RequestKind.EVICT_OWNERS: protocol.pack_evict(1, 2, 3, 4),
        **{
            kind: protocol.pack_tracer(1)
            for kind in (
                *(RequestKind.CLOSE_TRACER, RequestKind.READ_SAMPLE),
                *(RequestKind.READ_OWNERS, RequestKind.READ_PROGRAMS),
            )
        },
        **{
            kind: protocol.pack_drive((8, 16))
            for kind in (RequestKind.GET_LOG, RequestKind.IDENTIFY, RequestKind.RUN_SMARTCTL)
        },
    }
    return {kind: protocol.pack_request(kind, 9, arguments.get(kind, b"")) for kind in RequestKind}


def test_sizes_match_the_header(tmp_path: Path) -> None:
    include = [f"-I{ROOT / folder}" for folder in ("tools/broker", "opwatch", "bpf")]
    subprocess.run(["cc", *include, _SIZES, "-o", tmp_path / "sizes"], check=True)
    printed = subprocess.check_output([tmp_path / "sizes"], text=True)
    plain, opening, tracer, evict, drive, program, owner, reply, disks, programs = map(int, printed.split())
    by_kind = {kind: len(request) for kind, request in pack_every_kind().items()}
    assert by_kind[RequestKind.HELLO] == plain
    assert by_kind[RequestKind.OPEN_TRACER] == opening
    assert by_kind[RequestKind.READ_SAMPLE] == by_kind[RequestKind.CLOSE_TRACER] == tracer
    assert by_kind[RequestKind.EVICT_OWNERS] == evict
    assert by_kind[RequestKind.GET_LOG] == by_kind[RequestKind.RUN_SMARTCTL] == drive
    assert (owner, reply) == (protocol.OWNER_BYTES, protocol.REPLY_MAX_BYTES)
    assert protocol.decode_programs(bytes(2 * program)) == [("", 0, 0, 0, 0)] * 2
    opened = pack_every_kind()[RequestKind.OPEN_TRACER]
    assert opened[disks:].startswith(PLAN.disk_keys)
    assert opened[programs:].startswith(b"rq_complete\0")


def test_kinds_match_the_header() -> None:
    [listed] = re.findall(r"enum ow_request_kind \{(.*?)\}", _HEADER.read_text(), re.DOTALL)
    names = re.findall(r"OW_(\w+)", listed)
    assert names == [*RequestKind.__members__, "NR_KINDS"]
    assert [*RequestKind] == list(range(1, len(names)))


def test_sample_gets_its_idle_operations_back() -> None:
    raw = protocol.unpack_sample(fuzz.make_packed_sample(0b1000010))
    sample = abi.decode_sample(raw)
    assert (sample.begin_ns, sample.end_ns) == (7, 9)
    assert sample.ops["write"].issued == int.from_bytes(bytes([1]) * 8, "little")
    assert sample.ops["other"].requeued == int.from_bytes(bytes([2]) * 8, "little")
    assert [name for name, op in sample.ops.items() if op.issued] == ["write", "other"]


@pytest.mark.parametrize(
    "packet",
    [b"", bytes(15), fuzz.make_reply(1, b"four")[:-1], fuzz.make_reply(1, b"four") + b"x"],
)
def test_incomplete_reply_is_refused(packet: bytes) -> None:
    with pytest.raises(OpwatchError):
        protocol.decode_reply(packet)


def test_broker_of_another_version_is_refused() -> None:
    assert protocol.decode_hello(fuzz.make_hello()).capabilities == 5
    with pytest.raises(OpwatchError, match="restart"):
        protocol.decode_hello(fuzz.make_hello(sample_bytes=abi.SAMPLE_BYTES + 8))


def test_damaged_replies_are_refused_or_decoded() -> None:
    fuzz.run(3000, 1)
