"""The bpftrace backend without bpftrace: the generated script, and parsing of the returned JSON."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from opwatch.collectors.block.bpftrace import MapAssembler, decode_maps, find_batch_head
from opwatch.collectors.block.bpftrace_script import (
    EVENTS,
    FIRST_MAP,
    build_script,
    build_slot,
    operation_key,
)
from opwatch.errors import BadInput
from opwatch.host.device import Devices, Leaf
from opwatch.trace.abi import LATENCY, SIZE
from opwatch.trace.hist import Scale


def make_leaf(tmp_path: Path, name: str, dev: str | None, *, partition: bool = False) -> Leaf:
    """A disk, or a partition of the disk "sda", in a separate sysfs."""
    folder = tmp_path / "block" / ("sda" if partition else name) / (name if partition else ".")
    folder.mkdir(parents=True, exist_ok=True)
    if dev:
        (folder / "dev").write_text(dev)
    if partition:
        for key, value in (("partition", "1"), ("start", "2048"), ("size", "1000")):
            (folder / key).write_text(value)
        (folder.parent / "dev").write_text("8:0")
    (tmp_path / "class" / "block").mkdir(parents=True, exist_ok=True)
    (tmp_path / "class" / "block" / name).symlink_to(folder)
    device = Devices(sys=tmp_path).by_name(name)
    assert device
    return Leaf(device, device)


def run_slot(text: str, value: int) -> int:
    """Run the generated lines in a small interpreter of the constructs they use."""
    python = re.sub(r"\$(\w+)", r"\1", text).replace("(uint64)", "")
    lines, depth = [], 0
    for line in re.sub(r"([{};])", r"\1\n", python).splitlines():
        word = line.strip().rstrip(";")
        if word.startswith("if ("):
            lines.append("\t" * depth + word[:-1].strip() + ":")
            depth += 1
        elif word == "}":
            depth -= 1
        elif word:
            lines.append("\t" * depth + word)
    scope = {"v": value}
    exec("\n".join(lines), {}, scope)
    return scope["slot"]


@pytest.mark.parametrize("scale", [LATENCY, SIZE], ids=["latency", "size"])
def test_generated_slot_equals_the_kernel_sides(scale: Scale) -> None:
    text = build_slot("$v", scale)
    edges = {value + step for bit in range(64) for value in (1 << bit, 3 << bit) for step in (-1, 0, 1)}
    for value in sorted(edge for edge in edges if 0 <= edge < 1 << 64):
        assert run_slot(text, value) == scale.find_slot(value)


def test_disks_are_looked_up_and_partitions_and_paths_are_compared(tmp_path: Path) -> None:
    leaves = [
        make_leaf(tmp_path, "nvme0n1", "259:3"),
        make_leaf(tmp_path, "nvme1c0n1", None),
        make_leaf(tmp_path, "sda1", "8:1", partition=True),
    ]
    text = build_script(leaves, "req_list.head")
    assert f"@_target[{259 << 20 | 3}] = 1;" in text
    assert 'if ($disk->disk_name == "nvme1c0n1") { $t = 2; }' in text
    condition = f"if ($number == {8 << 20} && $sector >= 2048 && $sector <= 3047) {{ $t = 3; }}"
    assert text.count(condition) == 4
    assert text.count("{") == text.count("}")


def test_every_map_is_written_before_reads(tmp_path: Path) -> None:
    """bpftrace rejects a script with a map that is only read, and most disks are not device-mapper
    devices."""
    text = build_script([make_leaf(tmp_path, "sdb", "8:16")], "req_list")
    read = set(re.findall(r"(@_\w+)\[", text))
    written = set(re.findall(r"(@_\w+)\[\w+\] = ", text))
    assert read == written == {"@_op", "@_target", "@_twice"}


def test_device_mapper_requests_complete_twice(tmp_path: Path) -> None:
    multipath = make_leaf(tmp_path, "dm-0", "253:0")
    for folder in ("mq", "dm"):
        (multipath.device.sysfs / folder).mkdir()
    assert "@_twice[1] = 1;" in build_script([multipath], None)


def test_kernel_without_batched_completions_gets_no_batch_probe(tmp_path: Path) -> None:
    leaves = [make_leaf(tmp_path, "sdb", "8:16")]
    assert "blk_mq_end_request_batch" not in build_script(leaves, None)
    assert "args->iob->req_list;" in build_script(leaves, "req_list")


def test_batch_head_is_found_in_both_layouts() -> None:
    new = "struct io_comp_batch {\n\tstruct rq_list req_list;\n\tbool need_ts;\n};"
    old = "struct io_comp_batch {\n\tstruct request *req_list;\n\tbool need_ts;\n};"
    assert (find_batch_head(new), find_batch_head(old), find_batch_head("")) == (
        "req_list.head",
        "req_list",
        None,
    )


def make_lines(*maps: dict[str, object]) -> list[str]:
    return [json.dumps({"type": "map", "data": one}) for one in maps]


def test_complete_maps_become_a_sample() -> None:
    write, other = operation_key(1), operation_key(6)
    maps = {
        "@latency": {f"1,{write},40": 3, f"1,{write},41": 4, f"2,{write},40": 9, f"1,{other},0": 1},
        "@size": {f"1,{write},8": 8},
        "@bytes": {f"1,{write}": 28672},
        "@ns": {f"1,{write}": 300},
        "@max": {f"1,{write}": 44},
        "@event": {f"1,{write},{EVENTS.index('partial')}": 2, f"1,{write},{EVENTS.index('requeued')}": 1},
        "@status": {f"1,{write},10": 1},
    }
    first, second = decode_maps(maps, 2, 5, 6, map_full=3)
    op = first.ops["write"]
    assert (op.completed, op.issued, op.bytes, op.sum_ns, op.max_ns) == (7, 8, 28672, 300, 44)
    assert (op.partial, op.requeued, op.unmatched, op.queued) == (2, 1, 0, 0)
    assert (op.latency.slot_counts[40], op.latency.slot_counts[41], op.statuses[10]) == (3, 4, 1)
    assert first.ops["other"].completed == 1
    assert (first.ops["other"].map_full, op.map_full) == (3, 0)
    assert second.ops["write"].completed == 9
    assert (first.begin_ns, first.end_ns) == (5, 6)


def test_a_slot_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match=r"@latency\[1,1,1024\]"):
        decode_maps({"@latency": {"1,1,1024": 1}}, 1, 0, 0, 0)


def test_last_map_completes_a_set() -> None:
    frames = MapAssembler()
    assert frames.parse_line("Attaching...") is None
    assert frames.parse_line('{"type": "attached_probes", "data": {"probes": 5}}') is None
    assert frames.attached
    complete = [
        frames.parse_line(line) for line in make_lines({"@_first": 1}, {"@ns": {"1,1": 2}}, {"@zz_last": 1})
    ]
    assert complete == [None, None, {"@_first": 1, "@ns": {"1,1": 2}, "@zz_last": 1}]


def test_losses_of_bpftrace_are_counted() -> None:
    frames = MapAssembler()
    frames.parse_line(
        '{"type": "helper_error", "helper": "map_update_elem", "retcode": -7, "line": 1, "col": 11}'
    )
    frames.parse_line(
        '{"type": "helper_error", "helper": "map_delete_elem", "retcode": -2, "line": 1, "col": 1}'
    )
    frames.parse_line('{"type": "lost_events", "data": {"events": 41}}')
    assert frames.map_full == 42


def test_unordered_maps_are_not_a_sample() -> None:
    with pytest.raises(ValueError, match=rf"@ns .*{FIRST_MAP}:"):
        MapAssembler().parse_line(make_lines({"@ns": {"1,1": 2}})[0])


def test_broken_json_is_an_error() -> None:
    with pytest.raises(ValueError):
        MapAssembler().parse_line('{"type": "map", "data"')


@pytest.mark.parametrize(
    "line",
    [
        '{"data": {}}',
        '{"type": "map", "data": 5}',
        '{"type": "lost_events", "data": []}',
        '{"type": "lost_events", "data": {"events": 1e999}}',
        "{" * 5000,
    ],
)
def test_a_line_that_bpftrace_never_prints_is_refused(line: str) -> None:
    with pytest.raises(BadInput, match="bpftrace"):
        MapAssembler().parse_line(line)


@pytest.mark.parametrize("maps", [{"@bytes": 5}, {"@bytes": {"1,1": []}}, {"@latency": {"1,1,x": 1}}])
def test_maps_of_another_shape_are_refused(maps: dict[str, object]) -> None:
    with pytest.raises(BadInput, match="bpftrace"):
        decode_maps(maps, 1, 0, 0, 0)
