"""The section of an untrimmed cliff: each run before and after, and its rounds side by side."""

from __future__ import annotations

from collections.abc import Iterator

from opwatch import units
from opwatch.fields import Fields
from opwatch.sinks.plain.cells import align_columns, get_number
from opwatch.sinks.wrapping import wrap_text

_RUNS = ("run", "fs free", "stale", "room", "predicted", "came at", "off by", "first", "last")


def format_untrimmed(document: Fields) -> Iterator[str]:
    """Yield the runs and their rounds, with speeds in MB/s."""
    runs = document.read_subtables("runs", "a run")
    yield from align_columns(_RUNS, [_format_run(run) for run in runs])
    yield from wrap_text(
        "stale: free space of the filesystem that the drive still holds as data; room: flash without "
        "data; predicted, came at: bytes written until data is moved; first, last: MB/s of the first "
        "round and of the last tenth"
    )
    yield ""
    names = [run.read_text("name").partition(" ")[0] for run in runs]
    header = ("round", *(f"{name} {unit}" for name in names for unit in ("GB", "MB/s")))
    rounds = [run.read_subtables("rounds", "a round") for run in runs]
    most = max((len(row) for row in rounds), default=0)
    yield from align_columns(header, [_format_round(place, rounds) for place in range(most)])


def _format_run(run: Fields) -> tuple[str, ...]:
    error = get_number(run, "error_ratio")
    return (
        run.read_text("name"),
        *(
            _format_capacity(get_number(run, key))
            for key in ("free_bytes", "stale_bytes", "room_bytes", "foretold_cliff_bytes", "cliff_bytes")
        ),
        "-" if error is None else f"{100 * error:+.2f} %",
        *(_format_speed(get_number(run, key)) for key in ("first_bytes_per_s", "last_bytes_per_s")),
    )


def _format_round(place: int, rounds: list[list[Fields]]) -> tuple[str, ...]:
    cells = [str(place + 1)]
    for row in rounds:
        one = row[place] if place < len(row) else None
        written = get_number(one, "host_bytes") if one else None
        seconds = get_number(one, "seconds") if one else None
        cells.append("-" if written is None else f"{written / 1e9:.2f}")
        cells.append(_format_speed(written / seconds if written is not None and seconds else None))
    return tuple(cells)


def _format_capacity(n_bytes: float | None) -> str:
    return "-" if n_bytes is None else units.format_capacity(round(n_bytes))


def _format_speed(rate: float | None) -> str:
    return "-" if rate is None else units.format_megabytes(rate)
