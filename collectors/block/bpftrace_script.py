"""Generate the bpftrace script that counts like the BPF object: targets -> text. Pure.

bpftrace 0.17 has no raw tracepoints, and its tracepoints hide the request's address. The script therefore
attaches by fentry to the functions that fire the tracepoints first: blk_mq_start_request (issue),
blk_update_request (complete), blk_mq_end_request_batch (batch completions, which bypass the former) and
__blk_mq_requeue_request. It mirrors bpf/block/blk.bpf.c: same classification of a completion, same slots as
bpf/lib/hist.h.
"""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import indent

from opwatch.collectors.block.blk import completes_twice
from opwatch.host.device import Leaf
from opwatch.trace.abi import LATENCY, SIZE
from opwatch.trace.hist import Scale

# Keys of @event: plain counters of an operation.
EVENTS = (
    "errors",
    "partial",
    "unmatched",
    "never_issued",
    "flush_tails",
    "clock_back",
    "sequential",
    "overwritten",
    "requeued",
    "taken_back",
    "refused",
    "ends",
    "stat_reads",
    "stat_writes",
    "abandoned",
)
# Maximum requests per batch. The rest of a longer batch appears as missed completions.
BATCH = 64
# First and last map by name. bpftrace prints non-empty maps in this order.
FIRST_MAP, LAST_MAP = "@_first", "@zz_last"
# Start of each function probe. Newer versions also call it fentry.
PROBE = "kfunc:"

_OPERATIONS = (
    "REQ_OP_READ",
    "REQ_OP_WRITE",
    "REQ_OP_FLUSH",
    "REQ_OP_DISCARD",
    "REQ_OP_WRITE_ZEROES",
    "REQ_OP_SECURE_ERASE",
)


# Index of flushes in opwatch.trace.ops.OPS.
FLUSH = 2


def _encode_device(leaf: Leaf) -> int:
    major, minor = leaf.device.disk.dev
    return major << 20 | minor


def _build_tables(leaves: Sequence[Leaf]) -> str:
    """Return the lookup tables. A lookup costs the verifier less than a chain of conditions."""
    lines = [f"@_op[{name}] = {index + 1};" for index, name in enumerate(_OPERATIONS)]
    lines.append("@_op[REQ_OP_ZONE_APPEND] = 2;")
    # bpftrace refuses a map that is never written. No disk has number 0.
    lines += ["@_twice[0] = 0;", "@_target[0] = 0;"]
    lines += [
        f"@_twice[{index + 1}] = 1;" for index, leaf in enumerate(leaves) if completes_twice(leaf.device)
    ]
    numbered = [leaf for leaf in leaves if _encode_device(leaf) and not leaf.device.is_partition]
    lines += [f"@_target[{_encode_device(leaf)}] = {leaves.index(leaf) + 1};" for leaf in numbered]
    return "\n".join(lines)


def _build_condition(leaf: Leaf) -> str | None:
    """Return the condition for a leaf's requests, if the table cannot identify them.

    Partitions are matched by sectors, and hidden NVMe paths, which have no device number, by name.
    """
    device = leaf.device
    parts = [] if _encode_device(leaf) else [f'$disk->disk_name == "{device.disk.name}"']
    if device.is_partition:
        first, last = device.sector_range
        parts += [f"$number == {_encode_device(leaf)}", f"$sector >= {first}", f"$sector <= {last}"]
    return " && ".join(parts) or None


def _build_lookup(leaves: Sequence[Leaf]) -> str:
    """Return code that sets $t (target of $rq plus one, or 0 if unwatched), $o (see `operation_key`) and
    $sector."""
    lines = [
        "$disk = $rq->q->disk;",
        "$sector = $rq->__sector;",
        # As in read_sector() of bpf/block/rq.h: without data, the sector is undefined.
        "if ($rq->__data_len == 0 && (uint64)$rq->part) { $sector = $rq->part->bd_start_sect; }",
        "$number = ((uint64)$disk->major << 20) | (uint64)$disk->first_minor;",
        "$t = @_target[$number];",
    ]
    for index, leaf in enumerate(leaves):
        condition = _build_condition(leaf)
        if condition:
            lines.append(f"if ({condition}) {{ $t = {index + 1}; }}")
    lines.append("$o = @_op[(uint64)$rq->cmd_flags & 0xff];")
    return "\n".join(lines)


def operation_key(op: int) -> int:
    """Return the map key of an operation of opwatch/trace/abi.py. Unknown operations have key 0."""
    return op + 1 if op < len(_OPERATIONS) else 0


def build_slot(value: str, scale: Scale) -> str:
    """Return code that sets $slot, as find_hist_slot() of bpf/lib/hist.h does."""
    lines = [
        f"$slot = {value};",
        f"if ($slot >= {1 << scale.bits}) {{",
        f"\t$rest = {value};",
        "\t$bit = (uint64)0;",
    ]
    for step in (32, 16, 8, 4, 2, 1):
        lines.append(f"\tif ($rest >> {step}) {{ $rest = $rest >> {step}; $bit = $bit + {step}; }}")
    mask = (1 << scale.bits) - 1
    lines += [
        f"\t$octave = $bit - {scale.bits};",
        f"\t$slot = (($octave + 1) << {scale.bits}) + (({value} >> $octave) & {mask});",
        f"\tif ($slot >= {scale.slots}) {{ $slot = {scale.slots - 1}; }}",
        "}",
    ]
    return "\n".join(lines)


def _build_event(name: str) -> str:
    return f"@event[$t, $o, {EVENTS.index(name)}] = count();"


def _build_issue() -> str:
    """Return code for an issue.

    A requeued request continues the first issue. A request allocated later at the same address is a new
    request.
    """
    return f"""\
$first = @start[(uint64)$rq];
$back = @back[(uint64)$rq];
if ($back) {{ delete(@back[(uint64)$rq]); }}
if (!($back && $first && (uint64)$rq->start_time_ns <= $first)) {{
	if ($first && $back) {{ {_build_event("abandoned")} }}
	if ($first && !$back) {{ {_build_event("overwritten")} }}
{indent(_build_first_issue(), chr(9))}
}}"""


def _build_first_issue() -> str:
    """Return code for the first issue.

    @next is one more than the start of a sequential successor, or 0 without a request, as in next_sector() of
    bpf/lib/op.h.
    """
    return f"""\
$bytes = (uint64)$rq->__data_len;
$sectors = $bytes >> 9;
{build_slot("$sectors", SIZE)}
@size[$t, $o, $slot] = count();
if ($bytes) {{
	if (@next[$t, $o, cpu] == $sector + 1) {{ {_build_event("sequential")} }}
	@next[$t, $o, cpu] = $sector + 1;
	if (((uint64)$rq->cmd_flags & 0xff) != REQ_OP_ZONE_APPEND) {{
		@next[$t, $o, cpu] = $sector + 1 + $sectors;
	}}
}}
@start[(uint64)$rq] = nsecs;"""


def _build_count() -> str:
    """Return code for the last completion of a request issued at $issued."""
    return f"""\
delete(@start[(uint64)$rq]);
$ns = $now - $issued;
if ($now < $issued) {{
	{_build_event("clock_back")}
	$ns = 0;
}}
{build_slot("$ns", LATENCY)}
@latency[$t, $o, $slot] = count();
@ns[$t, $o] = sum($ns);
@max[$t, $o] = max($ns);
@bytes[$t, $o] = sum($bytes);"""


def _build_batch_completion() -> str:
    """Return code for a batch completion, which is always of a whole started request without an error."""
    return f"""\
$bytes = (uint64)$rq->__data_len;
$left = $bytes;
$issued = @start[(uint64)$rq];
{_build_other_count()}
{_build_event("ends")}
if ($issued) {{
{indent(_build_count(), chr(9))}
}} else {{
	@unseen[$t, $o] = sum($bytes);
	{_build_event("unmatched")}
}}"""


# As in convert_status() of bpf/lib/op.h.
RENUMBERED = "if ($error > 14 && $error < 19) { $error = $error - 1; }"


def _build_completion(zone_resource: bool) -> str:
    """Return code for other completions, following on_complete() of bpf/block/blk.bpf.c step by step."""
    return f"""\
$now = nsecs;
$bytes = (uint64)args->nr_bytes;
$left = (uint64)$rq->__data_len;
$issued = @start[(uint64)$rq];
$error = (uint64)args->error;
{RENUMBERED if zone_resource else ""}
$tail = (uint64)$rq->biotail;
$taken = $bytes == 0 && $tail == 0 && $o != 0 && $o != {operation_key(FLUSH)};
$counted = !$issued && $bytes == 0 && $tail && (uint64)$rq->biotail->bi_status;
if ($error && !$counted) {{
	{_build_event("errors")}
	@status[$t, $o, $error] = count();
	@error_bytes[$t, $o] = sum($bytes);
}}
{_build_other_count()}
if ($bytes < $left) {{
	{_build_event("partial")}
	if ($issued) {{ @bytes[$t, $o] = sum($bytes); }} else {{ @unseen[$t, $o] = sum($bytes); }}
}} else {{
	$first = $o != {operation_key(FLUSH)} && (uint64)$rq->end_io == kaddr("mq_flush_data_end_io");
	if (!$first && (@_twice[$t] == 0 || $bytes == 0 || $error)) {{ {_build_event("ends")} }}
	if ($issued && $taken) {{
		delete(@start[(uint64)$rq]);
		{_build_event("taken_back")}
	}} else if ($issued) {{
{indent(_build_count(), chr(9) * 2)}
	}} else {{
		@unseen[$t, $o] = sum($bytes);
		if ($rq->state == MQ_RQ_IDLE) {{ {_build_event("never_issued")} }}
		else if ($taken) {{ {_build_event("taken_back")} {_build_event("refused")} }}
		else if ($bytes == 0 && $tail) {{ {_build_event("flush_tails")} }}
		else {{ {_build_event("unmatched")} }}
	}}
}}"""


def _build_other_count() -> str:
    """Return code for the kernel's accounting of operations without a class: count_unclassified() of
    bpf/block/rq.h."""
    return f"""\
if (($o == 0 || $o == {operation_key(FLUSH)}) && (uint64)$rq->part) {{
	if ((uint64)$rq->cmd_flags & 1) {{
		@stat_write_bytes[$t, $o] = sum($bytes);
		if ($bytes >= $left) {{ {_build_event("stat_writes")} }}
	}} else {{
		@stat_read_bytes[$t, $o] = sum($bytes);
		if ($bytes >= $left) {{ {_build_event("stat_reads")} }}
	}}
}}"""


def _wrap_if_watched(leaves: Sequence[Leaf], body: str) -> str:
    return f"{_build_lookup(leaves)}\nif ($t) {{\n{indent(body, chr(9))}\n}}"


def _build_probe(function: str, body: str) -> str:
    return f"{PROBE}{function}\n{{\n{indent(body, chr(9))}\n}}\n"


def build_script(leaves: Sequence[Leaf], batch_head: str | None, *, zone_resource: bool = False) -> str:
    """Return the script for these leaves.

    `batch_head` is the member path from a batch to its first request, or None without batches.
    `zone_resource`: the kernel has HAS_ZONE_RESOURCE_STATUS, see bpf/lib/kernel.h.
    """
    requeue = f"if (@start[(uint64)$rq]) {{\n\t@back[(uint64)$rq] = 1;\n\t{_build_event('requeued')}\n}}"
    parts = [
        f"BEGIN\n{{\n\t{FIRST_MAP} = 1;\n\t{LAST_MAP} = 1;\n{indent(_build_tables(leaves), chr(9))}\n}}\n",
        _build_probe("blk_mq_start_request", "$rq = args->rq;\n" + _wrap_if_watched(leaves, _build_issue())),
        _build_probe(
            "blk_update_request",
            "$rq = args->req;\n" + _wrap_if_watched(leaves, _build_completion(zone_resource)),
        ),
        _build_probe("__blk_mq_requeue_request", "$rq = args->rq;\n" + _wrap_if_watched(leaves, requeue)),
    ]
    if batch_head:
        completion = _wrap_if_watched(leaves, _build_batch_completion())
        loop = (
            f"$now = nsecs;\n$rq = args->iob->{batch_head};\n$i = 0;\nwhile ($i < {BATCH}) {{\n"
            f"\tif ((uint64)$rq == 0) {{ break; }}\n{indent(completion, chr(9))}\n"
            "\t$rq = $rq->rq_next;\n\t$i++;\n}"
        )
        parts.append(_build_probe("blk_mq_end_request_batch", loop))
    return "\n".join(parts)
