"""`python -m tests.bench.exporter_bench`: memory, CPU time and answers of `opwatch exporter`.

Debian's node_exporter, with all its default collectors, watches the same eight simulated drives and is
scraped in turn. All drives read, write, flush and discard between any two scrapes. A scrape is counted only
if its reading is fresh: the exporter answers with one reading for a second. CPU time is that of the process
from a request until the next one, so it includes polls of drives and what a server does after an answer. MB
and KB are decimal. Needs root.
"""

from __future__ import annotations

import itertools
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from opwatch.collectors.owners.cgroups import find_io_hierarchy
from opwatch.metrics.formats import ExpositionFormat
from tests.fleet.scrape.engines import find_free_port, find_program, run_server
from tests.kernel.support.broker import run_broker
from tests.kernel.support.drives import create_drive
from tests.kernel.support.exporting import start_exporter
from tests.kernel.support.load import reads, run_mixture
from tests.section import Section

from .figure import Figure, choose_exit_status, choose_size, format_table
from .figures import describe_machine
from .idle_interpreter import list_standard_modules, run_idle_interpreter
from .metered_server import Answer, Memory, MeteredServer, count_series, read_memory

SECTION = Section("overhead.md", "exporter")
DISKS = choose_size(8, 2)
# Each round has a fresh scrape of each format, so 300 in all.
ROUNDS = choose_size(100, 2)
WARM_UP = choose_size(4, 1)
SCRAPES = choose_size(10_000, 50)
GROUPS, GROUPS_AT_ONCE = choose_size((1000, 25), (20, 10))
FRESH_S = 1.05
_MB, _KB, _MS = 1e6, 1e3, 1e3
_MAX_RSS_MB, _MAX_PSS_MB, _MAX_TLS_MB, _MAX_BROKER_MB = 21, 15, 5, 3
_MAX_CPU_RATIO = 0.7
_MAX_NATIVE, _MAX_CLASSIC = 48, 217
# Sizes of answers in KB: as they are, and by gzip.
_MAX_SIZES = {
    ExpositionFormat.TEXT: (130, 10),
    ExpositionFormat.OPENMETRICS: (130, 10),
    ExpositionFormat.PROTOBUF: (12, 10),
}
# Memory may change by this although nothing is kept, because of the allocator.
_MAX_GROWTH_KB = 256


@contextmanager
def run_exporter(devices: Sequence[str], *options: str, has_tls: bool = False) -> Iterator[MeteredServer]:
    words = [word for device in devices for word in ("--dev", device)]
    with (
        start_exporter(*words, *options) as exporter,
        closing(MeteredServer(exporter.process.pid, exporter.port, has_tls=has_tls)) as server,
    ):
        yield server


@contextmanager
def run_node_exporter(devices: Sequence[str], log: Path) -> Iterator[MeteredServer]:
    """Run Debian's exporter with its default collectors, on these disks."""
    port = find_free_port()
    names = "|".join(Path(device).name for device in devices)
    argv = [
        find_program("prometheus-node-exporter"),
        f"--web.listen-address=127.0.0.1:{port}",
        # The default leaves out loop devices.
        "--collector.diskstats.device-exclude=",
        f"--collector.diskstats.device-include=^({names})$",
        "--log.level=error",
    ]
    with (
        run_server(argv, port, log, "/") as process,
        closing(MeteredServer(process.process.pid, port)) as server,
    ):
        yield server


def read_version() -> str:
    """Return the version of node_exporter, with its package's revision."""
    argv = [find_program("prometheus-node-exporter"), "--version"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    lines = (done.stdout + done.stderr).splitlines()
    return next(line.split("revision: ")[1].rstrip(")") for line in lines if "revision: " in line)


def load_drives(devices: Sequence[str]) -> None:
    for device in devices:
        run_mixture(device)


def settle(server: MeteredServer, devices: Sequence[str]) -> Memory:
    """Return the memory after fresh scrapes of each format."""
    for _ in range(WARM_UP):
        for form in ExpositionFormat:
            load_drives(devices)
            time.sleep(FRESH_S)
            server.scrape(form)
    return server.read_memory()


def require_fresh(answer: Answer, form: ExpositionFormat) -> None:
    """Raise RuntimeError if an answer repeats an earlier reading. Only the texts are looked at."""
    if form is not ExpositionFormat.PROTOBUF:
        age = re.search(rb"^opwatch_exporter_sample_age_seconds (\S+)$", answer.body, re.MULTILINE)
        if age is None or float(age[1]) > FRESH_S / 2:
            raise RuntimeError(f"the reading of a scrape is not fresh: {age and age[0]!r}")


class CpuComparison:
    """CPU time per fresh scrape of two servers, by format."""

    def __init__(self, ours: MeteredServer, peer: MeteredServer, devices: Sequence[str]) -> None:
        self._servers, self._devices = (ours, peer), devices
        self._sums = {form: [0.0, 0.0] for form in ExpositionFormat}

    def measure_rounds(self, count: int) -> None:
        forms = list(ExpositionFormat)
        self._load()
        for _ in range(count):
            for form in forms:
                before = [server.read_cpu_s() for server in self._servers]
                answer, _ = [server.scrape(form) for server in self._servers]
                require_fresh(answer, form)
                self._load()
                for place, server in enumerate(self._servers):
                    self._sums[form][place] += server.read_cpu_s() - before[place]

    def _load(self) -> None:
        begin = time.monotonic()
        load_drives(self._devices)
        time.sleep(max(0.0, begin + FRESH_S - time.monotonic()))

    def make_figures(self, count: int) -> Iterator[Figure]:
        for form, (ours, peer) in self._sums.items():
            yield Figure(
                f"CPU per scrape / node_exporter, {form.name.lower()} by gzip",
                ours / peer,
                _MAX_CPU_RATIO,
                f"{ours / count * _MS:.2f} / {peer / count * _MS:.2f} ms, {count} fresh scrapes",
            )


def make_memory_figures(name: str, ours: Memory, others: Mapping[str, Memory]) -> Iterator[Figure]:
    """Yield RSS and PSS beside those of other processes in the same run, by name."""
    for kind, most in (("rss", _MAX_RSS_MB), ("pss", _MAX_PSS_MB)):
        mine = getattr(ours, kind)
        beside = ", ".join(
            f"{other} {getattr(memory, kind) / _MB:.1f} MB" for other, memory in others.items()
        )
        yield Figure(f"{kind.upper()} of {name}, MB", mine / _MB, most, beside)


def measure_answers(ours: MeteredServer, peer: MeteredServer, devices: Sequence[str]) -> Iterator[Figure]:
    for form, bounds in _MAX_SIZES.items():
        for most, with_gzip in zip(bounds, (False, True), strict=True):
            mine, theirs = (len(one.scrape(form, with_gzip=with_gzip).sent) / _KB for one in (ours, peer))
            name = f"answer as {form.name.lower()}{' by gzip' if with_gzip else ''}, KB"
            yield Figure(name, mine, most, f"node_exporter {theirs:.1f} KB, the whole machine")
    plain = [one.scrape(ExpositionFormat.TEXT).body.decode() for one in (ours, peer)]
    names = [Path(device).name for device in devices]
    (native, classic), (_, theirs_count) = (count_series(text, names) for text in plain)
    yield Figure("series per disk, native histograms", native, _MAX_NATIVE, f"node_exporter {theirs_count}")
    yield Figure(
        "series per disk, classic histograms", classic, _MAX_CLASSIC, f"node_exporter {theirs_count}"
    )


def read_floors() -> dict[str, Memory]:
    """Return the memory of interpreters that serve nothing: with no module, and with the exporter's modules
    of the standard library."""
    floors = {}
    for name, modules in (("bare Python", ()), ("with the same standard modules", list_standard_modules())):
        with run_idle_interpreter(modules) as pid:
            floors[name] = read_memory(pid)
    return floors


def measure_growth(server: MeteredServer, name: str, run_part: Callable[[], None]) -> Figure:
    """Run a part twice, and return how much the second run adds to the memory."""
    sizes = [server.read_memory().rss]
    for _ in range(2):
        run_part()
        sizes.append(server.read_memory().rss)
    first, second = (after - before for before, after in itertools.pairwise(sizes))
    text = f"second half of them; {first / _KB:+.0f} KB in the first, {sizes[-1] / _MB:.1f} MB at the end"
    return Figure(f"growth over {name}, KB", second / _KB, _MAX_GROWTH_KB, text)


def scrape_often(server: MeteredServer, count: int) -> None:
    """Scrape without pauses, so that most answers repeat the last reading."""
    forms = list(ExpositionFormat)
    for number in range(count):
        server.scrape(forms[number % len(forms)], with_gzip=number % 2 == 0)


def read_in_groups(root: Path, device: str, names: Sequence[str], scrape: Callable[[], None]) -> None:
    """Read the drive from new control groups, scrape, and remove the groups."""
    groups = [root / name for name in names]
    made: list[Path] = []
    try:
        for group in groups:
            group.mkdir()
            made.append(group)
            (group / "cgroup.procs").write_text(str(os.getpid()))
            reads(device, 5)
        scrape()
    finally:
        (root / "cgroup.procs").write_text(str(os.getpid()))
        for group in made:
            group.rmdir()


def measure_owners(devices: Sequence[str]) -> Figure:
    """Measure the growth while control groups come and go."""
    root = find_io_hierarchy().root or Path("/sys/fs/cgroup")
    numbers = iter(range(GROUPS))
    with run_exporter(devices, "--by", "cgroup") as server:

        def scrape() -> None:
            time.sleep(FRESH_S)
            server.scrape(ExpositionFormat.PROTOBUF)

        def come_and_go() -> None:
            for _ in range(GROUPS // GROUPS_AT_ONCE // 2):
                names = [f"opwatch-bench-{os.getpid()}-{next(numbers)}" for _ in range(GROUPS_AT_ONCE)]
                read_in_groups(root, devices[0], names, scrape)

        settle(server, devices)
        name = f"{GROUPS:,} control groups that come and go, {GROUPS_AT_ONCE} at once"
        return measure_growth(server, name, come_and_go)


def measure_main(devices: Sequence[str], log: Path) -> Iterator[Figure]:
    """Yield the figures beside node_exporter."""
    with run_exporter(devices) as ours, run_node_exporter(devices, log) as peer:
        for server in (ours, peer):
            settle(server, devices)
        begin = ours.read_memory().rss
        compared = CpuComparison(ours, peer, devices)
        compared.measure_rounds(ROUNDS)
        memory, text = ours.read_memory(), f"the drives' pages read, {ROUNDS * len(_MAX_SIZES)} fresh scrapes"
        others = {"node_exporter": peer.read_memory(), **read_floors()}
        yield from compared.make_figures(ROUNDS)
        yield from make_memory_figures(f"{len(devices)} disks, {text}", memory, others)
        text = f"after {WARM_UP * len(_MAX_SIZES)} others"
        name = f"growth over {ROUNDS * len(_MAX_SIZES)} fresh scrapes, KB"
        yield Figure(name, (memory.rss - begin) / _KB, _MAX_GROWTH_KB, text)
        yield from measure_answers(ours, peer, devices)


def measure_repetition(devices: Sequence[str]) -> Figure:
    """Measure the growth over scrapes without pauses."""
    with run_exporter(devices) as server:
        settle(server, devices)
        name = f"{SCRAPES:,} scrapes without pauses"
        return measure_growth(server, name, lambda: scrape_often(server, SCRAPES // 2))


def measure_variants(devices: Sequence[str], folder: Path) -> Iterator[Figure]:
    """Yield the memory of other ways to run the exporter."""
    with run_exporter(devices, "--drives-every", "0") as server:
        yield from make_memory_figures(f"{len(devices)} disks, no pages", settle(server, devices), {})
    with run_exporter(devices) as server:
        plain = settle(server, devices)
    with run_exporter(devices, "--web.config.file", str(write_web_config(folder)), has_tls=True) as server:
        secure = settle(server, devices)
    text = f"{secure.rss / _MB:.1f} MB, {plain.rss / _MB:.1f} MB without"
    yield Figure("RSS that TLS adds, MB", (secure.rss - plain.rss) / _MB, _MAX_TLS_MB, text)
    with run_broker() as broker:
        with run_exporter(devices, "--broker", broker.socket) as server:
            name = f"{len(devices)} disks by the broker"
            yield from make_memory_figures(name, settle(server, devices), {})
            pids = broker.list_pids()
            memory = read_memory(*pids)
        text = f"{len(pids)} processes, their shared pages counted in each; PSS {memory.pss / _MB:.1f} MB"
        yield Figure("RSS of the broker, MB", memory.rss / _MB, _MAX_BROKER_MB, text)


def write_web_config(folder: Path) -> Path:
    """Write a certificate and a web config with it, and return the config's path."""
    argv = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    argv += ["-subj", "/CN=localhost", "-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")]
    subprocess.run(argv, check=True, capture_output=True)
    config = folder / "web.yml"
    config.write_text("tls_server_config:\n  cert_file: cert.pem\n  key_file: key.pem\n")
    return config


def measure_figures(devices: Sequence[str], folder: Path) -> Iterator[Figure]:
    yield from measure_main(devices, folder / "node_exporter.log")
    yield from measure_variants(devices, folder)
    yield measure_owners(devices)
    yield measure_repetition(devices)


def main() -> int:
    if os.geteuid() != 0:
        print("exporter_bench: needs root, to attach to disks", file=sys.stderr)
        return 2
    # A request to end leaves no server and no drive behind, as Ctrl-C does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    head = [
        f"Measured by `make bench-exporter` on {describe_machine()}, load {os.getloadavg()[0]:.1f} before,",
        f"Python {sys.version.split()[0]}, beside node_exporter {read_version()}.",
        "",
    ]
    print("\n".join([*head, *format_table([])]), flush=True)
    figures: list[Figure] = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        devices = [stack.enter_context(create_drive()).device for _ in range(DISKS)]
        for figure in measure_figures(devices, folder):
            print(format_table([figure])[-1], flush=True)
            figures.append(figure)
    SECTION.write_body("\n".join([*head, *format_table(figures)]))
    return choose_exit_status(holds=all(figure.is_within_bound for figure in figures))


if __name__ == "__main__":
    sys.exit(main())
