"""The requests of a history as a model drive takes them."""

from __future__ import annotations

from collections.abc import Iterable

from opwatch.ftl.recorded import SECTOR, DiskRequests
from opwatch.trim.history.requests import RecordedRequests, is_freeing


def prepare_requests(
    requests: RecordedRequests, free_bytes: Iterable[tuple[int, int]] = (), owners: bytes = b""
) -> DiskRequests:
    """Return the requests of a history as a model takes them.

    `free_bytes` are ranges of the disk that held no data before the first request. All others hold data until
    a request trims them. `owners` has the number of each request's owner, or is empty.
    """
    table = bytes(is_freeing(kind) for kind in range(256))
    trims = requests.kinds.translate(table)
    disk_bytes = requests.drive.sectors * SECTOR
    return DiskRequests(disk_bytes, requests.sectors, requests.lengths, trims, tuple(free_bytes), owners)
