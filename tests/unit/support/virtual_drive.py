"""A drive with a fake clock: the simulated flash behind the pages of real drives, read by the real decoders,
with ten minutes simulated in a moment. Pages may show old values; `TrueCounts` has the current values."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from pathlib import Path

from opwatch.counters.catalogue.families import load_catalogue
from opwatch.counters.decode.ocp import CLOUD_GUID
from opwatch.counters.evidence import Evidence
from opwatch.counters.looks.nvme import collect_nvme
from opwatch.counters.looks.smartctl import parse_output
from opwatch.counters.prove.report import make_report
from opwatch.errors import OpwatchError
from opwatch.ftl.drive import Drive, Workload
from opwatch.waf.measure import MeasuredWaf, Measurement
from opwatch.waf.polls import make_poll
from opwatch.waf.trail import LONGEST_NS, Trail

CATALOGUE = load_catalogue(system=Path("/nonexistent"))
PAGE = 4096
MIB, GIB = 1 << 20, 1 << 30
HOURS = 5000


@dataclass(frozen=True)
class Model:
    """The format of a drive's counters."""

    name: str
    nand_quantum: int
    protocol: str = "nvme"
    pages: tuple[int, ...] = (0x02,)
    model: str = "ACME"
    family: str = ""
    # Attribute -> (side, unit).
    attributes: dict[int, tuple[str, int]] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)

    @property
    def host_quantum(self) -> int:
        """Return the step of the finest count of host writes."""
        return next((unit for side, unit in self.attributes.values() if side == "host"), 512_000)

    @property
    def has_shared_page(self) -> bool:
        """Return True if the page of NAND writes also counts host writes, so that both are from the same
        moment."""
        return self.pages != OCP.pages


OCP = Model("C0h and 02h, 1 B", 1, pages=(0x02, 0xC0))
FDP = Model("22h, 1 B", 1, pages=(0x02, 0x22))
SEAGATE = Model("C4h, 512,000 B", 512_000, pages=(0x02, 0xC4), model="XM1441-1AH2048")
INTEL = Model("CAh, 32 MiB", 32 * MIB, pages=(0x02, 0xCA), model="INTEL SSDPE2KX010T8")
ENDURANCE = Model("09h, 10^9 B", 10**9, pages=(0x02, 0x09))
PHISON = Model(
    "SATA 233, 1 GiB",
    GIB,
    "ata",
    model="KINGSTON SEDC500M960G",
    family="Phison Driven SSDs",
    attributes={241: ("host", GIB), 233: ("nand", GIB)},
    names={
        231: "SSD_Life_Left",
        233: "Flash_Writes_GiB",
        241: "Lifetime_Writes_GiB",
        242: "Lifetime_Reads_GiB",
    },
)
MODELS = (OCP, FDP, SEAGATE, INTEL, ENDURANCE, PHISON)


def _put_integer(page: bytearray, offset: int, width: int, value: int) -> None:
    page[offset : offset + width] = value.to_bytes(width, "little")


@dataclass
class TrueCounts:
    """Counts since the drive was made."""

    host: int
    nand: int
    commands: int


class VirtualDrive:
    """`rate` is the host's write rate per second; `own_rate` is the rate of additional NAND writes by the
    drive; `refused_rate` is counted by the kernel but not by the drive, like failing writes."""

    def __init__(
        self, model: Model, seed: int, *, refresh_s: float = 0.0, scale: int = 1, step_s: float = 0.1
    ) -> None:
        self.model, self.scale, self.step_s = model, scale, step_s
        self.chance = random.Random(seed)
        self.now_ns = self.chance.randrange(10**12)
        self.rate = self.own_rate = self.refused_rate = 0.0
        spare = self.chance.randrange(5, 19)
        self._flash = Drive(
            {
                "user_bytes": 64 * MIB,
                "physical_bytes": (64 + spare) * MIB,
                "superblock_bytes": MIB,
                "seed": seed,
            }
        )
        self._flash.fill_drive()
        self._load = Workload(rng=seed + 1)
        self._debt = 0.0
        host = self.chance.randrange(20 * 10**12, 40 * 10**12)
        self._base = TrueCounts(host, int(host * self.chance.uniform(1.2, 3)), host // 65536)
        self._own = self._refused = 0.0
        self.boot_bytes = self.chance.randrange(10**12)
        self._start = self._flash.read_counters()
        self.refresh_ns = int(refresh_s * 1e9)
        self._due = {
            page: self.now_ns + int(self.chance.random() * self.refresh_ns) for page in self._list_kinds()
        }
        self._shown = {page: self.read_truth() for page in self._list_kinds()}
        self.fails: set[int] = set()
        self.shutdowns = 7

    @property
    def nand_page(self) -> int:
        """Return the page that counts NAND writes."""
        return self._list_kinds()[-1]

    def _list_kinds(self) -> tuple[int, ...]:
        return self.model.pages if self.model.protocol == "nvme" else (241,)

    def read_truth(self) -> TrueCounts:
        now = self._flash.read_counters()
        host = (now["host_write_bytes"] - self._start["host_write_bytes"]) * self.scale
        nand = (now["nand_write_bytes"] - self._start["nand_write_bytes"]) * self.scale
        commands = self._base.commands + host // 65536
        return TrueCounts(self._base.host + host, self._base.nand + nand + int(self._own), commands)

    @property
    def kernel_bytes(self) -> int:
        return self.boot_bytes + self.read_truth().host - self._base.host + int(self._refused)

    def advance_time(self, seconds: float) -> None:
        """Advance the time in steps; a page is refreshed at the end of the step in which it is due."""
        while seconds > 1e-9:
            step = min(seconds, self.step_s)
            seconds -= step
            self.now_ns += int(step * 1e9)
            self._own += self.own_rate * step
            self._refused += self.refused_rate * step
            self._debt += self.rate * step / (PAGE * self.scale)
            pages = int(self._debt)
            self._debt -= pages
            self._flash.run_load(self._load, pages)
            for kind, due in self._due.items():
                if self.refresh_ns and self.now_ns >= due:
                    self._shown[kind] = self.read_truth()
                    self._due[kind] = due + self.refresh_ns

    def get_shown(self, kind: int) -> TrueCounts:
        return self._shown[kind] if self.refresh_ns else self.read_truth()

    # --- as a transport ---

    def identify(self, cns: int, nsid: int) -> bytes:
        raw = bytearray(4096)
        if cns == 1:
            raw[24:64], raw[64:72] = self.model.model.encode().ljust(40), b"FW".ljust(8)
            _put_integer(raw, 96, 4, 1 << 4 | (1 << 19 if 0x22 in self.model.pages else 0))
            _put_integer(raw, 280, 16, 960 * 10**9)
        elif cns == 0:
            _put_integer(raw, 0, 8, 960 * 10**9 // 512)
            raw[130] = 9
        else:
            raise OpwatchError("no such structure")
        return bytes(raw)

    def get_log(self, lid: int, length: int, lsi: int = 0, uuid_index: int = 0) -> bytes:
        if lid not in self.model.pages or lid in self.fails:
            raise OpwatchError(f"log page {lid:02X}h: refused")
        raw, now = bytearray(length), self.get_shown(lid)
        _ENCODERS[lid](raw, now, self)
        return bytes(raw)

    # --- as smartctl ---

    def format_smartctl(self) -> str:
        now = self.get_shown(241)
        table = []
        for number, name in self.model.names.items():
            side, unit = self.model.attributes.get(number, ("", 1))
            value = (now.host if side == "host" else now.nand) // unit if side else 90
            raw = {"value": value, "string": str(value)}
            table.append({"id": number, "name": name, "value": 100, "raw": raw})
        return json.dumps(
            {
                "smartctl": {"exit_status": 0},
                "device": {"protocol": "ATA"},
                "model_name": self.model.model,
                "model_family": self.model.family,
                "firmware_version": "X1",
                "user_capacity": {"bytes": 960 * 10**9},
                "power_on_time": {"hours": HOURS},
                "ata_smart_attributes": {"table": table},
            }
        )

    def read_evidence(self) -> Evidence:
        if self.model.protocol == "ata":
            return parse_output(0, self.format_smartctl())
        return collect_nvme(self, CATALOGUE)


def _encode_smart(raw: bytearray, now: TrueCounts, drive: VirtualDrive) -> None:
    _put_integer(raw, 1, 2, 310)
    _put_integer(raw, 48, 16, -(-now.host // 512_000))
    _put_integer(raw, 80, 16, now.commands)
    _put_integer(raw, 128, 16, HOURS)
    _put_integer(raw, 144, 16, drive.shutdowns)


def _encode_endurance(raw: bytearray, now: TrueCounts, drive: VirtualDrive) -> None:
    raw[3] = 100
    _put_integer(raw, 64, 16, -(-now.host // 10**9))
    _put_integer(raw, 80, 16, -(-now.nand // 10**9))


def _encode_placement(raw: bytearray, now: TrueCounts, drive: VirtualDrive) -> None:
    _put_integer(raw, 0, 16, now.host)
    _put_integer(raw, 16, 16, now.nand)


def _encode_cloud(raw: bytearray, now: TrueCounts, drive: VirtualDrive) -> None:
    _put_integer(raw, 0, 16, now.nand)
    raw[494] = 3
    raw[496:512] = CLOUD_GUID


def _encode_intel(raw: bytearray, now: TrueCounts, drive: VirtualDrive) -> None:
    for slot, (key, value) in enumerate(((0xF4, now.nand), (0xF5, now.host))):
        raw[12 * slot], raw[12 * slot + 3] = key, 100
        _put_integer(raw, 12 * slot + 5, 6, value // (32 * MIB))


def _encode_seagate(raw: bytearray, now: TrueCounts, drive: VirtualDrive) -> None:
    raw[0] = 2
    for slot, (number, value) in enumerate(((233, now.nand), (241, now.host))):
        raw[2 + 12 * slot] = number
        _put_integer(raw, 2 + 12 * slot + 4, 8, value // 512_000)


_ENCODERS = {
    0x02: _encode_smart,
    0x09: _encode_endurance,
    0x22: _encode_placement,
    0xC0: _encode_cloud,
    0xCA: _encode_intel,
    0xC4: _encode_seagate,
}


class Bench:
    """Polls a virtual drive like the command does."""

    def __init__(self, drive: VirtualDrive, *, every_s: float = 1.0) -> None:
        self.drive, self.every_s = drive, every_s
        self.trail = Trail()
        # For each poll, the true counts at the time of the NAND counter's page.
        self.truths: list[TrueCounts] = []

    def poll_drive(self) -> None:
        """Poll the drive; the poll takes time, and the host continues to write."""
        drive = self.drive
        begin, before = drive.now_ns, drive.kernel_bytes
        counters = make_report(drive.read_evidence(), CATALOGUE)
        self.truths.append(drive.get_shown(drive.nand_page))
        drive.advance_time(drive.chance.uniform(0, 0.05))
        self.trail.add_poll(make_poll(counters, begin, drive.now_ns, before, drive.kernel_bytes))

    def poll_for(self, seconds: float) -> None:
        end = self.drive.now_ns + int(seconds * 1e9)
        while self.drive.now_ns < end:
            self.drive.advance_time(min(self.every_s, (end - self.drive.now_ns) / 1e9))
            self.poll_drive()

    @property
    def newest_index(self) -> int:
        return len(self.trail.moments) - 1

    def poll_until_settled(self, begin: int, end: int) -> MeasuredWaf:
        """Poll until the counters are settled, for at most the longest age of a page."""
        limit = self.drive.now_ns + LONGEST_NS + 2 * 10**9
        while self.drive.now_ns < limit and not Measurement(self.trail, begin, end).is_settled():
            self.poll_for(self.every_s)
        return Measurement(self.trail, begin, end).make_result()


@dataclass(frozen=True)
class MeasuredRun:
    """The measured result of a piece of work, and the true values."""

    measured: MeasuredWaf
    truth: float
    host: int
    nand: int
    # The true WAF between the two counter readings used.
    stretch_truth: float | None

    def is_within_error(self) -> bool:
        """Return True if the true value is within the error, or if there is no number."""
        waf, error = self.measured.waf, self.measured.error
        if waf is None or error is None or self.measured.stretch is None:
            return True
        truths = [self.stretch_truth, self.truth if self.measured.stretch.whole else None]
        return all(abs(waf - truth) <= error * (1 + 1e-9) + 1e-9 for truth in truths if truth is not None)


def measure_drive(
    model: Model,
    seed: int,
    *,
    work_bytes: int,
    seconds: float,
    refresh_s: float = 0.0,
    every_s: float = 1.0,
    settle: bool = True,
    before_s: float | None = None,
    refused: float = 0.0,
) -> MeasuredRun:
    """Measure a drive that is busy, idle for a while, and then written. `refused` is the share of additional
    writes that fail."""
    # From less than one to thirty drive writes: amplification rises during the run.
    scale = max(1, work_bytes // (random.Random(seed).randrange(40, 2000) * MIB))
    drive = VirtualDrive(model, seed, refresh_s=refresh_s, scale=scale, step_s=every_s / 10)
    bench = Bench(drive, every_s=every_s)
    drive.rate = work_bytes / seconds
    drive.advance_time(drive.chance.uniform(5, 20))
    drive.rate = 0
    drive.advance_time(drive.chance.uniform(0, 30) if before_s is None else before_s)
    bench.poll_drive()
    bench.poll_for(3 * every_s)
    begin, first = bench.newest_index, drive.read_truth()
    left = seconds
    while left > 0:
        drive.rate = drive.chance.uniform(0.5, 1.5) * work_bytes / seconds
        drive.refused_rate = refused * drive.rate
        step = min(left, 2 * every_s)
        bench.poll_for(step)
        left -= step
    drive.rate = drive.refused_rate = 0
    bench.poll_drive()
    end, last = bench.newest_index, drive.read_truth()
    measured = (
        bench.poll_until_settled(begin, end) if settle else Measurement(bench.trail, begin, end).make_result()
    )
    host, nand = last.host - first.host, last.nand - first.nand
    return MeasuredRun(measured, nand / host, host, nand, _compute_true_waf(bench, measured))


def _compute_true_waf(bench: Bench, measured: MeasuredWaf) -> float | None:
    """Return the true WAF of the chosen interval, if both of its ends are readings of a poll."""
    stretch = measured.stretch
    if stretch is None or not (stretch.begin.read and stretch.end.read):
        return None
    first, last = bench.truths[stretch.begin.poll], bench.truths[stretch.end.poll]
    return (last.nand - first.nand) / (last.host - first.host) if last.host > first.host else None
