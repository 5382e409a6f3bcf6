"""Owners as text: the largest, and a row that completes the sum; control sequences in names are escaped."""

from __future__ import annotations

import io
from dataclasses import replace

from opwatch.owners.cells import OwnedCounts, OwnedWaits, OwnerGrouping, OwnerKey, OwnerKind
from opwatch.owners.sample import OwnerCounts, Owners, merge_owners
from opwatch.sinks.owners.document import build_owners_document
from opwatch.sinks.owners.labels import MAX_SHOWN, format_owner, format_owner_lines
from opwatch.sinks.owners.table import Sort, format_owner_table
from opwatch.sinks.terminal import Writer


def make_owner_counts(number: int, name: str | None, requests: int) -> OwnerCounts:
    key = OwnerKey(OwnerKind.CGROUP, number)
    return OwnerCounts(key, name, {"read": OwnedCounts(requests, requests * 4096, requests * 1000)})


def test_largest_owners_are_shown_and_others_share_a_row() -> None:
    many = tuple(
        make_owner_counts(number, f"/group-{number}", 1000 - number) for number in range(MAX_SHOWN + 3)
    )
    lines = format_owner_lines(Owners(OwnerGrouping.CGROUP, many, {"read": OwnedCounts(1, 4096, 1000)}), 1.0)
    assert len(lines) == 1 + MAX_SHOWN + 1
    assert lines[1].split() == ["read", "1000", "4.10", "1.00u", "0.0", "/group-0"]
    assert lines[-1].endswith("other: 3 more")
    # Owners beyond the limit, and the requests without an owner.
    assert lines[-1].split()[1] == str(995 + 994 + 993 + 1)


WAITS = OwnedWaits(10, 30_000, 10, 4, 50_000_000, 10, 2_000)


def make_waiting_owners(waits: OwnedWaits | None) -> Owners:
    counts = OwnedCounts(10, 40960, 10_000, waits)
    owner = OwnerCounts(OwnerKey(OwnerKind.CGROUP, 1), "/db", {"read": counts})
    return Owners(OwnerGrouping.CGROUP, (owner,), {"read": OwnedCounts(waits=WAITS)}, has_waits=True)


def test_waits_have_columns_with_their_means_if_they_were_counted() -> None:
    head, own, other = format_owner_lines(make_waiting_owners(WAITS), 1.0)
    assert head.split()[-3:] == ["throttle", "admit", "queue"]
    assert own.split()[5:] == ["5.00m", "200n", "3.00u", "/db"]
    assert other.split()[1:] == ["0.00", "0.00", "-", "0.0", "5.00m", "200n", "3.00u", "other"]


def test_unknown_waits_are_not_zero() -> None:
    _, own, _ = format_owner_lines(make_waiting_owners(None), 1.0)
    assert own.split()[5:] == ["-", "-", "-", "/db"]
    unmeasured = WAITS._replace(throttle_known=0, throttled=0, throttle_sum_ns=0)
    [owner] = build_owners_document(make_waiting_owners(unmeasured))["owners"]
    assert owner["ops"]["read"]["throttle_ns"] == {"waited": 0, "known": 0, "sum": 0, "mean": None}
    assert owner["ops"]["read"]["queue_ns"] == {"known": 10, "sum": 30_000, "mean": 3000}


def test_merged_owners_have_the_sums_of_the_waits() -> None:
    one = make_waiting_owners(WAITS)
    both = merge_owners([one, one], OwnerGrouping.CGROUP)
    assert both.has_waits
    assert both.owners[0].total.waits == OwnedWaits(*(2 * value for value in WAITS))


def test_idle_disk_shows_no_owners() -> None:
    assert format_owner_lines(Owners(OwnerGrouping.CGROUP, (), {}), 1.0) == []


def test_names_are_shortened_and_escaped() -> None:
    evil = "/a/" + "b" * 90 + "\x1b]0;x\x07\u202e.service"
    lines = format_owner_lines(Owners(OwnerGrouping.CGROUP, (make_owner_counts(1, evil, 5),), {}), 0.0)
    assert max(len(line) for line in lines) <= 80
    assert lines[-1].endswith("?]0;x??.service")
    out = io.StringIO()
    Writer(out).write_lines(lines)
    assert "\x1b" not in out.getvalue()


def test_owner_has_a_readable_name() -> None:
    words = [
        format_owner(OwnerCounts(OwnerKey(kind, number, since), name, {}))
        for kind, number, since, name in (
            (OwnerKind.CGROUP, 5, 0, None),
            (OwnerKind.PROCESS, 77, 1, "fio"),
            (OwnerKind.WRITE_BACK, 9, 0, "flush-8:0"),
            (OwnerKind.KERNEL, 12, 3, "jbd2/sda1-8"),
            (OwnerKind.KERNEL, 12345, 0, "loop0"),
            (OwnerKind.NOBODY, 0, 0, None),
        )
    ]
    assert words == [
        "cgroup 5",
        "fio (77)",
        "write-back (flush-8:0)",
        "kernel: jbd2/sda1-8 (12)",
        "kernel: loop0",
        "(none)",
    ]


def test_kernel_work_has_no_pid() -> None:
    keys = (OwnerKey(OwnerKind.KERNEL, 12, 3), OwnerKey(OwnerKind.WRITE_BACK, 12345))
    owners = tuple(OwnerCounts(key, "x", {"write": OwnedCounts(2, 8192, 10)}) for key in keys)
    document = build_owners_document(Owners(OwnerGrouping.PROCESS, owners, {}))
    assert [(one["kind"], one["pid"], one["cgroup_number"]) for one in document["owners"]] == [
        ("kernel", 12, None),
        ("write-back", None, None),
    ]
    assert document["owners"][0]["ops"]["write"]["mean_ns"] == 5.0


DOCKER = "/system.slice/docker-" + "1a" * 32 + ".scope"


def test_a_container_is_called_by_its_engine() -> None:
    group = OwnerCounts(OwnerKey(OwnerKind.CGROUP, 5), DOCKER, {})
    process = OwnerCounts(OwnerKey(OwnerKind.PROCESS, 77, 1), "postgres", {}, DOCKER)
    assert format_owner(group) == "docker 1a1a1a1a1a1a"
    assert format_owner(process) == "postgres (77) in docker 1a1a1a1a1a1a"
    [first, second] = build_owners_document(
        Owners(
            OwnerGrouping.PROCESS,
            tuple(replace(one, ops={"read": OwnedCounts(1, 512, 9)}) for one in (group, process)),
            {},
        )
    )["owners"]
    assert first["group"] == second["group"] == DOCKER
    assert first["container"] == second["container"] == {"engine": "docker", "id": "1a" * 32, "pod": None}


def make_owners() -> Owners:
    """Two owners on two disks, and requests without an owner."""
    one = Owners(
        OwnerGrouping.CGROUP, (make_owner_counts(1, "/small", 10), make_owner_counts(2, "/large", 100)), {}
    )
    two = Owners(
        OwnerGrouping.CGROUP, (make_owner_counts(1, "/small", 500),), {"discard": OwnedCounts(1, 10**6, 5)}
    )
    return merge_owners([one, two], OwnerGrouping.CGROUP)


def test_owners_of_several_disks_share_a_table() -> None:
    lines = format_owner_table(make_owners(), 1.0, Sort.BYTES, 9)
    assert [line.split()[-1] for line in lines] == ["MB/s)", "/small", "/large", "other", "all"]
    assert [line.split()[3] for line in lines[1:]] == ["510", "100", "1.00", "611"]
    assert lines[3].split()[2] == "1.00"
    assert max(map(len, lines)) <= 80


def test_owners_beyond_the_limit_are_counted_as_other() -> None:
    lines = format_owner_table(make_owners(), 1.0, Sort.REQUESTS, 1)
    assert [line.split()[3] for line in lines[1:]] == ["510", "101", "611"]
    assert lines[2].endswith("other: 1 more")


def test_table_is_sorted_by_the_requested_column() -> None:
    slow = OwnerCounts(OwnerKey(OwnerKind.CGROUP, 3), "/slow", {"write": OwnedCounts(1, 512, 10**9)})
    owners = Owners(OwnerGrouping.CGROUP, (make_owner_counts(2, "/busy", 100), slow), {})
    first = {sort: format_owner_table(owners, 1.0, sort, 9)[1].split()[-1] for sort in Sort}
    assert first == {
        Sort.BYTES: "/busy",
        Sort.REQUESTS: "/busy",
        Sort.TIME: "/slow",
        Sort.LATENCY: "/slow",
    }


def test_full_table_is_reported_in_lines_tables_and_json() -> None:
    full = Owners(
        OwnerGrouping.PROCESS, (), {"write": OwnedCounts(1500, 6_144_000, 9)}, OwnedCounts(1234, 5_054_464, 7)
    )
    [*_, line] = format_owner_lines(full, 1.0)
    assert "1,234 requests, 5.05 MB" in line
    assert format_owner_table(full, 1.0, Sort.BYTES, 5)[-1] == line
    assert len(line) <= 80
    assert build_owners_document(full)["no_room"] == {"count": 1234, "bytes": 5_054_464}
    roomy = replace(full, no_room=OwnedCounts())
    assert not [line for line in format_owner_lines(roomy, 1.0) if "full" in line]
    assert build_owners_document(roomy)["no_room"] == {"count": 0, "bytes": 0}


def test_filter_counts_excluded_owners_as_other() -> None:
    lines = format_owner_table(make_owners(), 1.0, Sort.BYTES, 9, words="LARGE")
    assert [line.split()[3] for line in lines[1:]] == ["100", "511", "611"]
    assert lines[1].endswith("/large")
    assert lines[2].endswith("other: 1 more")
    lines = format_owner_table(make_owners(), 1.0, Sort.BYTES, 9, words="nobody has this")
    assert [line.split()[3] for line in lines[1:]] == ["611", "611"]
