"""Read structures of a drive from any source: a kernel, a folder, or stored answers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from opwatch.counters.looks.sample import CommandKind, DriveAnswer, NvmeCommand, Refusal, make_refusal
from opwatch.errors import OpwatchError


class Transport(Protocol):
    """Source of the bytes. Each call is one command and raises OpwatchError on failure."""

    def get_log(self, lid: int, length: int, lsi: int = 0, uuid_index: int = 0) -> bytes: ...
    def identify(self, cns: int, nsid: int) -> bytes: ...


class CachedIdentify:
    """Transport that requests each Identify structure once, because the fields in use do not change."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._known: dict[tuple[int, int], bytes] = {}

    def get_log(self, lid: int, length: int, lsi: int = 0, uuid_index: int = 0) -> bytes:
        return self._transport.get_log(lid, length, lsi, uuid_index)

    def identify(self, cns: int, nsid: int) -> bytes:
        if (cns, nsid) not in self._known:
            self._known[cns, nsid] = self._transport.identify(cns, nsid)
        return self._known[cns, nsid]


class RecordingTransport:
    """Transport that keeps each command with the answer or the reason for a failure."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._answers: dict[NvmeCommand, bytes | Refusal] = {}
        # Requested length of each log, for repeating the request.
        self._lengths: dict[NvmeCommand, int] = {}

    @property
    def recorded_answers(self) -> tuple[DriveAnswer, ...]:
        return tuple(DriveAnswer(command, answer) for command, answer in self._answers.items())

    @property
    def is_complete(self) -> bool:
        """Whether every Identify succeeded. The list of logs to read depends on Identify alone."""
        return all(
            isinstance(answer, bytes)
            for command, answer in self._answers.items()
            if command.kind is CommandKind.IDENTIFY
        )

    def repeat_commands(self) -> RecordingTransport:
        """Send the same commands again without decoding the answers."""
        later = RecordingTransport(self._transport)
        for command in self._answers:
            later._record_answer(command, self._lengths.get(command, 0))
        return later

    def get_log(self, lid: int, length: int, lsi: int = 0, uuid_index: int = 0) -> bytes:
        return self._get_answer(NvmeCommand(CommandKind.LOG, lid, lsi, uuid_index), length)

    def identify(self, cns: int, nsid: int) -> bytes:
        return self._get_answer(NvmeCommand(CommandKind.IDENTIFY, cns, nsid), 0)

    def _get_answer(self, command: NvmeCommand, length: int) -> bytes:
        self._record_answer(command, length)
        return _require_bytes(self._answers[command])

    def _record_answer(self, command: NvmeCommand, length: int) -> None:
        if command in self._answers:
            return
        self._lengths[command] = length
        try:
            if command.kind is CommandKind.LOG:
                raw = self._transport.get_log(command.number, length, command.part, command.uuid_index)
            else:
                raw = self._transport.identify(command.number, command.part)
            self._answers[command] = raw
        except OpwatchError as error:
            self._answers[command] = make_refusal(error)


class ReplayTransport:
    """Transport that replays stored answers. Other commands have no answer."""

    def __init__(self, answers: Iterable[DriveAnswer]) -> None:
        self._answers = {given.command: given.answer for given in answers}

    def get_log(self, lid: int, length: int, lsi: int = 0, uuid_index: int = 0) -> bytes:
        what = f"log page {lid:02X}h"
        return self._get_answer(NvmeCommand(CommandKind.LOG, lid, lsi, uuid_index), what)[:length]

    def identify(self, cns: int, nsid: int) -> bytes:
        return self._get_answer(NvmeCommand(CommandKind.IDENTIFY, cns, nsid), f"Identify {cns:02X}h")

    def _get_answer(self, command: NvmeCommand, what: str) -> bytes:
        answer = self._answers.get(command)
        if answer is None:
            raise OpwatchError(f"{what} was not read")
        return _require_bytes(answer)


def _require_bytes(answer: bytes | Refusal) -> bytes:
    if isinstance(answer, Refusal):
        raise answer.to_error()
    return answer
