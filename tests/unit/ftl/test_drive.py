"""The Python binding, and the effect of each drive feature on the counters."""

from __future__ import annotations

import errno

import pytest

from opwatch.ftl.drive import Drive, TrimMode, Workload, Zone, compute_amplification

MIB = 1 << 20


def make_drive(**settings: int) -> Drive:
    base = {"user_bytes": 64 * MIB, "physical_bytes": 80 * MIB, "superblock_bytes": MIB}
    return Drive(base | settings)


def test_geometry_matches_both_definitions() -> None:
    geometry = make_drive().read_geometry()
    assert geometry.spare_of_physical_ratio == pytest.approx(0.20)
    assert geometry.spare_of_user_ratio == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"user_bytes": 80 * MIB}, "spare"),
        ({"iu_bytes": 5000}, "mapping"),
        ({"superblock_bytes": 3 * MIB}, "superblock"),
        ({"policy": 3}, "argument"),
        ({"colour": 1}, "colour"),
        ({"streams": 1 << 40}, "range"),
    ],
)
def test_refuses_with_a_reason(settings: dict[str, int], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        make_drive(**settings)


def test_bad_ranges_are_refused() -> None:
    core = make_drive().core
    for offset, length in ((1, 4096), (0, 100), (64 * MIB, 512), (1 << 63, 1 << 63)):
        with pytest.raises(OSError) as caught:
            core.write(offset, length)
        assert caught.value.args[0] == errno.EINVAL


def test_partial_unit_costs_a_whole_unit() -> None:
    unit = make_drive(iu_bytes=16384)
    unit.core.write(0, 16384)
    unit.core.write(4096, 4096)
    now = unit.read_counters()
    assert now["nand_write_host_bytes"] == now["host_write_bytes"] == 20480
    assert now["nand_write_rmw_bytes"] == 12288
    assert now["nand_write_bytes"] == 32768


def test_buffer_joins_the_parts_of_a_unit() -> None:
    unit = make_drive(iu_bytes=16384, buffer_bytes=MIB)
    for part in range(4):
        unit.core.write(part * 4096, 4096)
    unit.core.write(0, 4096)
    assert unit.read_counters()["nand_write_bytes"] == 0
    unit.core.flush()
    now = unit.read_counters()
    assert (now["nand_write_bytes"], now["nand_write_rmw_bytes"]) == (16384, 0)
    assert now["coalesced_bytes"] == 4096


def test_power_loss_drops_unprotected_data_only() -> None:
    for plp, kept in ((0, False), (1, True)):
        unit = make_drive(buffer_bytes=MIB, plp=plp)
        unit.core.write(0, 8192)
        unit.core.power_loss()
        now = unit.read_counters()
        assert unit.core.is_mapped(0) is kept
        assert now["lost_bytes"] == (0 if kept else 8192)
        assert (now["power_cycles"], now["unsafe_shutdowns"]) == (1, 1)


def test_flushed_data_survives_a_power_loss() -> None:
    unit = make_drive(buffer_bytes=MIB)
    unit.core.write(0, 8192)
    unit.core.flush()
    unit.core.power_loss()
    assert unit.core.is_mapped(0)
    assert unit.read_counters()["lost_bytes"] == 0


def test_trim_rounds_inwards() -> None:
    unit = make_drive(iu_bytes=16384)
    unit.core.write(0, 65536)
    unit.core.trim(4096, 32768)
    assert [unit.core.is_mapped(page * 16384) for page in range(4)] == [True, False, True, True]
    assert unit.read_counters()["trim_ignored_bytes"] == 16384


def test_each_trim_mode_has_its_effect() -> None:
    kept = {}
    for mode in TrimMode:
        unit = make_drive(trim_mode=mode)
        unit.core.write(0, MIB)
        unit.core.trim(0, MIB)
        before = unit.read_counters()
        unit.core.idle(1)
        kept[mode] = (
            unit.core.is_mapped(0),
            before["valid_bytes"],
            unit.read_counters()["valid_bytes"],
        )
    assert kept == {
        TrimMode.HONOUR: (False, 0, 0),
        TrimMode.LAZY: (False, MIB, 0),
        TrimMode.IGNORE: (True, MIB, MIB),
    }


def test_write_zeroes_unmaps_or_writes() -> None:
    for unmaps in (0, 1):
        unit = make_drive(write_zeroes_unmaps=unmaps)
        unit.core.write(0, MIB)
        unit.core.write_zeroes(0, MIB)
        assert unit.core.is_mapped(0) is not bool(unmaps)
        assert unit.read_counters()["write_zeroes_bytes"] == MIB


def test_write_zeroes_do_not_count_as_host_writes() -> None:
    """The host sends no data, so neither unmapped nor programmed bytes at the ends count as host writes."""
    for unmaps, programmed in ((1, 2), (0, 4)):
        unit = make_drive(write_zeroes_unmaps=unmaps)
        unit.core.write_zeroes(512, 3 * 4096)
        now = unit.read_counters()
        assert (now["host_writes"], now["host_write_bytes"]) == (0, 0)
        assert now["write_zeroes_bytes"] == 3 * 4096
        assert now["nand_write_bytes"] == programmed * 4096


def test_cache_takes_writes_and_folding_counts() -> None:
    unit = make_drive(slc_bytes=8 * MIB)
    unit.core.write(0, 4 * MIB)
    before = unit.read_counters()
    assert (before["slc_write_bytes"], before["slc_used_bytes"]) == (4 * MIB, 4 * MIB)
    unit.core.idle(1)
    now = unit.read_counters()
    assert (now["nand_write_fold_bytes"], now["slc_used_bytes"]) == (4 * MIB, 0)
    assert compute_amplification(dict.fromkeys(now, 0), now) == 2.0


def test_dynamic_cache_shrinks_as_the_drive_fills() -> None:
    unit = make_drive(slc_bytes=16 * MIB, slc_dynamic=1, slc_bits=4)
    assert unit.read_counters()["slc_limit_bytes"] == 16 * MIB
    unit.fill_drive()
    unit.core.idle(1)
    assert unit.read_counters()["slc_limit_bytes"] <= 4 * MIB


def test_levelling_narrows_the_spread() -> None:
    spreads = []
    for spread in (0, 4):
        unit = make_drive(wear_spread=spread)
        unit.fill_drive()
        unit.run_load(Workload((Zone(0, 8 * MIB),), rng=1), 200_000)
        now = unit.read_counters()
        spreads.append(now["erase_max"] - now["erase_min"])
        assert bool(now["nand_write_wear_bytes"]) is bool(spread)
    assert spreads[1] <= 8 < spreads[0]


def test_streams_keep_lifetimes_apart() -> None:
    ratios = []
    for streams in (1, 2):
        unit = make_drive(streams=streams, gc_frontier=2)
        unit.fill_drive()
        zones = (Zone(0, 6 * MIB, 9, streams - 1), Zone(6 * MIB, 58 * MIB, 1, 0))
        load = Workload(zones, rng=1)
        unit.run_load(load, 100_000)
        begin = unit.read_counters()
        unit.run_load(load, 100_000)
        ratios.append(compute_amplification(begin, unit.read_counters()) or 0.0)
    assert ratios[1] < ratios[0]


def test_a_failed_die_shrinks_the_drive() -> None:
    unit = make_drive(dies=16)
    unit.fill_drive()
    unit.core.die_fail()
    now = unit.read_counters()
    assert now["failed_dies"] == 1
    assert now["physical_bytes"] == 80 * MIB - now["bad_superblocks"] * MIB
    assert now["bad_superblocks"] >= 5
    assert now["nand_write_rebuild_bytes"] > 0
    assert unit.core.check() is None


def test_end_of_life_is_read_only() -> None:
    unit = make_drive(erase_limit=30, endurance_cycles=30)
    load = Workload(rng=1)
    with pytest.raises(OSError) as caught:
        unit.run_load(load, 10_000_000)
    assert caught.value.args[0] == errno.EROFS
    now = unit.read_counters()
    assert now["read_only"] == 1
    assert now["percentage_used"] > 80
    unit.core.read(0, 4096)
    with pytest.raises(OSError):
        unit.core.write(0, 4096)


def test_format_forgets_data_and_keeps_wear() -> None:
    unit = make_drive()
    unit.fill_drive()
    unit.core.format()
    now = unit.read_counters()
    assert (now["valid_bytes"], now["room_bytes"]) == (0, 80 * MIB)
    assert now["erases"] == 64
    assert unit.core.check() is None


def test_idle_time_is_used_for_collection() -> None:
    unit = make_drive(gc_idle_superblocks=4)
    unit.fill_drive()
    unit.run_load(Workload(rng=1), 30_000)
    unit.core.idle(10**9)
    assert unit.read_counters()["room_bytes"] >= 4 * MIB


def test_saved_drive_continues_identically() -> None:
    unit = make_drive(policy=3, policy_arg=4, buffer_bytes=MIB, slc_bytes=4 * MIB)
    load = Workload(rng=9, trim_ppm=100_000)
    unit.run_load(load, 50_000)
    twin = Drive.load_saved(unit.save())
    other = Workload(rng=load.rng, trim_ppm=100_000)
    unit.run_load(load, 50_000)
    twin.run_load(other, 50_000)
    assert unit.read_counters() == twin.read_counters()
    assert unit.save() == twin.save()


def test_damage_and_other_versions_are_refused() -> None:
    saved = bytearray(make_drive().save())
    for at, want in ((0, errno.EBADMSG), (8, errno.EPROTONOSUPPORT), (-9, errno.EBADMSG)):
        broken = bytearray(saved)
        broken[at] ^= 1
        with pytest.raises(OSError) as caught:
            Drive.load_saved(bytes(broken))
        assert caught.value.args[0] == want
    with pytest.raises(OSError):
        Drive.load_saved(bytes(saved[:-1]))


def test_equal_seeds_give_equal_drives() -> None:
    runs = []
    for _ in range(2):
        unit = make_drive(policy=2, seed=7)
        unit.run_load(Workload(rng=3), 100_000)
        runs.append(unit.save())
    assert runs[0] == runs[1]
