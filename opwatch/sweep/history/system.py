"""Build a model of a recorded disk: its requests and its free space in the units of a model."""

from __future__ import annotations

from array import array

from opwatch.errors import NotEnoughData
from opwatch.ftl.drive import ServiceOp
from opwatch.ftl.recorded import (
    SECTOR,
    DiskRequests,
    ScaledRequests,
    iter_records,
    read_owners,
    scale_requests,
)
from opwatch.sweep.history.advice import RecordedSystem
from opwatch.sweep.history.model import TRIM, UNIT_BYTES, HistoryModel, UnitRange
from opwatch.sweep.replay import prepare_requests
from opwatch.trim.history.requests import RecordedRequests
from opwatch.trim.history.saved import DiskFreeSpace

# Units of a model: enough for superblocks of 256 units, and few enough for some hundred replays in seconds. A
# history with few requests needs more units, so that enough of its requests are in the model.
_UNITS = (1 << 15, 1 << 16, 1 << 17, 1 << 18)
_ENOUGH_RECORDS = 1 << 13
_RECORD_BYTES = 16
# A disk smaller than this has too few units for the superblocks of the models.
_LEAST_UNITS = 1 << 13


def build_system(
    name: str, recorded: RecordedRequests, free: DiskFreeSpace | None, owners: bytes = b""
) -> RecordedSystem:
    """Return the model of a history. Raise NotEnoughData if it has no writes, or if the disk is too small.

    `owners` has the number of each request's owner, or is empty.
    """
    capacity = recorded.drive.sectors * SECTOR
    if capacity // UNIT_BYTES < _LEAST_UNITS:
        raise NotEnoughData(
            f"{name}: a disk of {capacity} bytes is too small for a model, which needs "
            f"{_LEAST_UNITS * UNIT_BYTES}"
        )
    # Without known free space every place that is never written may be given up, and the answer says so.
    extents = tuple(free.extents) if free else ((0, capacity),)
    requests = prepare_requests(recorded, extents, owners)
    if not requests.written_bytes:
        raise NotEnoughData(f"{name}: nothing was written during the history: record while the system works")
    scaled = _scale(requests)
    if not scaled.pass_bytes:
        raise NotEnoughData(f"{name}: the writes of the history are too few for a model: record for longer")
    return RecordedSystem(
        name=name,
        model=_build_model(scaled),
        capacity_bytes=capacity,
        seconds=recorded.seconds,
        written_bytes=requests.written_bytes,
        discarded_bytes=recorded.discarded_sectors * SECTOR,
        free_bytes=free.extents.total_bytes if free else None,
        padding_ratio=scaled.padding_ratio,
        gaps=recorded.gaps,
    )


def _scale(requests: DiskRequests) -> ScaledRequests:
    for units in _UNITS:
        scaled = scale_requests(requests, units, UNIT_BYTES)
        if len(scaled.records) >= _ENOUGH_RECORDS * _RECORD_BYTES or scaled.units < units:
            break
    return scaled


def _build_model(scaled: ScaledRequests) -> HistoryModel:
    changes = array("I")
    for op, offset, length in iter_records(scaled.records):
        # Partial units are trimmed by no drive, and written as a whole.
        first, last = offset // UNIT_BYTES, -(-(offset + length) // UNIT_BYTES)
        if op is ServiceOp.TRIM:
            changes.extend((first, (last - first) | TRIM))
        elif op is ServiceOp.WRITE:
            changes.extend((first, last - first))
    free = tuple(UnitRange(*one) for one in scaled.free)
    return HistoryModel(scaled.units, changes, free, owners=read_owners(scaled.records))
