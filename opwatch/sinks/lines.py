"""Plain text of at most 80 columns, or 120 on a wide terminal: an iostat-like table during the run, then
histograms and the trust line."""

from __future__ import annotations

import textwrap
from collections.abc import Collection
from datetime import datetime
from typing import TYPE_CHECKING, TextIO

from opwatch import units
from opwatch.cpu import CpuUse
from opwatch.samples.observation import Event, Observation
from opwatch.samples.slow import SlowIo, SlowRequest
from opwatch.samples.slow_tally import slowest
from opwatch.sinks.owners.words import owner_lines
from opwatch.sinks.plain import wide
from opwatch.sinks.plain.painting import LineKind, painted
from opwatch.sinks.terminal import COLUMNS, Writer
from opwatch.trace.account.stall import Stall
from opwatch.trace.derive import OpInterval
from opwatch.trace.hist import Histogram
from opwatch.trace.lacking import ERRORS, ISSUED, TRUST
from opwatch.trace.slow import Submitter
from opwatch.trace.trust import Drift, Trust
from opwatch.trim.audit.live import Discards

if TYPE_CHECKING:
    from opwatch.waf.live import Live


HEADER = "op           /s   MB/s  mean   p50   p90   p99 p99.9   max    qd size seq% err"
# Printed once on a terminal, never to a pipe.
LEGEND = "requests and MB a second; latency in the device (n, u, m: ns, us, ms); qd: queue"
REPEAT_HEADER = 20
BAR = 40
# Show the length of intervals shorter than this share of the requested length.
_SHORTER = 0.95
# A failing disk has hundreds of slow requests; JSON lists all of them.
_MOST_SLOW = 10
SHORT = {"write_zeroes": "wzeroes", "secure_erase": "serase"}


def _errors(count: int) -> str:
    """Return an error count in at most 4 characters. The summary has exact counts per status."""
    if count < 1000:
        return str(count)
    return f"{count // 1000}k" if count < 100_000 else "many"


def _row(name: str, op: OpInterval, seconds: float, absent: Collection[str] = ()) -> str:
    latency = op.latency
    times = [latency.mean, *latency.quantiles.values()]
    sequential = (
        "-" if op.sequential_ratio is None or ISSUED in absent else f"{op.sequential_ratio * 100:.0f}"
    )
    # "<" marks an upper bound: the maximum is only known to its histogram slot.
    maximum = ("<" if latency.max_slack_ns and latency.max is not None else "") + units.duration(latency.max)
    return (
        f"{SHORT.get(name, name):<7} {units.rate(op.count / seconds if seconds else 0):>6} "
        f"{units.megabytes(op.bytes / seconds if seconds else 0):>6} "
        + " ".join(f"{units.duration(time):>5}" for time in times)
        + f" {maximum:>6}{op.queue_depth:>6.1f} {units.size(op.size_p50()):>4} {sequential:>4} "
        f"{'-' if ERRORS in absent else _errors(op.errors):>3}"
    )


def _queue_row(op: OpInterval) -> str | None:
    if not op.queue or op.queue.mean is None:
        return None
    times = [op.queue.mean, *op.queue.quantiles.values(), op.queue.max]
    return f"{' in queue':<21} " + " ".join(f"{units.duration(time):>5}" for time in times)


def _histogram(name: str, title: str, histogram: Histogram) -> list[str]:
    rows = histogram.octaves()
    if not rows:
        return []
    peak = max(count for _, _, count in rows)
    lines = ["", f"{name} {title}"]
    for low, high, count in rows:
        bar = "#" * -(-count * BAR // peak)
        span = f"{units.duration(low)} - {units.duration(high + 1)}"
        lines.append(f"{span:>15} {count:>12} |{bar:<{BAR}}|")
    return lines


def _drifts(drifts: dict[str, Drift]) -> str:
    parts = []
    for group, drift in drifts.items():
        slack = f" (±{drift.slack})" if drift.slack else ""
        parts.append(f"{group} {drift.drift:+d}{slack}" if drift.drift else f"{group} 0{slack}")
    return " ".join(parts)


def trust_lines(trust: Trust, in_flight_at_start: int) -> list[str]:
    """Return the loss account as text lines."""
    misses = "?" if trust.misses is None else trust.misses
    at_start = f"in flight at start: {in_flight_at_start}"
    if trust.unmatched_flushes:
        at_start += f", and {trust.unmatched_flushes} flushes"
    lines = [
        f"trust: issued {trust.issued} completed {trust.completed} in flight {trust.in_flight} "
        f"errors {trust.errors}",
        f"  unmatched {trust.unmatched} ({at_start}) partial {trust.partial} requeued {trust.requeued}",
        f"  missed {trust.overwritten} map full {trust.map_full} skipped by kernel {misses} "
        f"clock back {trust.clock_back}",
    ]
    if trust.never_issued or trust.flush_tails:
        lines.append(f"  flush sequences: {trust.never_issued} never issued, {trust.flush_tails} tails")
    if trust.taken_back:
        lines.append(f"  taken back for another path: {trust.taken_back}, {trust.refused} before their issue")
    if trust.no_drift:
        lines.append(f"  drift against the kernel: unknown, {trust.no_drift}")
    elif not trust.drift:
        lines.append("  drift against the kernel: not kept, this driver counts nothing")
    else:
        lines.append(f"  drift against the kernel: requests {_drifts(trust.drift)}")
        lines.append(f"    bytes {_drifts(trust.byte_drift)}")
    return lines


def live_line(live: Live) -> str:
    """Return write amplification and NAND writes as one line."""
    if live.waf is None or live.waf_error is None:
        text = f"WAF none: {live.reason}"
    else:
        text = f"WAF {units.with_error(live.waf, live.waf_error)} over {live.window_s:.0f} s"
    if live.nand_bytes_per_s is not None and live.nand_error_bytes_per_s is not None:
        rate, error = (units.megabytes(n) for n in (live.nand_bytes_per_s, live.nand_error_bytes_per_s))
        text += f", NAND {rate} ± {error} MB/s"
    return text


def discard_lines(discards: Discards) -> list[str]:
    """Return lines with the senders of discards, their splitting and the requests behind them; none without
    discards."""
    lines = []
    if discards.bios:
        whole = "-" if discards.whole_ratio is None else f"{discards.whole_ratio * 100:.1f} %"
        split = "no requests"
        # The driver may have taken back all requests, and then no ratio exists.
        if discards.split_ratio and discards.requests:
            split = f"{discards.requests} requests (x{discards.split_ratio:.2f}), {discards.ranges} ranges"
        lines.append(
            f"discards: {discards.bios} sent, {split}, {whole} in whole granules, "
            f"mean {units.duration(discards.mean_ns)}"
        )
    for sender in discards.senders:
        sizes = f"{units.size(sender.min_bytes)} to {units.size(sender.max_bytes)}"
        below = f", {sender.below_granule} below a granule" if sender.below_granule else ""
        name = units.printable(
            f"{sender.comm} ({sender.cgroup})" + (f" on {sender.where}" if sender.where else "")
        )
        lines.append(
            f"  {name}: {sender.count} x {sender.op}, {units.capacity(sender.bytes)}, {sizes}{below}"
        )
    for waited in discards.stalled:
        lines.append(
            f"  behind discards: {waited.count} {waited.op}s, mean {units.duration(waited.mean_ns)}, "
            f"max so far {units.duration(waited.max_ns)}"
        )
    if discards.lost:
        lines.append(f"  ! {discards.lost} events of discards found no room and are in none of these figures")
    if discards.unseen:
        lines.append(f"  ! the kernel counted {discards.unseen:+} discards beside these")
    return lines


def _submitter(request: SlowRequest) -> str:
    if request.submitter is None:
        return f"by whom is not known: {request.reason}"
    name = request.name or "unnamed work"
    match request.submitter:
        case Submitter.PROCESS:
            who = f"{name} ({request.pid})"
        case Submitter.WRITE_BACK:
            who = f"write-back ({name})"
        case Submitter.KERNEL:
            who = f"the kernel's {name}" + (f" ({request.pid})" if request.pid else "")
    if request.cgroup_number is None:
        return who
    return f"{who} in {request.cgroup or f'cgroup {request.cgroup_number}'}"


def _slow_line(request: SlowRequest, end: datetime, end_ns: int) -> str:
    at = request.at(end, end_ns).astimezone().isoformat(timespec="milliseconds")[11:23]
    where = "" if request.sector is None else f" {units.size(request.bytes)} at {request.sector}"
    queue = "" if request.queue_ns is None else f", {units.duration(request.queue_ns)} in queue"
    return f"  {at} {request.op}{where}: {units.duration(request.latency_ns)}{queue}, {_submitter(request)}"


def slow_lines(slow: SlowIo, end: datetime, end_ns: int) -> list[str]:
    """Return the number of slow requests and the slowest of them; no lines if there were none."""
    if not slow.count:
        return []
    head = f"slow: {slow.count} took longer than {units.duration(slow.limit_ns)}"
    if slow.left_out:
        head += f", {slow.left_out} left out: too many at a time"
    shown = slowest(slow.requests, _MOST_SLOW)
    if slow.noted > len(shown) > 0:
        head += f"; the slowest {len(shown)}:"
    return [units.printable(line) for line in (head, *(_slow_line(one, end, end_ns) for one in shown))]


def stall_words(stall: Stall) -> str:
    """Return that nothing completed, how many requests are in flight, and for how long at least."""
    age = f" for ≥ {units.duration(stall.least_ns)}" if stall.least_ns else ""
    return f"nothing completed, {stall.in_flight} in flight{age}"


def cpu_line(cpu: CpuUse) -> str:
    """Return the CPU use of the whole machine during the interval."""
    parts = {"user": cpu.user_s, "system": cpu.system_s, "interrupts": cpu.irq_s, "stolen": cpu.steal_s}
    shown = {name: f"{spent / cpu.seconds:.2f}" for name, spent in parts.items()}
    shares = ", ".join(f"{name} {share}" for name, share in shown.items() if float(share))
    busy = units.with_error(cpu.busy_cores, cpu.error_s / cpu.seconds)
    return f"CPU: {busy} of {cpu.cpus} busy" + (f" ({shares})" if shares else "")


def _stay(observation: Observation) -> str:
    """Return when a disk arrived and left, or "" if it was present for the whole interval."""
    came = f", since {observation.arrival.at.astimezone():%H:%M:%S}" if observation.arrival else ""
    left = (
        f", until {observation.leaving.at.astimezone():%H:%M:%S} ({observation.leaving.why})"
        if observation.leaving
        else ""
    )
    return came + left


class Lines:
    """Writes tables to a stream. Idle devices and idle operations take no line.

    `every_s` is the requested interval length; a shorter interval shows its length. `inked` turns on colours
    and a legend.
    """

    def __init__(
        self, stream: TextIO, *, quiet: bool = False, every_s: float = 0.0, inked: bool = False
    ) -> None:
        self._writer = Writer(stream)
        self._quiet, self._inked = quiet, inked
        self._every_s = every_s
        # Columns to fill with extra fields; 0 for the 80-column table.
        self._wide = 0
        self._needs_legend = inked
        self._since_header = REPEAT_HEADER
        # Collect the lines of an observation, because one write is cheaper than thirty.
        self._pending: list[tuple[str, LineKind]] = []
        # Time of the last drive poll shown per device, so that each poll is printed once.
        self._looked: dict[str, int] = {}

    def begin(self, notes: list[str]) -> None:
        for note in notes:
            self._print(note)
        self._flush()

    def write(self, observation: Observation) -> None:
        width = self._writer.width or 0
        fitting = max((most for most in (wide.LEAST_COLUMNS, wide.TIMES_COLUMNS) if most <= width), default=0)
        if fitting != self._wide:
            self._wide, self._since_header = fitting, REPEAT_HEADER
        if observation.final:
            self._summary(observation)
        elif not self._quiet:
            self._interval(observation)
        self._flush()

    def tell(self, event: Event) -> None:
        """Do nothing: events are messages, and the command prints them to stderr."""

    def _print(self, text: str = "", kind: LineKind = LineKind.TEXT) -> None:
        text = units.printable(text)
        most = self._wide or COLUMNS
        lines = textwrap.wrap(text, most, subsequent_indent="    ") if len(text) > most else [text]
        self._pending += [(line, kind) for line in lines]

    def _flush(self) -> None:
        lines, self._pending = self._pending, []
        if lines and self._inked:
            self._writer.inked(painted(*line) for line in lines)
        elif lines:
            self._writer.lines(text for text, _ in lines)

    def _header(self) -> None:
        if self._needs_legend:
            self._needs_legend = False
            self._print(LEGEND + (wide.LEGEND if self._wide else ""), LineKind.REMARK)
        more = wide.HEADER if self._wide else ""
        more += wide.TIMES_HEADER if self._wide >= wide.TIMES_COLUMNS else ""
        self._print((HEADER + more).rstrip() if more else HEADER, LineKind.HEADER)

    def _table(self, observation: Observation) -> None:
        for place, (name, op) in enumerate(observation.interval.ops.items()):
            row = _row(name, op, observation.interval.seconds, observation.absent)
            row += wide.columns(op) if self._wide else ""
            if self._wide >= wide.TIMES_COLUMNS:
                row = f"{row:<{len(HEADER) + len(wide.HEADER)}}"
                row += wide.times(name, observation.kernel_times, is_first=not place)
            self._print(row, LineKind.ROW)
            queue = _queue_row(op)
            if queue:
                self._print(queue, LineKind.ROW)

    def _time(self, observation: Observation) -> str:
        """Return the end time of an interval, in milliseconds if intervals are under 1 s, and the length of a
        short interval."""
        at, seconds = observation.at.astimezone(), observation.interval.seconds
        time = at.isoformat(timespec="milliseconds")[11:23] if 0 < self._every_s < 1 else f"{at:%H:%M:%S}"
        return f"{time} ({seconds:.3f} s)" if seconds < _SHORTER * self._every_s else time

    def _interval(self, observation: Observation) -> None:
        time = self._time(observation)
        lost = "; ".join(observation.unexplained)
        explained = "; ".join(loss.brief for loss in observation.explained)
        mark = _stay(observation) + (f"  {explained}" if explained else "") + (f"  ! {lost}" if lost else "")
        stall = f"  {stall_words(observation.stall)}" if observation.stall else ""
        mark = stall + mark
        if not observation.interval.ops and not stall:
            self._print(
                f"{time} {observation.label}: idle"
                + (mark if observation.arrival or observation.leaving else ""),
                LineKind.REMARK,
            )
            self._live(observation)
            return
        if self._since_header >= REPEAT_HEADER:
            self._header()
            self._since_header = 0
        self._since_header += len(observation.interval.ops)
        self._print(f"{time} {observation.label}{mark}", LineKind.TITLE)
        self._table(observation)
        self._owners(observation)
        self._slow(observation)
        self._discards(observation)
        self._live(observation)

    def _owners(self, observation: Observation) -> None:
        if observation.owners:
            for line in owner_lines(observation.owners, observation.interval.seconds, COLUMNS):
                self._print(line)

    def _slow(self, observation: Observation) -> None:
        if observation.slow:
            for line in slow_lines(observation.slow, observation.at, observation.interval.end_ns):
                self._print(line)

    def _discards(self, observation: Observation) -> None:
        for line in discard_lines(observation.discards) if observation.discards else []:
            self._print(line)

    def _live(self, observation: Observation) -> None:
        """Print a line if the drive's counters have been polled since the last one."""
        if observation.live and self._looked.get(observation.device) != observation.live.mono_ns:
            self._looked[observation.device] = observation.live.mono_ns
            self._print(f"{observation.device}: {live_line(observation.live)}")

    def _summary(self, observation: Observation) -> None:
        self._print()
        seconds = observation.interval.seconds
        self._print(
            f"== {observation.label}, {observation.level}, {seconds:.1f} s{_stay(observation)}",
            LineKind.TITLE,
        )
        if observation.interval.ops:
            self._header()
            self._table(observation)
            for name, op in observation.interval.ops.items():
                for line in _histogram(name, "latency", op.latency.histogram):
                    self._print(line, LineKind.BAR)
                if op.queue:
                    for line in _histogram(name, "time in queue", op.queue.histogram):
                        self._print(line, LineKind.BAR)
                for status, count in op.statuses.items():
                    self._print(f"{name} errors, {status}: {count}", LineKind.ALARM)
            self._print()
        elif not observation.stall:
            self._print("no I/O")
        if observation.stall:
            self._print(f"at the end {stall_words(observation.stall)}", LineKind.ALARM)
        self._owners(observation)
        self._slow(observation)
        self._discards(observation)
        self._machine_and_drive(observation)
        if TRUST in observation.absent:
            for sentence in observation.lacks:
                self._print(f"not known: {sentence}")
            return
        head = LineKind.ALARM if observation.unexplained else LineKind.TRUST
        for place, line in enumerate(trust_lines(observation.trust, observation.in_flight_at_start)):
            self._print(line, LineKind.TEXT if place else head)
        for loss in observation.explained:
            self._print(f"  {loss.words}")
        for line in observation.unexplained:
            self._print(f"  UNEXPLAINED: {line}", LineKind.ALARM)
        for sentence in observation.lacks:
            self._print(f"  not known: {sentence}")

    def _machine_and_drive(self, observation: Observation) -> None:
        if observation.cpu:
            self._print(cpu_line(observation.cpu))
        if observation.live:
            self._print(f"{live_line(observation.live)}")
            if observation.live.source:
                self._print(f"  by {observation.live.source}")
