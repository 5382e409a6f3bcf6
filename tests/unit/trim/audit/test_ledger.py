"""The ledger's arithmetic, on counts from real stacks and on invented ones."""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opwatch.trim.audit.audit import Asked, Audit, ReadBack, Verdict
from opwatch.trim.audit.flow import Flow, Stage, Who
from opwatch.trim.audit.ledger import audit
from opwatch.trim.audit.verdicts import exit_status
from opwatch.trim.stack.causes import causes
from opwatch.trim.stack.dmtable import PoolMode
from opwatch.trim.stack.facts import LoopFacts
from opwatch.trim.stack.layers import Kind, Layer
from opwatch.trim.stale.sentinel import ReadsAs
from tests.unit.support.trim_evidence import (
    evidence,
    extents,
    flow,
    flows_of_log,
    layer,
    read_on,
    stack,
    through,
    with_facts,
    with_limit,
)

FIXTURES = Path(__file__).parents[3] / "fixtures" / "good" / "trim"
MIB = 1 << 20


def losses(result: Audit) -> dict[str, int | None]:
    return {reason.code: reason.lost_bytes for row in result.rows for reason in row.reasons}


def disk(provisioning_mode: str = "unmap") -> Layer:
    return layer("sda", "8:0", provisioning_mode=provisioning_mode)


def test_complete_trim_has_no_losses() -> None:
    flows = [extents("8:0", 100 * MIB, 3), *through("sda", "8:0", 100 * MIB)]
    result = audit(evidence(stack(disk()), flows, 100 * MIB), "/m")
    assert result.verdict is Verdict.ACCEPTED
    assert result.reached_bytes == result.claimed_bytes == 100 * MIB
    assert losses(result) == {}
    assert [reason.code for reason in result.reasons] == ["advisory"]
    assert [row.layer for row in result.rows] == ["filesystem", "disk", "granules"]


def test_extents_that_xfs_passes_over_are_not_lost() -> None:
    passed = flow(Stage.FS_PASSED, "8:0", 3 * MIB, count=70)
    flows = [extents("8:0", 100 * MIB, 100), passed, *through("sda", "8:0", 100 * MIB)]
    whole = evidence(stack(disk(), kind="xfs"), flows, 1 << 30)
    result = audit(whole, "/m")
    assert (losses(result), result.rows[0].bytes_in) == ({"xfs-passes-over": 3 * MIB}, 103 * MIB)
    assert (result.verdict, result.unexplained_bytes) == (Verdict.ACCEPTED, 0)
    # Extents outside the requested range are skipped correctly.
    ranged = replace(whole, asked=Asked(MIB, 200 * MIB))
    assert losses(audit(ranged, "/m")) == {}


def test_xfs_claims_the_requested_length() -> None:
    flows = [extents("8:0", 60 * MIB), *through("sda", "8:0", 60 * MIB)]
    result = audit(evidence(stack(disk(), kind="xfs"), flows, 1 << 30), "/m")
    assert result.verdict is Verdict.ACCEPTED
    assert "6.11" in result.claim
    assert result.unexplained_bytes == 0


def test_a_loop_device_that_stopped_taking_discards() -> None:
    """Linux 6.18, loop on overlay on ramfs: 30 extents, one request, fstrim reports 229.9 MiB."""
    text = (FIXTURES / "loop_runtime_eopnotsupp.txt").read_text()
    flows = flows_of_log(text, {"7:1": "loop1"}, 1024)
    before = stack(layer("loop1", "7:1", Kind.LOOP, max_bytes=4294966784, backing_file="/top/image"))
    result = audit(evidence(before, flows, 241067008, after=with_limit(before, "loop1", 0)), "/m")
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


def test_a_scsi_disk_that_rejects_the_command() -> None:
    """Linux 6.12, scsi_debug: one request fails with -121, the mode changes, the rest causes no event."""
    sent, tried = 240_852_992, 211_968
    before = stack(disk(provisioning_mode="writesame_16"))
    after = with_limit(with_facts(before, "sda", provisioning_mode="disabled"), "sda", 0)
    flows = [
        extents("8:0", sent, 30),
        flow(Stage.BIO, "8:0", tried, disk="sda"),
        flow(Stage.ISSUED, "8:0", tried, disk="sda"),
        flow(Stage.DONE, "8:0", tried, disk="sda", status=5),
    ]
    result = audit(evidence(before, flows, sent, after=after), "/m")
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
def test_nvme_error_is_a_lock_only_if_the_kernel_reports_one(status: int, read_only: bool, code: str) -> None:
    before = stack(replace(layer("nvme0n1", "8:0"), read_only=read_only))
    flows = [
        extents("8:0", 4 * MIB),
        flow(Stage.BIO, "8:0", 4 * MIB, disk="nvme0n1"),
        flow(Stage.ISSUED, "8:0", 4 * MIB, disk="nvme0n1"),
        flow(Stage.DONE, "8:0", 4 * MIB, disk="nvme0n1", status=status),
    ]
    result = audit(evidence(before, flows, 4 * MIB), "/m")
    assert losses(result) == {code: 4 * MIB}
    assert result.unexplained_bytes == 0


def test_loss_without_a_matching_cause_is_unexplained() -> None:
    flows = [extents("8:0", 10 * MIB), *through("sda", "8:0", 7 * MIB)]
    result = audit(evidence(stack(disk()), flows, 10 * MIB), "/m")
    assert result.verdict is Verdict.PARTIAL
    assert result.unexplained_bytes == 3 * MIB
    assert losses(result) == {}


def test_requests_missed_by_the_trace_prevent_a_verdict() -> None:
    flows = [
        extents("8:0", 10 * MIB),
        flow(Stage.BIO, "8:0", 10 * MIB, disk="sda"),
        flow(Stage.ISSUED, "8:0", 10 * MIB, disk="sda"),
        flow(Stage.DONE, "8:0", 9 * MIB, disk="sda"),
    ]
    result = audit(evidence(stack(disk()), flows, 10 * MIB, stats={"sda": (1, 10 * MIB)}), "/m")
    assert result.verdict is Verdict.UNKNOWN
    assert losses(result) == {"trace-lost": MIB}
    assert result.unexplained_bytes == 0


def test_a_refusal_names_the_layer_that_stops() -> None:
    crypt = layer("dm-0", "253:0", Kind.CRYPT, "sda", max_bytes=0, label="c0", allow_discards=False)
    result = audit(evidence(stack(crypt, disk()), [], None, error=errno.EOPNOTSUPP), "/m")
    assert result.verdict is Verdict.NOT_SENT
    assert list(losses(result)) == ["crypt-no-discards"]
    [reason] = result.rows[0].reasons
    assert "refresh c0" in reason.remedy


@pytest.mark.parametrize(
    ("error", "code"), [(errno.ENOTTY, "no-fitrim"), (errno.EROFS, "filesystem-refuses")]
)
def test_a_refusal_of_the_filesystem(error: int, code: str) -> None:
    result = audit(evidence(stack(disk()), [], None, error=error), "/m")
    assert (result.verdict, list(losses(result))) == (Verdict.NOT_SENT, [code])


def test_a_minimum_that_the_filesystem_refuses() -> None:
    given = replace(evidence(stack(disk()), [], None, error=errno.EINVAL), asked=Asked(minlen=200 * MIB))
    result = audit(given, "/m")
    assert (result.verdict, list(losses(result))) == (Verdict.NOT_SENT, ["below-minimum"])
    assert f"a minimum of {200 * MIB} B" in result.rows[0].reasons[0].observed


def test_thin_pool_passes_on_whole_chunks_only() -> None:
    """Linux 6.12: 687,316,992 B requested, 104,857,600 B passed on, 122 mapped chunks of 1 MiB fell to 24."""
    thin = layer("dm-3", "253:3", Kind.THIN, "dm-2", target="thin", granularity=MIB, mapped_bytes=122 * MIB)
    mode = PoolMode.READ_WRITE
    pool = layer("dm-2", "253:2", Kind.THIN_POOL, "dm-1", target="thin-pool", label="pool", mode=mode)
    data = layer("dm-1", "253:1", Kind.DM, "sda", target="linear")
    before = stack(thin, pool, data, disk())
    after = with_facts(before, "dm-3", mapped_bytes=22 * MIB)
    asked, passed = 687_316_992, 100 * MIB
    flows = [
        extents("253:3", asked, 6),
        flow(Stage.BIO, "253:3", asked, disk="dm-3", count=10, whole=asked - 493_568),
        flow(Stage.BIO, "253:2", passed, disk="dm-2", who=Who.KERNEL),
        flow(Stage.BIO, "253:1", passed, disk="dm-1", who=Who.KERNEL),
        *through("sda", "8:0", passed, who=Who.KERNEL),
    ]
    result = audit(evidence(before, flows, asked, after=after), "/m")
    assert losses(result) == {
        "thin-partial-chunk": 493_568,
        "thin-not-mapped": asked - 493_568 - passed,
    }
    assert result.unexplained_bytes == 0
    assert result.reached_bytes == passed


def thin_stack(mode: PoolMode, discards: str) -> tuple[Layer, ...]:
    return (
        layer("dm-3", "253:3", Kind.THIN, "dm-2", target="thin", granularity=MIB),
        layer(
            "dm-2",
            "253:2",
            Kind.THIN_POOL,
            "sda",
            target="thin-pool",
            label="pool",
            mode=mode,
            discards=discards,
        ),
        disk(),
    )


@pytest.mark.parametrize(
    ("facts", "code"),
    [
        ((PoolMode.READ_ONLY, "discard_passdown"), "thin-pool-read-only"),
        ((PoolMode.READ_WRITE, "no_discard_passdown"), "thin-no-passdown"),
    ],
)
def test_pool_that_drops_discards_explains_the_loss(facts: tuple[PoolMode, str], code: str) -> None:
    flows = [extents("253:3", 8 * MIB), flow(Stage.BIO, "253:3", 8 * MIB, disk="dm-3")]
    result = audit(evidence(stack(*thin_stack(*facts)), flows, 8 * MIB), "/m")
    assert (result.verdict, losses(result)) == (Verdict.NOT_SENT, {code: 8 * MIB})
    assert result.unexplained_bytes == 0


def test_a_cache_that_keeps_discards_to_itself() -> None:
    cache = layer("dm-0", "253:0", Kind.DM, "sda", target="cache", label="c", flags=("no_discard_passdown",))
    flows = [extents("253:0", 8 * MIB), flow(Stage.BIO, "253:0", 8 * MIB, disk="dm-0")]
    result = audit(evidence(stack(cache, disk()), flows, 8 * MIB), "/m")
    assert (result.verdict, losses(result)) == (Verdict.NOT_SENT, {"cache-no-passdown": 8 * MIB})
    assert result.unexplained_bytes == 0


def test_a_pool_that_fails_everything() -> None:
    """The pool's metadata failed, so every discard fails at the volume."""
    flows = [
        extents("253:3", 8 * MIB),
        flow(Stage.BIO, "253:3", 8 * MIB, disk="dm-3"),
        flow(Stage.BIO_DONE, "253:3", 8 * MIB, disk="dm-3", status=10),
    ]
    result = audit(evidence(stack(*thin_stack(PoolMode.FAIL, "")), flows, 0), "/m")
    assert (result.verdict, losses(result)) == (Verdict.REJECTED, {"thin-pool-read-only": 8 * MIB})
    assert result.unexplained_bytes == 0


def mirror(second: Layer) -> tuple[Layer, ...]:
    return layer("md0", "9:0", Kind.MD, "sda", "sdb", level="raid1"), disk(), second


def test_both_legs_of_a_mirror_count() -> None:
    flows = [
        extents("9:0", 5 * MIB),
        flow(Stage.BIO, "9:0", 5 * MIB, disk="md0"),
        *through("sda", "8:0", 5 * MIB),
        *through("sdb", "8:16", 5 * MIB),
    ]
    result = audit(evidence(stack(*mirror(layer("sdb", "8:16"))), flows, 5 * MIB), "/m")
    assert (result.verdict, result.unexplained_bytes) == (Verdict.ACCEPTED, 0)
    assert result.reached_bytes == 10 * MIB
    half = audit(evidence(stack(*mirror(layer("sdb", "8:16", max_bytes=0))), flows[:5], 5 * MIB), "/m")
    assert half.verdict is Verdict.PARTIAL
    assert losses(half) == {"member-no-discards": 5 * MIB}


def test_missing_member_does_not_fail_the_trim() -> None:
    """A RAID 1 of two and a RAID 10 of four disks; bytes beyond the missing member's share stay
    unexplained."""
    one = layer("md0", "9:0", Kind.MD, "sda", level="raid1", raid_disks=2, degraded=1)
    sent = [extents("9:0", 5 * MIB), flow(Stage.BIO, "9:0", 5 * MIB, disk="md0")]
    result = audit(evidence(stack(one, disk()), [*sent, *through("sda", "8:0", 5 * MIB)], 5 * MIB), "/m")
    assert (result.verdict, result.unexplained_bytes) == (Verdict.ACCEPTED, 0)
    assert losses(result) == {"member-missing": 5 * MIB}
    # A member that fails during the trim is missing as well.
    failing = evidence(
        with_facts(stack(one, disk()), "md0", degraded=0),
        [*sent, *through("sda", "8:0", 5 * MIB)],
        5 * MIB,
        after=stack(one, disk()),
    )
    assert losses(audit(failing, "/m")) == {"member-missing": 5 * MIB}
    members = {"sda": "8:0", "sdb": "8:16", "sdc": "8:32"}
    ten = layer("md0", "9:0", Kind.MD, *members, level="raid10", layout=0x102, raid_disks=4, degraded=1)
    below = [one_flow for name, dev in members.items() for one_flow in through(name, dev, 2 * MIB)]
    disks = [layer(name, dev) for name, dev in members.items()]
    short = audit(evidence(stack(ten, *disks), [*sent, *below], 5 * MIB), "/m")
    assert losses(short) == {"member-missing": 2 * MIB}
    assert (short.verdict, short.unexplained_bytes) == (Verdict.PARTIAL, 2 * MIB)


def test_granules_of_the_device() -> None:
    """Linux 6.12, scsi_debug with granules of 1 MiB: some completed bytes free nothing."""
    flows = [extents("8:0", 210_485_248), *through("sda", "8:0", 210_485_248, whole=172 * MIB)]
    result = audit(evidence(stack(layer("sda", "8:0", granularity=MIB)), flows, 210_485_248), "/m")
    assert result.verdict is Verdict.PARTIAL
    assert losses(result) == {"device-rounds": 210_485_248 - 172 * MIB}
    assert result.reached_bytes == 172 * MIB


def test_a_loop_device_has_no_partition_to_align() -> None:
    """The same code as the prediction, except for a simulated drive, which has its own granules."""
    flows = [extents("7:0", 9 * MIB + 1024), *through("loop0", "7:0", 9 * MIB + 1024, whole=9 * MIB)]
    loop = layer("loop0", "7:0", Kind.LOOP, backing_file="/disk.img", backing_filesystem="xfs")
    result = audit(evidence(stack(loop), flows, 9 * MIB + 1024), "/m")
    assert losses(result) == {"loop-partial-block": 1024}
    assert result.verdict is Verdict.PARTIAL
    assert "/disk.img" in result.rows[-1].reasons[0].remedy
    drive = replace(loop, facts=replace(loop.facts_as(LoopFacts), simulated_drive=True))
    assert losses(audit(evidence(stack(drive), flows, 9 * MIB + 1024), "/m")) == {"device-rounds": 1024}


def test_a_path_below_a_multipath_head() -> None:
    """Requests of a path have a device number that is reported nowhere."""
    head = layer("nvme0n1", "259:1", Kind.MULTIPATH, "nvme0c0n1")
    path = layer("nvme0c0n1", "0:0")
    flows = [
        extents("259:1", 9 * MIB),
        flow(Stage.BIO, "259:1", 9 * MIB, disk="nvme0n1"),
        *(
            flow(stage, "259:0", 9 * MIB, disk="nvme0c0n1")
            for stage in (Stage.REMAPPED, Stage.ISSUED, Stage.DONE)
        ),
    ]
    result = audit(evidence(stack(head, path), flows, 9 * MIB), "/m")
    assert (result.verdict, result.reached_bytes, result.unexplained_bytes) == (Verdict.ACCEPTED, 9 * MIB, 0)


def test_trims_by_other_processes_are_not_counted() -> None:
    foreign = [flow(Stage.DONE, "8:0", MIB, disk="sda", who=Who.OTHER)]
    flows = [extents("8:0", 2 * MIB), *through("sda", "8:0", 2 * MIB), *foreign]
    result = audit(evidence(stack(disk()), flows, 2 * MIB), "/m")
    assert result.reached_bytes == 2 * MIB


def test_btrfs_without_functions_reports_unknown_bytes() -> None:
    before = stack(disk(), kind="btrfs")
    flows = through("sda", "8:0", 2 * MIB)
    result = audit(evidence(before, flows, 2 * MIB, absent=["discard_asked"]), "/m")
    assert result.rows[0].bytes_out is None
    assert "functions" in (result.rows[0].unknown or "")
    assert result.verdict is Verdict.ACCEPTED


def test_second_trim_of_ext4_has_no_bytes_left() -> None:
    flows = [flow(Stage.FS_GROUP, "8:0", 0, count=4)]
    result = audit(evidence(stack(disk()), flows, 0), "/m")
    assert (result.verdict, list(losses(result))) == (Verdict.NOTHING_LEFT, ["ext4-already-trimmed"])
    assert result.rows[0].reasons[0].advice[1] == "opwatch trim audit --prove /m"


def test_filesystem_with_no_bytes_left_to_trim_is_a_success() -> None:
    nothing = audit(evidence(stack(disk(), kind="xfs"), [], 0), "/m")
    assert nothing.verdict is Verdict.NOTHING_LEFT
    assert exit_status([nothing.verdict]) == 0
    assert exit_status([nothing.verdict, Verdict.NOT_SENT]) == 64
    refused = audit(evidence(stack(disk()), [], 0, error=errno.EIO), "/m")
    assert refused.verdict is Verdict.NOT_SENT
    watched = replace(evidence(stack(disk()), [], 0), answer=None)
    assert audit(watched, "/m").verdict is Verdict.NOT_SENT
    small = replace(evidence(stack(disk()), [], 0), asked=Asked(minlen=200 * MIB))
    assert audit(small, "/m").verdict is Verdict.NOT_SENT


def test_interrupted_trim_is_partial_with_a_reason() -> None:
    flows = [extents("8:0", MIB), *through("sda", "8:0", MIB)]
    result = audit(evidence(stack(disk()), flows, None, interrupted=True), "/m")
    assert list(losses(result)) == ["interrupted"]
    assert result.verdict is Verdict.PARTIAL


@pytest.mark.parametrize(
    ("read_back", "verdict"),
    [
        (read_on({"sda": {ReadsAs.ZEROS: MIB}}), Verdict.PROVEN),
        (read_on({"sda": {ReadsAs.ZEROS: MIB, ReadsAs.UNCHANGED: 4096}}), Verdict.PARTIAL),
        (read_on({"sda": {ReadsAs.UNCHANGED: MIB}}), Verdict.UNKNOWN),
        (ReadBack({}, "no head-room"), Verdict.ACCEPTED),
    ],
)
def test_reading_back_decides(read_back: ReadBack, verdict: Verdict) -> None:
    flows = [extents("8:0", MIB), *through("sda", "8:0", MIB)]
    assert audit(evidence(stack(disk()), flows, MIB, read_back=read_back), "/m").verdict is verdict


@st.composite
def _flows(draw: st.DrawFn) -> list[Flow]:
    amounts = draw(st.lists(st.integers(0, 1 << 40), min_size=5, max_size=5))
    sent, queued, issued, done, failed = sorted(amounts, reverse=True)
    return [
        extents("8:0", sent),
        flow(Stage.BIO, "8:0", queued, disk="sda"),
        flow(Stage.ISSUED, "8:0", issued, disk="sda"),
        flow(Stage.DONE, "8:0", done - failed, disk="sda"),
        flow(Stage.DONE, "8:0", failed, disk="sda", status=10),
    ]


@settings(deadline=None)
@given(_flows(), st.integers(0, 1 << 40), st.booleans())
def test_every_byte_has_a_reason_or_is_unexplained(flows: list[Flow], counted: int, latched: bool) -> None:
    before = stack(disk())
    after = with_limit(before, "sda", 0) if latched else before
    result = audit(evidence(before, flows, 0, after=after, stats={"sda": (1, counted)}), "/m")
    device = next(row for row in result.rows if row.layer == "disk")
    explained = sum(reason.lost_bytes or 0 for reason in device.reasons)
    assert device.bytes_in is not None
    assert device.bytes_ok is not None
    assert device.bytes_in == device.bytes_ok + explained + device.unexplained_bytes
    assert result.unexplained_bytes >= 0
    assert all(reason.code in causes() for row in result.rows for reason in row.reasons)
