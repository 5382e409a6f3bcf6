"""Prove NVMe counters from log pages. Host writes and NAND writes each use their best source."""

from __future__ import annotations

from opwatch.counters.catalogue.families import Catalogue, Counter, Entry
from opwatch.counters.decode import endurance, ocp, smart_log
from opwatch.counters.decode.pages import BadPage
from opwatch.counters.decode.vendor_page import LAYOUTS, Item, decode_wear_counts, find_item
from opwatch.counters.evidence import Evidence, VendorPage
from opwatch.counters.prove import sanity
from opwatch.counters.prove.statistics import is_close
from opwatch.counters.reading import CounterReading, Proof, make_unknown

# Units of counters in vendor pages, more than 2 % apart from each other.
_OWN_UNITS = (1, 512, 4096, 16384, 512_000, 10**6, 1 << 20, 1 << 25, 10**9, 1 << 30)
# Some P3x00 firmware wraps at 2^32 sectors, and other Intel firmware may. Rebranded drives too.
_INTEL = 0x8086
# Scale factors of a page's ratio. Below 20, one step of the ratio is too coarse to prove anything.
_SCALES, _MIN_OWN = (1, 10, 100, 1000), 20


class NvmeProof:
    """Proven counters from one drive's pages."""

    def __init__(self, evidence: Evidence, catalogue: Catalogue) -> None:
        self._evidence = evidence
        self._drive = evidence.drive
        self._entries = catalogue.find_entries(evidence.drive, "nvme")
        self._capacity = evidence.drive.capacity_bytes

    def find_fault(self) -> Entry | None:
        """Return the entry of a firmware with known wrong counters, or None."""
        return next((entry for entry in self._entries if entry.fault), None)

    # --- host ---

    def list_host_counts(self) -> list[CounterReading]:
        """Return all sources of host writes in bytes, best first."""
        candidates = [
            self._read_fdp_host(),
            self._read_smart_host(),
            self._read_endurance_host(),
            *self._list_vendor_counts("host"),
        ]
        listed = [reading for reading in candidates if reading]
        listed.sort(key=lambda reading: reading.value is None)
        if not listed:
            return [make_unknown("no log page with a count of host writes was read")]
        return [listed[0], *(self._check_agreement(reading, listed[0]) for reading in listed[1:])]

    def _check_agreement(self, reading: CounterReading, best: CounterReading) -> CounterReading:
        """Check S1: refuse a vendor count of host writes that differs from the best source."""
        if reading.proof is not Proof.CATALOGUE or reading.value is None or best.value is None:
            return reading
        if is_close(reading.value, best.value, reading.quantum + best.quantum):
            return reading
        return reading.without_value(
            f"{reading.value} bytes differ from the {best.value} bytes of {best.source}"
        )

    def _read_fdp_host(self) -> CounterReading | None:
        fdp, smart = self._evidence.fdp, self._evidence.smart
        if not fdp or fdp.host_bytes_written is None or (smart and smart.data_units_written):
            # 02h covers the drive's life, 22h the time since placement was enabled. The report shows both.
            return None
        return self.make_placement_reading(fdp.host_bytes_written, "HBMW")

    def make_placement_reading(self, value: int, name: str) -> CounterReading:
        """Return a count of log 22h."""
        reading = CounterReading(value, "bytes", 1, f"log 22h {name} (bytes)", Proof.SPEC)
        return reading.with_caveat("metadata included, since placement was enabled, of its endurance group")

    def _read_smart_host(self) -> CounterReading | None:
        smart = self._evidence.smart
        if not smart or smart.data_units_written is None:
            return None
        units, fault = smart.data_units_written, self.find_fault()
        unit, proof = smart_log.UNIT_BYTES, Proof.SPEC
        if fault and fault.host:
            unit, proof = fault.host.units[0], Proof.CATALOGUE
        source = f"log 02h data units written ({unit} B, rounded up)"
        reading = CounterReading(units * unit, "bytes", unit, source, proof, refresh_s=self._find_refresh_s())
        if fault and fault.host:
            reading = reading.with_caveat(fault.fault or "")
        return self._check_host(reading, units, fault)

    def _check_host(self, reading: CounterReading, units: int, fault: Entry | None) -> CounterReading:
        smart = self._evidence.smart
        value = reading.value or 0
        if fault and not fault.host:
            return reading.without_value(fault.fault or "")
        if not smart or not (units or smart.write_commands == 0):
            return reading.without_value(
                "the counter is 0 although there were writes: the drive does not report it"
            )
        reason = sanity.find_first_reason(
            self.check_commands(value, smart.write_commands),
            sanity.check_speed(value, smart.power_on_hours or None, "nvme"),
        )
        return reading.without_value(reason) if reason else reading

    def check_commands(self, value: int, commands: int | None) -> str | None:
        """Return the reason why the commands cannot have moved the bytes, or None.

        Assumes 512-byte blocks, because the drive may have been formatted with another block size before.
        """
        vendor, model = self._drive.vendor_id, self._drive.model
        wraps = vendor == _INTEL if vendor is not None else model is None or model.startswith("INTEL")
        return sanity.find_first_reason(
            sanity.check_mean_write(value, commands, 512, self._drive.max_transfer_bytes),
            sanity.check_wrap(value, commands) if wraps else None,
        )

    def _find_refresh_s(self) -> int | None:
        return ocp.REFRESH_S if self._evidence.ocp else None

    def _read_endurance_host(self) -> CounterReading | None:
        group = self._evidence.endurance
        if not group or not group.data_units_written:
            return None
        value = group.data_units_written * endurance.UNIT_BYTES
        source = "log 09h data units written (10^9 B, rounded up)"
        reading = CounterReading(value, "bytes", endurance.UNIT_BYTES, source, Proof.SPEC)
        reason = self._check_endurance_unit()
        return reading.without_value(reason) if reason else reading

    def _check_endurance_unit(self) -> str | None:
        """Return a reason if the host count of 09h, in units of 10^9 bytes, differs from that of 02h."""
        group, smart = self._evidence.endurance, self._evidence.smart
        if not group or not smart or not smart.data_units_written or not group.data_units_written:
            return "its unit cannot be compared with log 02h"
        ours = group.data_units_written * endurance.UNIT_BYTES
        theirs = smart.data_units_written * smart_log.UNIT_BYTES
        if abs(ours - theirs) <= 0.02 * theirs + 2 * endurance.UNIT_BYTES:
            return None
        return "its host count in units of 10^9 bytes differs from log 02h"

    # --- NAND ---

    def list_nand_counts(self, host: CounterReading) -> list[CounterReading]:
        """Return all sources of NAND writes in bytes, best first."""
        refusal = next((entry.no_nand for entry in self._entries if entry.no_nand), None)
        if refusal:
            return [make_unknown(refusal)]
        candidates = [
            self._read_ocp_nand(host),
            *self._list_vendor_counts("nand", host),
            self._read_endurance_nand(host),
            self._read_fdp_nand(),
        ]
        boot = self._read_boot_nand(host)
        listed = [reading for reading in [*candidates, boot] if reading]
        listed.sort(key=lambda reading: reading.value is None)
        return listed or [make_unknown("no log page with a count of NAND writes was read")]

    def _read_ocp_nand(self, host: CounterReading) -> CounterReading | None:
        page = self._evidence.ocp
        if not page:
            return None
        source = "log C0h physical media units written (bytes, GUID checked)"
        if page.media_written is None:
            return make_unknown("log C0h reports that the drive does not count media writes", source=source)
        reading = CounterReading(page.media_written, "bytes", 1, source, Proof.SPEC, refresh_s=ocp.REFRESH_S)
        erases = [erase_count for erase_count in (page.erase_max, page.erase_min) if erase_count is not None]
        average = page.erase_average or (sum(erases) / 2 if len(erases) == 2 else None)
        return self._check_nand(reading, host, average)

    def _check_nand(
        self, reading: CounterReading, host: CounterReading, average: float | None
    ) -> CounterReading:
        value = reading.value or 0
        if not value and host.value != 0:
            return reading.without_value(
                "the counter is 0 although the host wrote data: it is not implemented"
            )
        reason = sanity.find_first_reason(
            sanity.check_ratio(value, host.value, self._capacity),
            sanity.check_erases(value, average, self._capacity),
        )
        if reason:
            return reading.without_value(reason)
        if host.value and value + reading.quantum <= host.value - host.quantum:
            return reading.with_caveat("below the host's writes")
        return reading

    def _read_endurance_nand(self, host: CounterReading) -> CounterReading | None:
        group = self._evidence.endurance
        if not group or group.media_units_written is None:
            return None
        source = "log 09h media units written (10^9 B)"
        if not group.media_units_written:
            return make_unknown("the count in log 09h is 0, which means not reported", source=source)
        value = group.media_units_written * endurance.UNIT_BYTES
        reading = CounterReading(value, "bytes", endurance.UNIT_BYTES, source, Proof.SPEC)
        reason = self._check_endurance_unit()
        return reading.without_value(reason) if reason else self._check_nand(reading, host, None)

    def _read_fdp_nand(self) -> CounterReading | None:
        fdp = self._evidence.fdp
        if not fdp or fdp.media_bytes_written is None:
            return None
        return self.make_placement_reading(fdp.media_bytes_written, "MBMW")

    def _read_boot_nand(self, host: CounterReading) -> CounterReading | None:
        page = self._evidence.boot
        if not page or page.tlc_written is None or page.slc_written is None:
            return None
        counter = Counter(("TLC", "SLC"), (1, smart_log.UNIT_BYTES), 1)
        total = page.tlc_written + page.slc_written
        source = "log C0h of boot drives, TLC + SLC media units written"
        return self._choose_unit_by_ratio(total, counter, source, host, page.tlc_erase_average)

    def _choose_unit_by_ratio(
        self, total: int, counter: Counter, source: str, host: CounterReading, average: float | None
    ) -> CounterReading:
        """Choose the only unit that host writes and erase counts allow, or return no value."""
        fits: list[int] = []
        for unit in counter.units:
            value = total * unit
            enough = host.value is not None or (average or 0) >= 10
            likely = not host.value or 0.5 <= value / host.value <= sanity.RATIO[1]
            if enough and likely and not sanity.check_erases(value, average, self._capacity):
                fits.append(unit)
        if len(fits) != 1 or not total:
            return CounterReading(None, "bytes", 0, source, Proof.CANDIDATE, "its unit cannot be determined")
        proven = f"{source} ({fits[0]} B by the host's writes or the erase counts)"
        return CounterReading(total * fits[0], "bytes", fits[0], proven, Proof.CALIBRATED)

    # --- vendor pages ---

    def read_erases(self) -> dict[str, CounterReading]:
        """Return the erase counts of a vendor page, if the catalogue knows a page with all three."""
        for entry in self._entries:
            for page in self._evidence.vendor:
                if entry.layout != "kv12" or page.lid != entry.lid:
                    continue
                try:
                    item = self._decode_items(entry, page).get("AD")
                except BadPage:
                    continue
                counts = decode_wear_counts(item) if item else None
                if counts:
                    source = f"log {page.lid:02X}h AD (catalogue: {entry.name})"
                    names = ("erase_min", "erase_max", "erase_average")
                    return {
                        name: CounterReading(count, "erases", 1, source, Proof.CATALOGUE)
                        for name, count in zip(names, counts, strict=True)
                    }
        return {}

    def _list_vendor_counts(self, side: str, host: CounterReading | None = None) -> list[CounterReading]:
        readings: list[CounterReading] = []
        for entry in self._entries:
            counter = entry.nand if side == "nand" else entry.host
            page = next(
                (candidate for candidate in self._evidence.vendor if candidate.lid == entry.lid), None
            )
            # A host count that only proves the unit of the NAND count is not a separate source.
            if counter and page and not entry.fault and not (entry.own_ratio and side == "host"):
                readings.append(self._read_page_counter(entry, counter, page, host))
        if readings or not self._evidence.vendor:
            return readings
        pages = ", ".join(f"{page.lid:02X}h" for page in self._evidence.vendor)
        reason = "no catalogue entry matches this drive, so the unit is unproven"
        return [make_unknown(reason, source=f"log {pages}")]

    def _decode_items(self, entry: Entry, page: VendorPage) -> dict[str, Item]:
        if page.raw is None:
            if page.layout != entry.layout:
                raise BadPage(f"the text shows a different layout of log {page.lid:02X}h")
            return page.items
        return LAYOUTS[entry.layout or "fixed"](page.raw)

    def _read_page_counter(
        self, entry: Entry, counter: Counter, page: VendorPage, host: CounterReading | None
    ) -> CounterReading:
        source = f"log {page.lid:02X}h {'+'.join(counter.terms)} (catalogue: {entry.name})"
        try:
            items = self._decode_items(entry, page)
        except BadPage as error:
            return make_unknown(str(error), source=source)
        terms = [find_item(items, page.raw, term) for term in counter.terms]
        if any(term is None for term in terms):
            return make_unknown("the page does not contain it", source=source)
        known = [term for term in terms if term]
        total = sum(term.raw for term in known)
        if total == 0 and all(term.normalized in (0, None) for term in known):
            return make_unknown("all its parts are 0: it is not implemented", source=source)
        average = self._find_average_erases(entry, items, page.raw)
        if entry.own_ratio:
            proven = self._derive_from_own_ratio(entry, page, source, host)
            return proven if proven.value is None or not host else self._check_nand(proven, host, average)
        if len(counter.units) > 1:
            return self._choose_unit_by_ratio(total, counter, source, host or make_unknown("none"), average)
        quantum = max(counter.quantum, max(term.step for term in known) * counter.units[0])
        reading = CounterReading(
            total * counter.units[0], "bytes", quantum, source, Proof.CATALOGUE, caveat=counter.caveat
        )
        if not host:
            return reading
        reason = self._check_page_host(entry, page, host)
        return reading.without_value(reason) if reason else self._check_nand(reading, host, average)

    def _derive_from_own_ratio(
        self, entry: Entry, page: VendorPage, source: str, host: CounterReading | None
    ) -> CounterReading:
        """Return the NAND writes of a page with its own WAF, in the unit proven by the page's host count."""
        sides = [
            find_item({}, page.raw, term)
            for counter in (entry.host, entry.nand)
            for term in (counter.terms if counter else ())
        ]
        own = find_item({}, page.raw, entry.own_ratio or "")
        raws = [side.raw for side in sides if side]
        if host is None or host.value is None or own is None or len(raws) != 2 or not all(raws):
            return make_unknown(
                "its unit is unknown because log 02h or a part of this page is missing", source=source
            )
        ours, nand = raws
        if own.raw < _MIN_OWN or not any(abs(nand * scale / ours - own.raw) <= 1 for scale in _SCALES):
            return make_unknown(
                "the page's own ratio does not prove that its two counters share a unit", source=source
            )
        fits = [unit for unit in _OWN_UNITS if is_close(ours * unit, host.value, unit + host.quantum)]
        if len(fits) != 1:
            return make_unknown("its count of host writes matches log 02h in no known unit", source=source)
        proven = f"{source} ({fits[0]} B by its count of host writes and its own ratio)"
        return CounterReading(nand * fits[0], "bytes", fits[0], proven, Proof.CALIBRATED)

    def _check_page_host(self, entry: Entry, page: VendorPage, host: CounterReading) -> str | None:
        """Check S1: the page's host writes must match the best source."""
        if not entry.host or host.value is None:
            return None
        theirs = self._read_page_counter(entry, entry.host, page, None)
        if theirs.value is None or abs(theirs.value - host.value) <= 0.02 * host.value + 2 * (
            theirs.quantum + host.quantum
        ):
            return None
        return f"the page reports {theirs.value} bytes of host writes, but {host.source} {host.value} bytes"

    def _find_average_erases(self, entry: Entry, items: dict[str, Item], raw: bytes | None) -> float | None:
        wear = decode_wear_counts(items["AD"]) if entry.layout == "kv12" and "AD" in items else None
        if wear:
            return float(wear[2])
        counts = [find_item(items, raw, term) for term in entry.erase]
        if "erase-a" in items and "erase-b" in items:
            counts = [items["erase-a"], items["erase-b"]]
        if not counts or any(count is None for count in counts):
            return None
        return sum(count.raw for count in counts if count) / len(counts)
