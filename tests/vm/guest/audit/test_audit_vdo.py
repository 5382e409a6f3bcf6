"""`opwatch trim audit` on VDO: what a trim frees there is free in VDO, and the disk below is told nothing."""

from __future__ import annotations

from tests.kernel.support import trims
from tests.vm.guest.support.audits import MIB, Verdict, audit, codes, filesystem, freed, full_loop, image
from tests.vm.guest.support.shell import call
from tests.vm.guest.support.trims import check
from tests.vm.guest.support.vdo import BLOCK, vdo

# By hand: it would take CI beyond its time on a slow machine.
TIERS = ()
_DELETED = 32 * MIB


def _used(label: str) -> int:
    """Bytes that VDO has of data and of its own."""
    words = call("dmsetup", "status", label).split()
    return int(words[words.index("vdo") + 6]) * BLOCK


def test_what_is_freed_is_free_in_vdo_alone() -> None:
    with full_loop(512 * MIB) as disk, vdo(disk, 256 * MIB) as top, filesystem(top.name, "ext4") as point:
        victim = point / "victim"
        # Blocks of zeroes take nothing.
        with open("/dev/urandom", "rb") as noise:
            victim.write_bytes(noise.read(_DELETED))
        call("sync")
        trims.fill_holes(image(disk))
        before = _used(top.label)
        victim.unlink()
        call("sync")
        foretold = check(point)
        result = audit(point)
        after = _used(top.label)
        assert freed(disk) == 0
    # What the journal writes meanwhile takes some blocks.
    assert before - after > _DELETED - MIB
    assert (foretold.outlook, foretold.codes & {"vdo-keeps"}) == ("nothing", {"vdo-keeps"})
    assert (result.verdict, result.reached_bytes, result.unexplained_bytes) == (Verdict.NOT_SENT, 0, 0)
    assert list(codes(result)) == ["vdo-keeps"]
    assert result.claimed_bytes and result.claimed_bytes > _DELETED
