"""Servers and exporters for the tests and benchmarks: found on PATH, or unpacked from Debian's packages.

Unpacking (`apt-get download`, `dpkg -x`) needs no privilege and starts no service.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
UNPACKED = ROOT / "build" / "fleet" / "debian"
_PACKAGES = {
    "prometheus": "prometheus",
    "promtool": "prometheus",
    "prometheus-node-exporter": "prometheus-node-exporter",
    "victoria-metrics": "victoria-metrics",
}


class EngineMissingError(Exception):
    """A program is neither installed nor can it be fetched."""


def find_program(name: str, *, may_fetch: bool = True) -> str:
    """Return the path of a program. Raises EngineMissingError if there is none."""
    unpacked = UNPACKED / "usr" / "bin" / name
    found = shutil.which(name) or (str(unpacked) if unpacked.exists() else None)
    if found is None and may_fetch:
        _unpack_package(_PACKAGES[name])
        found = str(unpacked) if unpacked.exists() else None
    if found is None:
        raise EngineMissingError(f"{name} is not installed: apt-get install {_PACKAGES[name]}")
    return found


def _unpack_package(package: str) -> None:
    UNPACKED.mkdir(parents=True, exist_ok=True)
    try:
        subprocess.run(
            ["apt-get", "-q", "download", package], cwd=UNPACKED, check=True, capture_output=True, timeout=300
        )
        for archive in UNPACKED.glob(f"{package}_*.deb"):
            subprocess.run(["dpkg", "-x", archive, UNPACKED], check=True, capture_output=True)
            archive.unlink()
    except (OSError, subprocess.SubprocessError) as error:
        raise EngineMissingError(f"{package} cannot be fetched: {error}") from error


def find_free_port() -> int:
    """Return a TCP port of the loopback interface that is free now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


class QueryError(Exception):
    """The server refused a query. The text is the server's."""


class Server:
    """A running server with the HTTP interface of Prometheus."""

    def __init__(self, url: str, process: subprocess.Popen[bytes]) -> None:
        self.url = url
        self.process = process

    def get(self, path: str, **fields: str | float) -> Any:  # noqa: ANN401
        """Return `data` of an answer. Raises QueryError if the server refuses the request."""
        query = urllib.parse.urlencode({name: str(value) for name, value in fields.items()})
        request = urllib.request.Request(f"{self.url}{path}?{query}")
        try:
            with urllib.request.urlopen(request, timeout=600) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise QueryError(f"{path} {fields}: {error.read().decode(errors='replace')}") from error

    def query(self, expression: str, time_s: float | None = None) -> list[dict[str, Any]]:
        """Return the series of an instant query."""
        at = {} if time_s is None else {"time": time_s}
        series: list[dict[str, Any]] = self.get("/api/v1/query", query=expression, **at)["result"]
        return series

    def query_range(
        self, expression: str, begin_s: float, end_s: float, step_s: float
    ) -> list[dict[str, Any]]:
        """Return the series of a range query."""
        answer = self.get("/api/v1/query_range", query=expression, start=begin_s, end=end_s, step=step_s)
        series: list[dict[str, Any]] = answer["result"]
        return series

    def read_rss_bytes(self) -> int:
        """Return the resident memory of the server's process."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                return 1024 * int(line.split()[1])
        raise RuntimeError("VmRSS is missing")


@contextmanager
def run_server(argv: Sequence[str], port: int, log: Path, ready: str) -> Iterator[Server]:
    """Run a server until the block ends. Raises RuntimeError if it does not become ready in a minute."""
    with log.open("wb") as output:
        process = subprocess.Popen(argv, stdout=output, stderr=output)
        server = Server(f"http://127.0.0.1:{port}", process)
        try:
            _wait_until_ready(server, ready, log)
            yield server
        finally:
            process.terminate()
            process.wait(60)


def _wait_until_ready(server: Server, ready: str, log: Path) -> None:
    for _ in range(600):
        if server.process.poll() is not None:
            break
        try:
            with urllib.request.urlopen(server.url + ready, timeout=5):
                return
        except OSError:
            time.sleep(0.1)
    raise RuntimeError(f"the server does not become ready: {log.read_text()[-2000:]}")


@contextmanager
def run_prometheus(folder: Path, config: str, *options: str, program: str | None = None) -> Iterator[Server]:
    """Run Prometheus with its data below `folder` until the block ends."""
    port = find_free_port()
    (folder / "prometheus.yml").write_text(config)
    argv = [
        program or find_program("prometheus"),
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--storage.tsdb.retention.time=50y",
        "--log.level=warn",
        *options,
    ]
    with run_server(argv, port, folder / "prometheus.log", "/-/ready") as server:
        yield server
