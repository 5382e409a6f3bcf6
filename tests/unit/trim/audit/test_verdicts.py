"""Invariants of the verdict: no verdict claims more than the discards that reached the disks."""

from __future__ import annotations

import errno
from dataclasses import replace

from opwatch.sinks.wrapping import wrap_advice
from opwatch.tools.runs.trimming import stack_after
from opwatch.trim.audit.audit import Audit, ReadBack, Verdict
from opwatch.trim.audit.flow import Flow, SenderKind, Stage
from opwatch.trim.audit.ledger import build_audit
from opwatch.trim.audit.verdicts import exit_status
from opwatch.trim.stack.causes import make_reason
from opwatch.trim.stack.dmtable import DmTarget
from opwatch.trim.stack.layers import Kind, Layer, Stack
from tests.unit.support.trim_evidence import (
    make_disk_flows,
    make_evidence,
    make_extent_flow,
    make_flow,
    make_layer,
    make_stack,
)

MIB = 1 << 20


def list_codes(result: Audit) -> list[str]:
    return [reason.code for row in result.rows for reason in row.reasons]


def make_dm_layer(
    device: str, dev: str, *below: str, target: str = "linear", arguments: str = "", max_bytes: int = 1 << 31
) -> Layer:
    table = (DmTarget(0, 2048, target, tuple(arguments.split())),)
    made = make_layer(device, dev, Kind.DM, *below, target=target, label=device, max_bytes=max_bytes)
    return replace(made, table=table)


def make_handed_flow(source: str, disk: str, n_bytes: int) -> Flow:
    return make_flow(Stage.REMAPPED_FROM, source, n_bytes, disk=disk)


FLAKEY = "8:0 0 0 100 1 drop_writes"


def make_disk_and_flakey() -> Stack:
    """A linear table: the first half is the disk, the second a flakey device on the same disk."""
    return make_stack(
        make_dm_layer("dm-1", "253:1", "dm-0", "sda"),
        make_dm_layer("dm-0", "253:0", "sda", target="flakey", arguments=FLAKEY),
        make_layer("sda", "8:0"),
    )


def test_bytes_of_another_path_do_not_replace_dropped_bytes() -> None:
    flows = [
        make_extent_flow("253:1", 100 * MIB),
        make_flow(Stage.BIO, "253:1", 100 * MIB, disk="dm-1"),
        make_flow(Stage.BIO, "253:0", 50 * MIB, disk="dm-0"),
        make_handed_flow("253:1", "dm-0", 50 * MIB),
        make_handed_flow("253:1", "sda", 50 * MIB),
        *make_disk_flows("sda", "8:0", 50 * MIB),
    ]
    result = build_audit(make_evidence(make_disk_and_flakey(), flows, 100 * MIB), "/m")
    assert result.verdict is Verdict.PARTIAL
    assert result.reached_bytes == 50 * MIB
    assert [(row.device, why.code, why.lost_bytes) for row in result.rows for why in row.reasons] == [
        ("dm-0", "target-fails", 50 * MIB)
    ]
    assert result.unexplained_bytes == 0


def test_all_bytes_of_both_paths_arrive() -> None:
    flows = [
        make_extent_flow("253:1", 100 * MIB),
        make_flow(Stage.BIO, "253:1", 100 * MIB, disk="dm-1"),
        make_flow(Stage.BIO, "253:0", 50 * MIB, disk="dm-0"),
        make_handed_flow("253:1", "dm-0", 50 * MIB),
        make_handed_flow("253:1", "sda", 50 * MIB),
        make_handed_flow("253:0", "sda", 50 * MIB),
        *make_disk_flows("sda", "8:0", 100 * MIB),
    ]
    result = build_audit(make_evidence(make_disk_and_flakey(), flows, 100 * MIB), "/m")
    assert (result.verdict, list_codes(result), result.unexplained_bytes) == (Verdict.ACCEPTED, [], 0)


def test_shortfall_that_no_layer_shows_is_unexplained() -> None:
    """Without remapping events each layer's ledger may balance while the total does not."""
    two = make_stack(
        make_dm_layer("dm-0", "253:0", "sda"),
        make_dm_layer("dm-1", "253:1", "sda"),
        make_layer("sda", "8:0"),
        kind="btrfs",
    )
    filesystem = replace(two.filesystem, devices=("dm-0", "dm-1")) if two.filesystem else None
    flows = [
        make_flow(Stage.REQUESTED, "253:0", 50 * MIB),
        make_flow(Stage.REQUESTED, "253:1", 50 * MIB),
        make_flow(Stage.BIO, "253:0", 50 * MIB, disk="dm-0"),
        make_flow(Stage.BIO, "253:1", 50 * MIB, disk="dm-1"),
        *make_disk_flows("sda", "8:0", 60 * MIB),
    ]
    result = build_audit(make_evidence(Stack(filesystem, two.layers), flows, 100 * MIB), "/m")
    assert result.verdict is Verdict.PARTIAL
    assert result.unexplained_bytes == 40 * MIB


def test_discards_still_under_way_allow_no_verdict() -> None:
    flows = [make_extent_flow("8:0", 100 * MIB), *make_disk_flows("sda", "8:0", 40 * MIB)]
    whole = make_evidence(make_stack(make_layer("sda", "8:0"), kind="xfs"), flows, 100 * MIB)
    assert build_audit(replace(whole, settled=False), "/m").verdict is Verdict.UNKNOWN
    nothing = make_evidence(
        make_stack(make_layer("sda", "8:0"), kind="xfs"), [make_extent_flow("8:0", 100 * MIB)], 100 * MIB
    )
    assert build_audit(replace(nothing, settled=False), "/m").verdict is Verdict.UNKNOWN
    assert exit_status([Verdict.UNKNOWN]) == 6


def make_crypt_below_lvm(*, disk_discards: int = 1 << 31, flags: str = "") -> Stack:
    """A common laptop stack: ext4 on a logical volume on LUKS."""
    return make_stack(
        make_dm_layer("dm-1", "253:1", "dm-0", max_bytes=0),
        replace(
            make_layer("dm-0", "253:0", Kind.CRYPT, "nvme0n1", max_bytes=0, target="crypt", label="luks"),
            table=(DmTarget(0, 2048, "crypt", ("aes", "-", "0", "259:0", "0", *flags.split())),),
        ),
        make_layer("nvme0n1", "259:0", max_bytes=disk_discards),
    )


def test_refusal_names_the_lowest_layer_without_discards() -> None:
    refused = make_evidence(make_crypt_below_lvm(), [], None, error=errno.EOPNOTSUPP)
    assert list_codes(build_audit(refused, "/")) == ["crypt-no-discards"]


def test_disk_without_discards_is_named_instead_of_crypt() -> None:
    refused = make_evidence(
        make_crypt_below_lvm(disk_discards=0, flags="1 allow_discards"), [], None, error=errno.EOPNOTSUPP
    )
    result = build_audit(refused, "/")
    assert list_codes(result) == ["nvme-no-dsm"]
    assert all("allow_discards" not in reason.observed for row in result.rows for reason in row.reasons)


def test_empty_trim_over_a_blocking_stack_is_not_success() -> None:
    """A thin pool without passdown: the previous trim was lost, and ext4 remembers the blocks as trimmed."""
    pool = replace(
        make_layer(
            "dm-1",
            "253:1",
            Kind.THIN_POOL,
            "sda",
            target="thin-pool",
            label="pool",
            discards="no_discard_passdown",
        ),
        table=(DmTarget(0, 2048, "thin-pool", ("253:9", "8:0", "128", "0", "1", "no_discard_passdown")),),
    )
    thin = make_layer("dm-2", "253:2", Kind.THIN, "dm-1", target="thin", label="thin")
    lost = make_stack(thin, pool, make_layer("sda", "8:0"))
    flows = [make_flow(Stage.FS_GROUP, "253:2", 0, count=4)]
    result = build_audit(make_evidence(lost, flows, 0), "/m")
    assert result.verdict is Verdict.NOT_SENT
    assert "thin-no-passdown" in [reason.code for reason in result.reasons]
    assert exit_status([result.verdict]) == 32


def test_empty_trim_names_causes_that_shorten_trims() -> None:
    pair = replace(
        make_layer("md0", "9:0", Kind.MD, "sda", "sdb", level="raid1", raid_disks=2),
        label="md0",
    )
    over = make_stack(pair, make_layer("sda", "8:0"), make_layer("sdb", "8:16", max_bytes=0))
    result = build_audit(make_evidence(over, [make_flow(Stage.FS_GROUP, "9:0", 0, count=4)], 0), "/m")
    assert result.verdict is Verdict.NOTHING_LEFT
    assert "member-no-discards" in [reason.code for reason in result.reasons]


def test_reading_back_is_not_advised_after_reading_back() -> None:
    flows = [make_extent_flow("8:0", 100 * MIB), *make_disk_flows("sda", "8:0", 100 * MIB)]
    unread = ReadBack({}, "no sentinel block could be checked")
    result = build_audit(
        make_evidence(make_stack(make_layer("sda", "8:0")), flows, 100 * MIB, read_back=unread), "/m"
    )
    assert [reason.code for reason in result.reasons] == ["unproven"]
    assert not any("--prove" in reason.remedy for reason in result.reasons)


def test_commands_of_an_advice_stay_whole_and_quote_names() -> None:
    made = make_reason("loop-frees-file", "loop0", "seen", None, mount="/srv/a b", file="/srv/a b/f.img")
    assert made.advice[1::2] == ["fstrim '/srv/a b'"]
    printed = wrap_advice(made.advice, "      do: ")
    assert "          fstrim '/srv/a b'" in printed
    long = make_reason("zfs-trims-itself", "tank", "seen", pool="tank" * 20)
    assert all(
        command in [line.strip() for line in wrap_advice(long.advice, "")] for command in long.advice[1::2]
    )


def test_device_that_disappeared_is_named_as_the_cause() -> None:
    before = make_stack(make_layer("sda", "8:0", provisioning_mode="unmap"))
    flows = [
        make_extent_flow("8:0", 100 * MIB),
        make_flow(Stage.BIO, "8:0", 100 * MIB, disk="sda"),
        make_flow(Stage.ISSUED, "8:0", 100 * MIB, disk="sda"),
        make_flow(Stage.DONE, "8:0", 30 * MIB, disk="sda"),
        make_flow(Stage.DONE, "8:0", 60 * MIB, disk="sda", status=10),
    ]
    result = build_audit(make_evidence(before, flows, 100 * MIB, after=replace(before, layers=())), "/m")
    assert result.verdict is Verdict.PARTIAL
    assert set(list_codes(result)) == {"device-gone"}
    assert result.unexplained_bytes == 0


def test_raw_device_that_disappeared_is_named_as_the_cause() -> None:
    before = Stack(None, (make_layer("no-such-disk", "8:0", provisioning_mode="unmap"),))
    flows = [
        make_flow(Stage.BIO, "8:0", 100 * MIB, disk="no-such-disk"),
        make_flow(Stage.ISSUED, "8:0", 100 * MIB, disk="no-such-disk"),
        make_flow(Stage.DONE, "8:0", 30 * MIB, disk="no-such-disk"),
    ]
    after = stack_after(before, None)
    result = build_audit(make_evidence(before, flows, 100 * MIB, after=after), "/dev/no-such-disk")
    assert result.verdict is Verdict.PARTIAL
    assert set(list_codes(result)) == {"device-gone"}
    assert result.unexplained_bytes == 0


def test_discards_that_drbd_hands_on_from_its_thread_reach_the_disk() -> None:
    over = make_stack(make_layer("drbd0", "147:0", Kind.DISK, "loop0"), make_layer("loop0", "7:0", Kind.LOOP))
    flows = [
        make_extent_flow("147:0", 100 * MIB),
        make_flow(Stage.BIO, "147:0", 100 * MIB, disk="drbd0"),
        *make_disk_flows("loop0", "7:0", 100 * MIB, who=SenderKind.KERNEL),
    ]
    result = build_audit(make_evidence(over, flows, 100 * MIB), "/m")
    assert (result.verdict, result.reached_bytes) == (Verdict.ACCEPTED, 100 * MIB)
    assert result.unexplained_bytes == 0
