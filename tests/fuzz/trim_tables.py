"""Damaged device mapper tables and answers, unit properties and fstabs.

Each is refused with OpwatchError, or read without a crash.

    python -m tests.fuzz.trim_tables [INPUTS [SEED]]
"""

from __future__ import annotations

import random
import struct
import sys
from collections.abc import Sequence
from pathlib import Path

from opwatch.host.usage import parse_mountinfo
from opwatch.trim.check.schedule import build_schedule, parse_fstab, parse_properties
from opwatch.trim.filesystems.zfs import parse_counters
from opwatch.trim.stack import dmioctl, dmtable

from .rules import RefusedOrValid

GOOD = Path(__file__).parents[1] / "fixtures" / "good" / "trim"
_SYSTEMD = (
    "Id=fstrim.service\nExecStart={ path=/sbin/fstrim ; argv[]=/sbin/fstrim -I /etc/fstab:/x -v ; }\n\n"
    "Id=fstrim.timer\nLoadState=loaded\nActiveState=active\nLastTriggerUSec=@1763337600\n"
)
_FSTAB = "/dev/sda1 / ext4 rw 0 1\nLABEL=a\\040b /m xfs discard,X-fstrim.notrim 0 2\n"
_MOUNTINFO = "30 27 8:1 / /boot\\040x rw,relatime shared:1 - ext4 /dev/sda1 rw,discard\n"
_WORDS = ("0", "-1", "9" * 5000, "²", "allow_discards", "Fail", "", "\0", "/", "253:0")


def damage_text(text: str, chance: random.Random) -> str:
    """Return the text with modified words, characters or lines."""
    words = text.split(" ")
    for _ in range(chance.randrange(1, 5)):
        at = chance.randrange(len(words))
        kind = chance.random()
        if kind < 0.5:
            words[at] = chance.choice(_WORDS)
        elif kind < 0.8:
            words[at] = words[at][: chance.randrange(len(words[at]) + 1)] + chr(chance.randrange(0x250))
        else:
            words.insert(at, chance.choice(words))
    changed = " ".join(words)
    return changed[: chance.randrange(len(changed) + 1)] if chance.random() < 0.2 else changed


def run(inputs: int, seed: int) -> None:
    """Run this many inputs. Raises at the first failure."""
    chance = random.Random(seed)
    tables = [(GOOD / name).read_text() for name in ("tables.txt", "statuses.txt", "raids.txt")]
    counters = (GOOD / "zfs.iostats").read_text()
    for _ in range(inputs):
        with RefusedOrValid("device-mapper"):
            for target in dmtable.parse_table(damage_text(chance.choice(tables), chance)):
                status = dmtable.parse_pool_status(target)
                assert status is None or status.mode
                missing = dmtable.count_missing_members(target)
                places = dmtable.parse_areas(target)
                assert places is None or min(places[1:]) >= 0
                assert dmtable.parse_sync_action(target) is None or missing is not None
                for number in (
                    dmtable.parse_chunk_bytes(target),
                    dmtable.parse_mapped_sectors(target),
                    missing,
                ):
                    assert number is None or number >= 0
                array = dmtable.parse_raid(target)
                assert array is None or min(array.disks, array.copies) > 0
                assert target.mapped_device is None or target.mapped_device[1] >= 0
        with RefusedOrValid("schedule"):
            plan = build_schedule(
                parse_properties(damage_text(_SYSTEMD, chance)),
                parse_fstab(damage_text(_FSTAB, chance)),
                None,
                (),
            )
            assert plan.last is None or plan.last.timestamp() > 0
        with RefusedOrValid("zfs"):
            facts = parse_counters("tank", damage_text(counters, chance).splitlines())
            assert min(facts.trim_bytes_written or 0, facts.trim_bytes_failed or 0) >= 0
        with RefusedOrValid("mountinfo"):
            parse_mountinfo(damage_text(_MOUNTINFO, chance))


def encode_answer(parts: Sequence[tuple[int, int, str, str]]) -> bytes:
    """Return the kernel's answer for these targets: first sector, sectors, kind and parameters of each."""
    body = b""
    for first, sectors, kind, words in parts:
        text = words.encode() + b"\0"
        text += bytes(-len(text) % 8)
        following = len(body) + 40 + len(text)
        body += struct.pack("=QQiI16s", first, sectors, 0, following, kind.encode()) + text
    header = struct.pack("=7I", 4, 48, 0, 312 + len(body), 312, len(parts), 1)
    return header.ljust(312, b"\0") + body


def run_answers(inputs: int, seed: int) -> None:
    """Run this many damaged device mapper answers. Raises at the first failure."""
    chance = random.Random(seed)
    good = encode_answer(
        [(0, 8, "linear", "8:0 2048"), (8, 8, "crypt", "aes 5ec2e7 0 8:0 0"), (16, 8, "zero", "")]
    )
    for _ in range(inputs):
        answer = bytearray(good)
        for _ in range(chance.randrange(1, 4)):
            at = chance.choice((12, 16, 20, 28, 328, 332, chance.randrange(len(answer))))
            answer[at] = chance.randrange(256)
        with RefusedOrValid("answers of device mapper"):
            for target in dmioctl.decode_targets(bytes(answer[: chance.randrange(len(answer) + 1)])) or ():
                assert target.kind and " " not in target.kind
                assert target.mapped_device is None or target.mapped_device[1] >= 0


if __name__ == "__main__":
    inputs, seed = (int(word) for word in (sys.argv[1:] + ["100000", "0"][len(sys.argv) - 1 :]))
    run(inputs, seed)
    print(f"{inputs} inputs from seed {seed}: all refused or sound")
