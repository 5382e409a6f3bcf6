"""Plain text of at most 80 columns, or 120 on a wide terminal: an iostat-like table during the run, then
histograms and the trust line."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, TextIO

from opwatch import units
from opwatch.cpu import CpuUse
from opwatch.samples.observation import Event, Observation
from opwatch.samples.slow import SlowIo, SlowRequest
from opwatch.samples.slow_tally import select_slowest
from opwatch.sinks.columns import (
    WIDE,
    WIDER,
    draw_latency_shape,
    format_header,
    format_row,
    format_wait_rows,
    read_figures,
)
from opwatch.sinks.jsonl import build_op_document
from opwatch.sinks.owners.labels import format_owner_lines
from opwatch.sinks.terminal import COLUMNS, Writer
from opwatch.sinks.tones import Span, Tone
from opwatch.trace.account.stall import Stall
from opwatch.trace.hist import Histogram
from opwatch.trace.slow import Submitter
from opwatch.trace.trust import Drift, LossAccount
from opwatch.trace.unavailable import TRUST
from opwatch.trim.audit.live import DiscardSummary

if TYPE_CHECKING:
    from opwatch.waf.live import CurrentWaf


# Printed once on a terminal, never to a pipe.
LEGEND = "/s: requests per second; latency in the device (n, u, m: ns, us, ms); qd: queue"
REPEAT_HEADER = 20
BAR = 40
# Show the length of intervals shorter than this share of the requested length.
_MIN_FULL_RATIO = 0.95
# A failing disk has hundreds of slow requests; JSON lists all of them.
_MAX_SLOW = 10
_WIDE_LEGEND = "; bars: latency distribution"


def paint_title(text: str) -> list[Span]:
    """Return a title with its unexplained losses, which follow a mark, as an alarm."""
    title, mark, rest = text.partition("  ! ")
    return [(title, Tone.STRONG), (mark + rest, Tone.ALARM)]


def paint_trust(text: str) -> list[Span]:
    head, colon, rest = text.partition(":")
    return [(head + colon, Tone.GOOD), (rest, Tone.PLAIN)]


def paint_bar(text: str) -> list[Span]:
    head, edge, rest = text.partition("|")
    bar = rest.rstrip("|")
    return [(head + edge, Tone.PLAIN), (bar, Tone.READ), (rest[len(bar) :], Tone.PLAIN)]


def _format_histogram(name: str, title: str, histogram: Histogram) -> list[str]:
    rows = histogram.list_octaves()
    if not rows:
        return []
    peak = max(count for _, _, count in rows)
    lines = ["", f"{name} {title}"]
    for low, high, count in rows:
        bar = "#" * -(-count * BAR // peak)
        span = f"{units.format_ns(low)} - {units.format_ns(high + 1)}"
        lines.append(f"{span:>15} {count:>12} |{bar:<{BAR}}|")
    return lines


def _format_drifts(drifts: dict[str, Drift]) -> str:
    parts = []
    for group, drift in drifts.items():
        slack = f" (±{drift.slack})" if drift.slack else ""
        parts.append(f"{group} {drift.drift:+d}{slack}" if drift.drift else f"{group} 0{slack}")
    return " ".join(parts)


def format_trust(trust: LossAccount, in_flight_at_start: int) -> list[str]:
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
        lines.append("  drift against the kernel: unknown, this driver keeps no statistics")
    else:
        lines.append(f"  drift against the kernel: requests {_format_drifts(trust.drift)}")
        lines.append(f"    bytes {_format_drifts(trust.byte_drift)}")
    return lines


def format_live(live: CurrentWaf) -> str:
    """Return write amplification and NAND writes as one line."""
    if live.waf is None or live.waf_error is None:
        text = f"WAF none: {live.reason}"
    else:
        text = f"WAF {units.format_with_error(live.waf, live.waf_error)} over {live.window_s:.0f} s"
    if live.nand_bytes_per_s is not None and live.nand_error_bytes_per_s is not None:
        rate, error = (
            units.format_megabytes(n) for n in (live.nand_bytes_per_s, live.nand_error_bytes_per_s)
        )
        text += f", NAND {rate} ± {error} MB/s"
    return text


def format_discards(discards: DiscardSummary) -> list[str]:
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
            f"mean {units.format_ns(discards.mean_ns)}"
        )
    for sender in discards.senders:
        sizes = f"{units.format_size(sender.min_bytes)} to {units.format_size(sender.max_bytes)}"
        below = f", {sender.below_granule} smaller than a granule" if sender.below_granule else ""
        name = units.replace_unprintable(
            f"{sender.comm} ({sender.cgroup})" + (f" on {sender.where}" if sender.where else "")
        )
        lines.append(
            f"  {name}: {sender.count} x {sender.op}, {units.format_capacity(sender.bytes)}, {sizes}{below}"
        )
    for waited in discards.stalled:
        lines.append(
            f"  behind discards: {waited.count} {waited.op}s, mean {units.format_ns(waited.mean_ns)}, "
            f"max so far {units.format_ns(waited.max_ns)}"
        )
    if discards.lost:
        lines.append(f"  ! {discards.lost} discard events were dropped and are in none of these figures")
    if discards.unseen:
        lines.append(f"  ! the kernel counted {discards.unseen:+} discards in addition to these")
    return lines


def _format_submitter(request: SlowRequest) -> str:
    if request.submitter is None:
        return f"submitter unknown: {request.reason}"
    name = request.name or "unnamed"
    match request.submitter:
        case Submitter.PROCESS:
            who = f"{name} ({request.pid})"
        case Submitter.WRITE_BACK:
            who = f"write-back ({name})"
        case Submitter.KERNEL:
            who = f"kernel: {name}" + (f" ({request.pid})" if request.pid else "")
    if request.cgroup_number is None:
        return who
    return f"{who} in {request.cgroup or f'cgroup {request.cgroup_number}'}"


def _format_slow_request(request: SlowRequest, end: datetime, end_ns: int) -> str:
    at = request.find_end_time(end, end_ns).astimezone().isoformat(timespec="milliseconds")[11:23]
    where = "" if request.sector is None else f" {units.format_size(request.bytes)} at {request.sector}"
    queue = "" if request.queue_ns is None else f", {units.format_ns(request.queue_ns)} in queue"
    return (
        f"  {at} {request.op}{where}: {units.format_ns(request.latency_ns)}{queue}, "
        f"{_format_submitter(request)}"
    )


def format_slow_requests(slow: SlowIo, end: datetime, end_ns: int) -> list[str]:
    """Return the number of slow requests and the slowest of them; no lines if there were none."""
    if not slow.count:
        return []
    head = f"slow: {slow.count} took longer than {units.format_ns(slow.limit_ns)}"
    if slow.left_out:
        head += f", {slow.left_out} not recorded: too many at once"
    shown = select_slowest(slow.requests, _MAX_SLOW)
    if slow.noted > len(shown) > 0:
        head += f"; the slowest {len(shown)}:"
    return [
        units.replace_unprintable(line)
        for line in (head, *(_format_slow_request(one, end, end_ns) for one in shown))
    ]


def format_stall(stall: Stall) -> str:
    """Return that nothing completed, how many requests are in flight, and for how long at least."""
    age = f" for ≥ {units.format_ns(stall.least_ns)}" if stall.least_ns else ""
    return f"nothing completed, {stall.in_flight} in flight{age}"


def format_cpu(cpu: CpuUse) -> str:
    """Return the CPU use of the whole machine during the interval."""
    parts = {"user": cpu.user_s, "system": cpu.system_s, "interrupts": cpu.irq_s, "stolen": cpu.steal_s}
    shown = {name: f"{spent / cpu.seconds:.2f}" for name, spent in parts.items()}
    shares = ", ".join(f"{name} {share}" for name, share in shown.items() if float(share))
    busy = units.format_with_error(cpu.busy_cores, cpu.error_s / cpu.seconds)
    return f"CPU: {busy} of {cpu.cpus} busy" + (f" ({shares})" if shares else "")


def _format_presence(observation: Observation) -> str:
    """Return when a disk arrived and left, or "" if it was present for the whole interval."""
    came = f", since {observation.arrival.at.astimezone():%H:%M:%S}" if observation.arrival else ""
    left = (
        f", until {observation.leaving.at.astimezone():%H:%M:%S} ({observation.leaving.why})"
        if observation.leaving
        else ""
    )
    return came + left


class TextLines:
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
        # Width of a table with more columns; 0 for the 80-column table.
        self._wide = 0
        self._needs_legend = inked
        self._since_header = REPEAT_HEADER
        # Collect the lines of an observation, because one write is cheaper than thirty.
        self._pending: list[Sequence[Span]] = []
        # Time of the last drive poll shown per device, so that each poll is printed once.
        self._looked: dict[str, int] = {}

    def begin_output(self, notes: list[str]) -> None:
        for note in notes:
            self._append_text(note)
        self._flush_pending()

    def write_observation(self, observation: Observation) -> None:
        width = self._writer.width or 0
        fitting = max((most for most in (WIDE, WIDER) if most <= width), default=0)
        if fitting != self._wide:
            self._wide, self._since_header = fitting, REPEAT_HEADER
        if observation.final:
            self._append_summary(observation)
        elif not self._quiet:
            self._print_interval(observation)
        self._flush_pending()

    def write_event(self, event: Event) -> None:
        """Do nothing: events are messages, and the command prints them to stderr."""

    def _append_text(self, text: str = "", paint: Tone | Callable[[str], list[Span]] = Tone.PLAIN) -> None:
        text = units.replace_unprintable(text)
        most = self._wide or COLUMNS
        lines = textwrap.wrap(text, most, subsequent_indent="    ") if len(text) > most else [text]
        self._pending += [[(line, paint)] if isinstance(paint, Tone) else paint(line) for line in lines]

    def _append_row(self, row: Sequence[Span]) -> None:
        text = "".join(part for part, _ in row)
        if len(text) > (self._wide or COLUMNS):
            self._append_text(text)
        elif row:
            self._pending.append(row)

    def _flush_pending(self) -> None:
        lines, self._pending = self._pending, []
        if lines and self._inked:
            self._writer.write_spans(lines)
        elif lines:
            self._writer.write_lines("".join(text for text, _ in line) for line in lines)

    def _print_header(self) -> None:
        if self._needs_legend:
            self._needs_legend = False
            self._append_text(LEGEND + (_WIDE_LEGEND if self._wide else ""), Tone.FAINT)
        self._append_text(format_header(self._wide), Tone.STRONG)

    def _print_table(self, observation: Observation) -> None:
        seconds, times = observation.interval.seconds, observation.kernel_times
        for place, (name, op) in enumerate(observation.interval.ops.items()):
            figures = read_figures(build_op_document(op, seconds, observation.missing_fields))
            if self._wide:
                awaited = times.awaits.get(name) if times else None
                figures["latency_shape"] = draw_latency_shape(op.latency.histogram)
                figures["await_ns"] = awaited.mean_ns if awaited else None
                figures["busy_ratio"] = times.busy_ratio if times else None
            self._append_row(format_row(name, figures, self._wide, is_first=not place))
            for row in format_wait_rows(figures):
                self._append_row(row)

    def _format_time(self, observation: Observation) -> str:
        """Return the end time of an interval, in milliseconds if intervals are under 1 s, and the length of a
        short interval."""
        at, seconds = observation.at.astimezone(), observation.interval.seconds
        time = at.isoformat(timespec="milliseconds")[11:23] if 0 < self._every_s < 1 else f"{at:%H:%M:%S}"
        return f"{time} ({seconds:.3f} s)" if seconds < _MIN_FULL_RATIO * self._every_s else time

    def _print_interval(self, observation: Observation) -> None:
        time = self._format_time(observation)
        lost = "; ".join(observation.unexplained)
        explained = "; ".join(loss.brief for loss in observation.explained_losses)
        mark = (
            _format_presence(observation)
            + (f"  {explained}" if explained else "")
            + (f"  ! {lost}" if lost else "")
        )
        stall = f"  {format_stall(observation.stall)}" if observation.stall else ""
        mark = stall + mark
        if not observation.interval.ops and not stall:
            self._append_text(
                f"{time} {observation.label}: idle"
                + (mark if observation.arrival or observation.leaving else ""),
                Tone.FAINT,
            )
            self._append_live(observation)
            return
        if self._since_header >= REPEAT_HEADER:
            self._print_header()
            self._since_header = 0
        self._since_header += len(observation.interval.ops)
        self._append_text(f"{time} {observation.label}{mark}", paint_title)
        self._print_table(observation)
        self._print_owners(observation)
        self._print_slow(observation)
        self._print_discards(observation)
        self._append_live(observation)

    def _print_owners(self, observation: Observation) -> None:
        if observation.owners:
            for line in format_owner_lines(observation.owners, observation.interval.seconds, COLUMNS):
                self._append_text(line)

    def _print_slow(self, observation: Observation) -> None:
        if observation.slow:
            for line in format_slow_requests(observation.slow, observation.at, observation.interval.end_ns):
                self._append_text(line)

    def _print_discards(self, observation: Observation) -> None:
        for line in format_discards(observation.discards) if observation.discards else []:
            self._append_text(line)

    def _append_live(self, observation: Observation) -> None:
        """Print a line if the drive's counters have been polled since the last one."""
        if observation.live and self._looked.get(observation.device) != observation.live.mono_ns:
            self._looked[observation.device] = observation.live.mono_ns
            self._append_text(f"{observation.device}: {format_live(observation.live)}")

    def _append_summary(self, observation: Observation) -> None:
        self._append_text()
        seconds = observation.interval.seconds
        self._append_text(
            f"== {observation.label}, {observation.level}, {seconds:.1f} s{_format_presence(observation)}",
            paint_title,
        )
        if observation.interval.ops:
            self._print_header()
            self._print_table(observation)
            for name, op in observation.interval.ops.items():
                for line in _format_histogram(name, "latency", op.latency.histogram):
                    self._append_text(line, paint_bar)
                if op.queue:
                    for line in _format_histogram(name, "time in queue", op.queue.histogram):
                        self._append_text(line, paint_bar)
                for status, count in op.statuses.items():
                    self._append_text(f"{name} errors, {status}: {count}", Tone.ALARM)
            self._append_text()
        elif not observation.stall:
            self._append_text("no I/O")
        if observation.stall:
            self._append_text(f"at the end: {format_stall(observation.stall)}", Tone.ALARM)
        self._print_owners(observation)
        self._print_slow(observation)
        self._print_discards(observation)
        self._append_cpu_and_live(observation)
        if TRUST in observation.missing_fields:
            for sentence in observation.lacks:
                self._append_text(f"not available: {sentence}")
            return
        head = Tone.ALARM if observation.unexplained else paint_trust
        for place, line in enumerate(format_trust(observation.trust, observation.in_flight_at_start)):
            self._append_text(line, Tone.PLAIN if place else head)
        for loss in observation.explained_losses:
            self._append_text(f"  {loss.words}")
        for line in observation.unexplained:
            self._append_text(f"  UNEXPLAINED: {line}", Tone.ALARM)
        for sentence in observation.lacks:
            self._append_text(f"  not available: {sentence}")

    def _append_cpu_and_live(self, observation: Observation) -> None:
        if observation.cpu:
            self._append_text(format_cpu(observation.cpu))
        if observation.live:
            self._append_text(f"{format_live(observation.live)}")
            if observation.live.source:
                self._append_text(f"  by {observation.live.source}")
