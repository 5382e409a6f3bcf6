"""The ledger's arithmetic, on counts from real stacks and on invented ones."""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opwatch.trim.audit.audit import Asked, Audit, ReadBack, Verdict
from opwatch.trim.audit.flow import Flow, SenderKind, Stage
from opwatch.trim.audit.ledger import build_audit
from opwatch.trim.audit.verdicts import exit_status
from opwatch.trim.layers.loop import LoopFacts
from opwatch.trim.stack.causes import load_causes
from opwatch.trim.stack.dmtable import PoolMode
from opwatch.trim.stack.layers import Kind, Layer
from opwatch.trim.stale.sentinel import ReadsAs
from tests.unit.support.trim_evidence import (
    make_disk_flows,
    make_evidence,
    make_extent_flow,
    make_flow,
    make_layer,
    make_read_back,
    make_stack,
    parse_flows,
    with_facts,
    with_limit,
)

FIXTURES = Path(__file__).parents[3] / "fixtures" / "good" / "trim"
MIB = 1 << 20


def map_losses(result: Audit) -> dict[str, int | None]:
    return {reason.code: reason.lost_bytes for row in result.rows for reason in row.reasons}


def make_disk(provisioning_mode: str = "unmap") -> Layer:
    return make_layer("sda", "8:0", provisioning_mode=provisioning_mode)


def test_complete_trim_has_no_losses() -> None:
    flows = [make_extent_flow("8:0", 100 * MIB, 3), *make_disk_flows("sda", "8:0", 100 * MIB)]
    result = build_audit(make_evidence(make_stack(make_disk()), flows, 100 * MIB), "/m")
    assert result.verdict is Verdict.ACCEPTED
    assert result.reached_bytes == result.claimed_bytes == 100 * MIB
    assert map_losses(result) == {}
    assert [reason.code for reason in result.reasons] == ["advisory"]
    assert [row.layer for row in result.rows] == ["filesystem", "disk", "granules"]


def test_extents_skipped_by_xfs_are_not_lost() -> None:
    passed = make_flow(Stage.FS_OUTSIDE, "8:0", 3 * MIB, count=70)
    flows = [make_extent_flow("8:0", 100 * MIB, 100), passed, *make_disk_flows("sda", "8:0", 100 * MIB)]
    whole = make_evidence(make_stack(make_disk(), kind="xfs"), flows, 1 << 30)
    result = build_audit(whole, "/m")
    assert (map_losses(result), result.rows[0].bytes_in) == ({"xfs-passes-over": 3 * MIB}, 103 * MIB)
    assert (result.verdict, result.unexplained_bytes) == (Verdict.ACCEPTED, 0)
    # Extents outside the requested range are skipped correctly.
    ranged = replace(whole, asked=Asked(MIB, 200 * MIB))
    assert map_losses(build_audit(ranged, "/m")) == {}


def test_xfs_claims_the_requested_length() -> None:
    flows = [make_extent_flow("8:0", 60 * MIB), *make_disk_flows("sda", "8:0", 60 * MIB)]
    result = build_audit(make_evidence(make_stack(make_disk(), kind="xfs"), flows, 1 << 30), "/m")
    assert result.verdict is Verdict.ACCEPTED
    assert "6.11" in result.claim
    assert result.unexplained_bytes == 0


def test_loop_device_that_stopped_accepting_discards_is_rejected() -> None:
    """Linux 6.18, loop on overlay on ramfs: 30 extents, one request, fstrim reports 229.9 MiB."""
    text = (FIXTURES / "loop_runtime_eopnotsupp.txt").read_text()
    flows = parse_flows(text, {"7:1": "loop1"}, 1024)
    before = make_stack(
        make_layer("loop1", "7:1", Kind.LOOP, max_bytes=4294966784, backing_file="/top/image")
    )
    result = build_audit(make_evidence(before, flows, 241067008, after=with_limit(before, "loop1", 0)), "/m")
    assert result.verdict is Verdict.REJECTED
    assert result.reached_bytes == 0
    fs, device = result.rows
    assert (fs.bytes_out, fs.requests) == (241067008, 30)
    assert (device.bytes_in, device.bytes_ok, device.requests) == (241067008, 0, 1)
    assert device.errors == {"not supported": 414 * 512}
    assert [(reason.code, reason.lost_bytes) for reason in device.reasons] == [
        ("loop-no-punch", 241067008 - 414 * 512),
        ("loop-no-punch", 414 * 512),
    ]
    assert result.unexplained_bytes == 0


def test_scsi_disk_that_rejects_the_command_is_explained() -> None:
    """Linux 6.12, scsi_debug: one request fails with -121, the mode changes, the rest causes no event."""
    sent, tried = 240_852_992, 211_968
    before = make_stack(make_disk(provisioning_mode="writesame_16"))
    after = with_limit(with_facts(before, "sda", provisioning_mode="disabled"), "sda", 0)
    flows = [
        make_extent_flow("8:0", sent, 30),
        make_flow(Stage.BIO, "8:0", tried, disk="sda"),
        make_flow(Stage.ISSUED, "8:0", tried, disk="sda"),
        make_flow(Stage.DONE, "8:0", tried, disk="sda", status=5),
    ]
    result = build_audit(make_evidence(before, flows, sent, after=after), "/m")
    assert result.verdict is Verdict.REJECTED
    assert {reason.code for row in result.rows for reason in row.reasons} == {"scsi-disabled"}
    assert result.unexplained_bytes == 0
    assert [change.fact for change in result.changes] == ["max_bytes", "max_hw_bytes", "provisioning_mode"]


@pytest.mark.parametrize(
    ("status", "read_only", "code"),
    [
        (1, False, "nvme-refused"),
        (6, False, "nvme-locked"),
        (7, False, "nvme-failed"),
        (10, False, "nvme-failed"),
        (2, False, "nvme-failed"),
        (10, True, "nvme-locked"),
    ],
)
def test_nvme_error_counts_as_a_lock_only_if_the_kernel_reports_a_lock(
    status: int, read_only: bool, code: str
) -> None:
    before = make_stack(replace(make_layer("nvme0n1", "8:0"), read_only=read_only))
    flows = [
        make_extent_flow("8:0", 4 * MIB),
        make_flow(Stage.BIO, "8:0", 4 * MIB, disk="nvme0n1"),
        make_flow(Stage.ISSUED, "8:0", 4 * MIB, disk="nvme0n1"),
        make_flow(Stage.DONE, "8:0", 4 * MIB, disk="nvme0n1", status=status),
    ]
    result = build_audit(make_evidence(before, flows, 4 * MIB), "/m")
    assert map_losses(result) == {code: 4 * MIB}
    assert result.unexplained_bytes == 0


def test_loss_without_a_matching_cause_is_unexplained() -> None:
    flows = [make_extent_flow("8:0", 10 * MIB), *make_disk_flows("sda", "8:0", 7 * MIB)]
    result = build_audit(make_evidence(make_stack(make_disk()), flows, 10 * MIB), "/m")
    assert result.verdict is Verdict.PARTIAL
    assert result.unexplained_bytes == 3 * MIB
    assert map_losses(result) == {}


def test_requests_missed_by_the_trace_prevent_a_verdict() -> None:
    flows = [
        make_extent_flow("8:0", 10 * MIB),
        make_flow(Stage.BIO, "8:0", 10 * MIB, disk="sda"),
        make_flow(Stage.ISSUED, "8:0", 10 * MIB, disk="sda"),
        make_flow(Stage.DONE, "8:0", 9 * MIB, disk="sda"),
    ]
    result = build_audit(
        make_evidence(make_stack(make_disk()), flows, 10 * MIB, stats={"sda": (1, 10 * MIB)}), "/m"
    )
    assert result.verdict is Verdict.UNKNOWN
    assert map_losses(result) == {"trace-lost": MIB}
    assert result.unexplained_bytes == 0


def test_refusal_names_the_layer_that_stops_discards() -> None:
    crypt = make_layer("dm-0", "253:0", Kind.CRYPT, "sda", max_bytes=0, label="c0", allow_discards=False)
    result = build_audit(
        make_evidence(make_stack(crypt, make_disk()), [], None, error=errno.EOPNOTSUPP), "/m"
    )
    assert result.verdict is Verdict.NOT_SENT
    assert list(map_losses(result)) == ["crypt-no-discards"]
    [reason] = result.rows[0].reasons
    assert "refresh c0" in reason.remedy


@pytest.mark.parametrize(
    ("error", "code"), [(errno.ENOTTY, "no-fitrim"), (errno.EROFS, "filesystem-refuses")]
)
def test_filesystem_refusal_is_reported_as_not_sent(error: int, code: str) -> None:
    result = build_audit(make_evidence(make_stack(make_disk()), [], None, error=error), "/m")
    assert (result.verdict, list(map_losses(result))) == (Verdict.NOT_SENT, [code])


def test_refused_minimum_is_reported_as_below_minimum() -> None:
    given = replace(
        make_evidence(make_stack(make_disk()), [], None, error=errno.EINVAL), asked=Asked(minlen=200 * MIB)
    )
    result = build_audit(given, "/m")
    assert (result.verdict, list(map_losses(result))) == (Verdict.NOT_SENT, ["below-minimum"])
    assert f" {200 * MIB} B" in result.rows[0].reasons[0].observed


def test_thin_pool_passes_on_whole_chunks_only() -> None:
    """Linux 6.12: 687,316,992 B requested, 104,857,600 B passed on, 122 mapped chunks of 1 MiB fell to 24."""
    thin = make_layer(
        "dm-3", "253:3", Kind.THIN, "dm-2", target="thin", granularity=MIB, mapped_bytes=122 * MIB
    )
    mode = PoolMode.READ_WRITE
    pool = make_layer("dm-2", "253:2", Kind.THIN_POOL, "dm-1", target="thin-pool", label="pool", mode=mode)
    data = make_layer("dm-1", "253:1", Kind.DM, "sda", target="linear")
    before = make_stack(thin, pool, data, make_disk())
    after = with_facts(before, "dm-3", mapped_bytes=22 * MIB)
    asked, passed = 687_316_992, 100 * MIB
    flows = [
        make_extent_flow("253:3", asked, 6),
        make_flow(Stage.BIO, "253:3", asked, disk="dm-3", count=10, whole=asked - 493_568),
        make_flow(Stage.BIO, "253:2", passed, disk="dm-2", who=SenderKind.KERNEL),
        make_flow(Stage.BIO, "253:1", passed, disk="dm-1", who=SenderKind.KERNEL),
        *make_disk_flows("sda", "8:0", passed, who=SenderKind.KERNEL),
    ]
    result = build_audit(make_evidence(before, flows, asked, after=after), "/m")
    assert map_losses(result) == {
        "thin-partial-chunk": 493_568,
        "thin-not-mapped": asked - 493_568 - passed,
    }
    assert result.unexplained_bytes == 0
    assert result.reached_bytes == passed


def make_thin_layers(mode: PoolMode, discards: str) -> tuple[Layer, ...]:
    return (
        make_layer("dm-3", "253:3", Kind.THIN, "dm-2", target="thin", granularity=MIB),
        make_layer(
            "dm-2",
            "253:2",
            Kind.THIN_POOL,
            "sda",
            target="thin-pool",
            label="pool",
            mode=mode,
            discards=discards,
        ),
        make_disk(),
    )


@pytest.mark.parametrize(
    ("facts", "code"),
    [
        ((PoolMode.READ_ONLY, "discard_passdown"), "thin-pool-read-only"),
        ((PoolMode.READ_WRITE, "no_discard_passdown"), "thin-no-passdown"),
    ],
)
def test_pool_that_drops_discards_explains_the_loss(facts: tuple[PoolMode, str], code: str) -> None:
    flows = [make_extent_flow("253:3", 8 * MIB), make_flow(Stage.BIO, "253:3", 8 * MIB, disk="dm-3")]
    result = build_audit(make_evidence(make_stack(*make_thin_layers(*facts)), flows, 8 * MIB), "/m")
    assert (result.verdict, map_losses(result)) == (Verdict.NOT_SENT, {code: 8 * MIB})
    assert result.unexplained_bytes == 0


def test_cache_without_passdown_explains_the_loss() -> None:
    cache = make_layer(
        "dm-0", "253:0", Kind.DM, "sda", target="cache", label="c", flags=("no_discard_passdown",)
    )
    flows = [make_extent_flow("253:0", 8 * MIB), make_flow(Stage.BIO, "253:0", 8 * MIB, disk="dm-0")]
    result = build_audit(make_evidence(make_stack(cache, make_disk()), flows, 8 * MIB), "/m")
    assert (result.verdict, map_losses(result)) == (Verdict.NOT_SENT, {"cache-no-passdown": 8 * MIB})
    assert result.unexplained_bytes == 0


def test_failed_pool_rejects_every_discard() -> None:
    """The pool's metadata failed, so every discard fails at the volume."""
    flows = [
        make_extent_flow("253:3", 8 * MIB),
        make_flow(Stage.BIO, "253:3", 8 * MIB, disk="dm-3"),
        make_flow(Stage.BIO_DONE, "253:3", 8 * MIB, disk="dm-3", status=10),
    ]
    result = build_audit(make_evidence(make_stack(*make_thin_layers(PoolMode.FAIL, "")), flows, 0), "/m")
    assert (result.verdict, map_losses(result)) == (Verdict.REJECTED, {"thin-pool-read-only": 8 * MIB})
    assert result.unexplained_bytes == 0


def make_mirror(second: Layer) -> tuple[Layer, ...]:
    return make_layer("md0", "9:0", Kind.MD, "sda", "sdb", level="raid1"), make_disk(), second


def test_both_mirror_legs_are_counted() -> None:
    flows = [
        make_extent_flow("9:0", 5 * MIB),
        make_flow(Stage.BIO, "9:0", 5 * MIB, disk="md0"),
        *make_disk_flows("sda", "8:0", 5 * MIB),
        *make_disk_flows("sdb", "8:16", 5 * MIB),
    ]
    result = build_audit(
        make_evidence(make_stack(*make_mirror(make_layer("sdb", "8:16"))), flows, 5 * MIB), "/m"
    )
    assert (result.verdict, result.unexplained_bytes) == (Verdict.ACCEPTED, 0)
    assert result.reached_bytes == 10 * MIB
    half = build_audit(
        make_evidence(make_stack(*make_mirror(make_layer("sdb", "8:16", max_bytes=0))), flows[:5], 5 * MIB),
        "/m",
    )
    assert half.verdict is Verdict.PARTIAL
    assert map_losses(half) == {"member-no-discards": 5 * MIB}


def test_missing_member_does_not_fail_the_trim() -> None:
    """A RAID 1 of two and a RAID 10 of four disks; bytes beyond the missing member's share stay
    unexplained."""
    one = make_layer("md0", "9:0", Kind.MD, "sda", level="raid1", raid_disks=2, degraded=1)
    sent = [make_extent_flow("9:0", 5 * MIB), make_flow(Stage.BIO, "9:0", 5 * MIB, disk="md0")]
    result = build_audit(
        make_evidence(
            make_stack(one, make_disk()), [*sent, *make_disk_flows("sda", "8:0", 5 * MIB)], 5 * MIB
        ),
        "/m",
    )
    assert (result.verdict, result.unexplained_bytes) == (Verdict.ACCEPTED, 0)
    assert map_losses(result) == {"member-missing": 5 * MIB}
    # A member that fails during the trim is missing as well.
    failing = make_evidence(
        with_facts(make_stack(one, make_disk()), "md0", degraded=0),
        [*sent, *make_disk_flows("sda", "8:0", 5 * MIB)],
        5 * MIB,
        after=make_stack(one, make_disk()),
    )
    assert map_losses(build_audit(failing, "/m")) == {"member-missing": 5 * MIB}
    members = {"sda": "8:0", "sdb": "8:16", "sdc": "8:32"}
    ten = make_layer("md0", "9:0", Kind.MD, *members, level="raid10", layout=0x102, raid_disks=4, degraded=1)
    below = [one_flow for name, dev in members.items() for one_flow in make_disk_flows(name, dev, 2 * MIB)]
    disks = [make_layer(name, dev) for name, dev in members.items()]
    short = build_audit(make_evidence(make_stack(ten, *disks), [*sent, *below], 5 * MIB), "/m")
    assert map_losses(short) == {"member-missing": 2 * MIB}
    assert (short.verdict, short.unexplained_bytes) == (Verdict.PARTIAL, 2 * MIB)


def test_partial_device_granules_are_not_reached() -> None:
    """Linux 6.12, scsi_debug with granules of 1 MiB: some completed bytes free nothing."""
    flows = [
        make_extent_flow("8:0", 210_485_248),
        *make_disk_flows("sda", "8:0", 210_485_248, whole=172 * MIB),
    ]
    result = build_audit(
        make_evidence(make_stack(make_layer("sda", "8:0", granularity=MIB)), flows, 210_485_248), "/m"
    )
    assert result.verdict is Verdict.PARTIAL
    assert map_losses(result) == {"device-rounds": 210_485_248 - 172 * MIB}
    assert result.reached_bytes == 172 * MIB


def test_partial_block_is_attributed_to_the_loop_device() -> None:
    """The same code as the prediction, except for a simulated drive, which has its own granules."""
    flows = [
        make_extent_flow("7:0", 9 * MIB + 1024),
        *make_disk_flows("loop0", "7:0", 9 * MIB + 1024, whole=9 * MIB),
    ]
    loop = make_layer("loop0", "7:0", Kind.LOOP, backing_file="/disk.img", backing_filesystem="xfs")
    result = build_audit(make_evidence(make_stack(loop), flows, 9 * MIB + 1024), "/m")
    assert map_losses(result) == {"loop-partial-block": 1024}
    assert result.verdict is Verdict.PARTIAL
    assert "/disk.img" in result.rows[-1].reasons[0].remedy
    drive = replace(loop, facts=replace(loop.facts_as(LoopFacts), simulated_drive=True))
    assert map_losses(build_audit(make_evidence(make_stack(drive), flows, 9 * MIB + 1024), "/m")) == {
        "device-rounds": 1024
    }


def test_requests_of_a_multipath_path_are_counted() -> None:
    """Requests of a path have a device number that is reported nowhere."""
    head = make_layer("nvme0n1", "259:1", Kind.MULTIPATH, "nvme0c0n1")
    path = make_layer("nvme0c0n1", "0:0")
    flows = [
        make_extent_flow("259:1", 9 * MIB),
        make_flow(Stage.BIO, "259:1", 9 * MIB, disk="nvme0n1"),
        *(
            make_flow(stage, "259:0", 9 * MIB, disk="nvme0c0n1")
            for stage in (Stage.REMAPPED, Stage.ISSUED, Stage.DONE)
        ),
    ]
    result = build_audit(make_evidence(make_stack(head, path), flows, 9 * MIB), "/m")
    assert (result.verdict, result.reached_bytes, result.unexplained_bytes) == (Verdict.ACCEPTED, 9 * MIB, 0)


def test_trims_by_other_processes_are_not_counted() -> None:
    foreign = [make_flow(Stage.DONE, "8:0", MIB, disk="sda", who=SenderKind.OTHER)]
    flows = [make_extent_flow("8:0", 2 * MIB), *make_disk_flows("sda", "8:0", 2 * MIB), *foreign]
    result = build_audit(make_evidence(make_stack(make_disk()), flows, 2 * MIB), "/m")
    assert result.reached_bytes == 2 * MIB


def test_btrfs_without_functions_reports_unknown_bytes() -> None:
    before = make_stack(make_disk(), kind="btrfs")
    flows = make_disk_flows("sda", "8:0", 2 * MIB)
    result = build_audit(make_evidence(before, flows, 2 * MIB, absent=["discard_asked"]), "/m")
    assert result.rows[0].bytes_out is None
    assert "tracing" in (result.rows[0].unknown or "")
    assert result.verdict is Verdict.ACCEPTED


def test_second_trim_of_ext4_has_no_bytes_left() -> None:
    flows = [make_flow(Stage.FS_GROUP, "8:0", 0, count=4)]
    result = build_audit(make_evidence(make_stack(make_disk()), flows, 0), "/m")
    assert (result.verdict, list(map_losses(result))) == (Verdict.NOTHING_LEFT, ["ext4-already-trimmed"])
    assert result.rows[0].reasons[0].advice[1] == "opwatch trim audit --prove /m"


def test_filesystem_with_no_bytes_left_to_trim_is_a_success() -> None:
    nothing = build_audit(make_evidence(make_stack(make_disk(), kind="xfs"), [], 0), "/m")
    assert nothing.verdict is Verdict.NOTHING_LEFT
    assert exit_status([nothing.verdict]) == 0
    assert exit_status([nothing.verdict, Verdict.NOT_SENT]) == 64
    refused = build_audit(make_evidence(make_stack(make_disk()), [], 0, error=errno.EIO), "/m")
    assert refused.verdict is Verdict.NOT_SENT
    watched = replace(make_evidence(make_stack(make_disk()), [], 0), answer=None)
    assert build_audit(watched, "/m").verdict is Verdict.NOT_SENT
    small = replace(make_evidence(make_stack(make_disk()), [], 0), asked=Asked(minlen=200 * MIB))
    assert build_audit(small, "/m").verdict is Verdict.NOT_SENT


def test_interrupted_trim_is_partial_with_a_reason() -> None:
    flows = [make_extent_flow("8:0", MIB), *make_disk_flows("sda", "8:0", MIB)]
    result = build_audit(make_evidence(make_stack(make_disk()), flows, None, interrupted=True), "/m")
    assert list(map_losses(result)) == ["interrupted"]
    assert result.verdict is Verdict.PARTIAL


@pytest.mark.parametrize(
    ("read_back", "verdict"),
    [
        (make_read_back({"sda": {ReadsAs.ZEROS: MIB}}), Verdict.PROVEN),
        (make_read_back({"sda": {ReadsAs.ZEROS: MIB, ReadsAs.UNCHANGED: 4096}}), Verdict.PARTIAL),
        (make_read_back({"sda": {ReadsAs.UNCHANGED: MIB}}), Verdict.UNKNOWN),
        (ReadBack({}, "no head-room"), Verdict.ACCEPTED),
    ],
)
def test_read_back_decides_the_verdict(read_back: ReadBack, verdict: Verdict) -> None:
    flows = [make_extent_flow("8:0", MIB), *make_disk_flows("sda", "8:0", MIB)]
    assert (
        build_audit(make_evidence(make_stack(make_disk()), flows, MIB, read_back=read_back), "/m").verdict
        is verdict
    )


@st.composite
def _draw_flows(draw: st.DrawFn) -> list[Flow]:
    amounts = draw(st.lists(st.integers(0, 1 << 40), min_size=5, max_size=5))
    sent, queued, issued, done, failed = sorted(amounts, reverse=True)
    return [
        make_extent_flow("8:0", sent),
        make_flow(Stage.BIO, "8:0", queued, disk="sda"),
        make_flow(Stage.ISSUED, "8:0", issued, disk="sda"),
        make_flow(Stage.DONE, "8:0", done - failed, disk="sda"),
        make_flow(Stage.DONE, "8:0", failed, disk="sda", status=10),
    ]


@settings(deadline=None)
@given(_draw_flows(), st.integers(0, 1 << 40), st.booleans())
def test_every_byte_has_a_reason_or_is_unexplained(flows: list[Flow], counted: int, latched: bool) -> None:
    before = make_stack(make_disk())
    after = with_limit(before, "sda", 0) if latched else before
    result = build_audit(make_evidence(before, flows, 0, after=after, stats={"sda": (1, counted)}), "/m")
    device = next(row for row in result.rows if row.layer == "disk")
    explained = sum(reason.lost_bytes or 0 for reason in device.reasons)
    assert device.bytes_in is not None
    assert device.bytes_ok is not None
    assert device.bytes_in == device.bytes_ok + explained + device.unexplained_bytes
    assert result.unexplained_bytes >= 0
    assert all(reason.code in load_causes() for row in result.rows for reason in row.reasons)
