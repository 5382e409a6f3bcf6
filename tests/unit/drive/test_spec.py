"""Arguments of `opwatch drive`: sizes, over-provisioning, names and faults."""

from __future__ import annotations

import argparse
from fractions import Fraction
from pathlib import Path

import pytest

from opwatch.drive.spec import parse_fault, parse_name, parse_op, parse_owners, physical_bytes
from opwatch.errors import UsageError
from opwatch.ftl import profiles
from opwatch.quantities import parse_size
from opwatch.tools.commands import drive


@pytest.mark.parametrize(
    ("text", "n_bytes"),
    [
        ("4G", 4 << 30),
        ("4GiB", 4 << 30),
        ("4GB", 4_000_000_000),
        ("1.5T", 3 << 39),
        ("512m", 512 << 20),
        ("960 GB", 960_000_000_000),
        ("4096", 4096),
        ("7b", 7),
    ],
)
def test_size_with_unit_is_parsed(text: str, n_bytes: int) -> None:
    assert parse_size(text) == n_bytes


@pytest.mark.parametrize("text", ["", "G", "-4G", "4 G B", "1.3", "4X", "0x10", "ib", "4ib", "1e9", "٤G"])
def test_invalid_sizes_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_size(text)


def test_op_is_a_percentage_of_the_user_size() -> None:
    assert parse_op("7%") == Fraction(7, 100)
    assert parse_op(" 28.5 % ") == Fraction(57, 200)
    for wrong in ("7", "0.07", "0%", "-7%", "1001%", "%", "7%%"):
        with pytest.raises(UsageError):
            parse_op(wrong)


def test_physical_size_is_in_whole_units_and_never_less() -> None:
    for user, percent in ((4 << 30, 7), (1 << 20, 1), (12_288, 33)):
        op = Fraction(percent, 100)
        physical = physical_bytes(user, op)
        assert physical % 4096 == 0
        assert 0 <= physical - user * (1 + op) < 4096


def test_unsafe_names_are_refused() -> None:
    assert parse_name("sim-0.a_B") == "sim-0.a_B"
    for wrong in ("", ".", "..", "a/b", "-x", "a b", "x" * 33, "a\n", "ä"):
        with pytest.raises(UsageError):
            parse_name(wrong)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("trim=lazy", "trim=lazy"),
        ("slow=5ms", "slow=5000"),
        ("way=1.5s", "way=1500000"),
        ("trim=keep", "trim=keep"),
        ("refresh=5", "refresh=5"),
        ("rollback=600", "rollback=600"),
        ("log-fail=2", "log-fail=02"),
        ("log-fail=C0h", "log-fail=c0"),
        ("log-fail=0x22", "log-fail=22"),
        ("log-slow=09:3s", "log-slow=09:3000"),
        ("log-slow=02:1.5s", "log-slow=02:1500"),
        ("stall=every:60s,for:100ms", "stall=60000000:100000"),
        ("stall=for:100ms,every:1m", "stall=60000000:100000"),
        ("stall=for:100ms", "stall=0:100000"),
        ("log-stall=2:50ms", "log-stall=02:50000"),
        ("sleep-after=100ms:25ms", "sleep-after=100000:25000"),
        ("slow-die=3:10x", "slow-die=3:10000"),
        ("slow-die=0:1.5x", "slow-die=0:1500"),
        ("thermal=tmt1:70,tmt2:80,heat:0.25,cool:30s", "thermal=70:80:250:30000"),
        ("wrap32", "wrap32=0"),
        ("wrap32=1G", f"wrap32={2**41 - 2**30}"),
        ("media-error=1M:4k", "media-error=1048576:4096"),
        ("power-loss", "power-loss"),
    ],
)
def test_fault_is_described_in_words(text: str, words: str) -> None:
    assert parse_fault(text).words == words


@pytest.mark.parametrize(
    "text",
    [
        *("", "trim", "trim=no", "refresh", "refresh=-1", "refresh=1.5", "log-fail=77", "log-fail="),
        *("log-slow=02", "log-slow=02:3", "wrap32=3T", "media-error=1M", "media-error=1M:0", "clear=1"),
        *("power-loss=now", "gremlins", "erase-limit=3"),
        *("stall", "stall=60s", "stall=every:60s", "stall=for:0s", "stall=every:1s,for:1s", "stall=for:11s"),
        *("stall=for:1s,when:2s", "stall=for:1s,", "log-stall=02", "log-stall=99:1s", "log-stall=02:5"),
        *("slow-die=3", "slow-die=3:10", "slow-die=3:0.5x", "slow-die=x:2x", "thermal", "thermal=tmt1:70"),
        *(f"thermal=tmt1:{tmt},heat:1,cool:1s" for tmt in ("80,tmt2:80", "40,tmt2:80", "70,tmt2:201")),
        *("thermal=tmt1:70,tmt2:80,heat:x,cool:1s", "thermal=tmt1:70,tmt2:80,heat:1,cool:0s"),
        *("sleep-after=1s", "sleep-after=1s:", "sleep-after=1:2"),
    ],
)
def test_invalid_faults_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_fault(text)


def test_owners_have_parts_of_the_drive() -> None:
    parts = parse_owners(["db=0-1M,log=1M-2M", "rest=4M-8M"], 8 << 20)
    assert [(one.name, one.begin, one.end) for one in parts] == [
        ("db", 0, 1 << 20),
        ("log", 1 << 20, 2 << 20),
        ("rest", 4 << 20, 8 << 20),
    ]
    assert parts[1].words == f"log:{1 << 20}:{2 << 20}"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("db", "write NAME=START-END"),
        ("db=1M", "write NAME=START-END"),
        ("d/b=0-1M", "write NAME=START-END"),
        ("db=1M-1M", "after the start"),
        ("db=0-1000", "multiples"),
        ("db=0-16M", "beyond"),
        ("db=0-2M,log=1M-3M", "overlap"),
        (",".join(f"o{at}={at}M-{at + 1}M" for at in range(17)), "at most 16"),
    ],
)
def test_invalid_owners_are_refused(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        parse_owners([text], 8 << 20)


def test_an_erase_limit_is_for_create() -> None:
    assert parse_fault("erase-limit=3", creating=True).config == {"erase_limit": 3}
    with pytest.raises(UsageError):
        parse_fault("erase-limit=0", creating=True)


def parse_arguments(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    drive.add_arguments(parser)
    return parser.parse_args(["create", *words])


def test_defaults_are_4_gib_with_7_percent() -> None:
    assert drive.build_config(parse_arguments(), loading=False) == {
        "user_bytes": 4 << 30,
        "physical_bytes": physical_bytes(4 << 30, Fraction(7, 100)),
    }


def test_state_file_determines_the_sizes() -> None:
    assert drive.build_config(parse_arguments(), loading=True) == {}
    with pytest.raises(UsageError, match="--size"):
        drive.build_config(parse_arguments("--size", "1G"), loading=True)
    assert (
        drive.build_config(parse_arguments("--size", "1G", "--op", "7%"), loading=True)["user_bytes"]
        == 1 << 30
    )


@pytest.mark.parametrize("name", profiles.list_profiles())
def test_profiles_scale_to_the_size(name: str) -> None:
    plain = drive.build_config(parse_arguments("--profile", name, "--size", "1G"), loading=False)
    assert plain["user_bytes"] == 1 << 30
    assert plain["physical_bytes"] > 1 << 30
    assert "superblock_bytes" not in plain
    more = drive.build_config(
        parse_arguments("--profile", name, "--size", "1G", "--op", "50%"), loading=False
    )
    assert more["physical_bytes"] == 3 << 29
    timing = {f"service.{key}": value for key, value in profiles.load_profile(name).timing.items()}
    assert timing.items() <= plain.items()
    assert drive.build_config(parse_arguments("--profile", name), loading=True) == timing


def test_a_drive_has_at_least_1_mib() -> None:
    for size in ("0", "4096", "1000001"):
        with pytest.raises(UsageError, match=r"--size\b.*\b1M\b"):
            drive.build_config(parse_arguments("--size", size), loading=False)


def test_help_fits_80_columns(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for verb in ("create", "fault", "info"):
        parser = argparse.ArgumentParser(prog="opwatch drive")
        drive.add_arguments(parser)
        with pytest.raises(SystemExit):
            parser.parse_args([verb, "--help"])
        wide = [line for line in capsys.readouterr().out.splitlines() if len(line) > 80]
        assert wide == []


def test_server_accepts_every_profile_setting() -> None:
    options = Path(__file__).parents[3] / "opwatch" / "drive" / "server" / "options.c"
    text = options.read_text()
    for name in profiles.list_profiles():
        profile = profiles.load_profile(name)
        assert [key for key in profile.drive if f"FTL({key})" not in text] == []
        assert [key for key in profile.timing if f"SERVICE({key})" not in text] == []
