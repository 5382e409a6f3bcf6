"""How a drive is asked for its structures, whoever it is that answers: a kernel, a folder, what was read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from opwatch.counters.looks.sample import CommandKind, DriveAnswer, NvmeCommand, Refusal, refusal_of
from opwatch.errors import OpwatchError


class Transport(Protocol):
    """Where the bytes come from. Each call is one command; OpwatchError when it fails."""

    def get_log(self, lid: int, length: int, lsi: int = 0, uuid_index: int = 0) -> bytes: ...
    def identify(self, cns: int, nsid: int) -> bytes: ...


class IdentifyOnce:
    """A transport that asks for each Identify structure once: what is read from them does not change."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._known: dict[tuple[int, int], bytes] = {}

    def get_log(self, lid: int, length: int, lsi: int = 0, uuid_index: int = 0) -> bytes:
        return self._transport.get_log(lid, length, lsi, uuid_index)

    def identify(self, cns: int, nsid: int) -> bytes:
        if (cns, nsid) not in self._known:
            self._known[cns, nsid] = self._transport.identify(cns, nsid)
        return self._known[cns, nsid]


class KeptAnswers:
    """A transport that keeps what it was asked, with what was answered, or why nothing was."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._answers: dict[NvmeCommand, bytes | Refusal] = {}
        # How much each log was asked for: what to ask again.
        self._lengths: dict[NvmeCommand, int] = {}

    @property
    def answers(self) -> tuple[DriveAnswer, ...]:
        return tuple(DriveAnswer(command, answer) for command, answer in self._answers.items())

    @property
    def is_complete(self) -> bool:
        """Whether every Identify was answered: which logs are asked for follows from these alone."""
        return all(
            isinstance(answer, bytes)
            for command, answer in self._answers.items()
            if command.kind is CommandKind.IDENTIFY
        )

    def again(self) -> KeptAnswers:
        """Send the same commands once more, and decode nothing."""
        later = KeptAnswers(self._transport)
        for command in self._answers:
            later._ask(command, self._lengths.get(command, 0))
        return later

    def get_log(self, lid: int, length: int, lsi: int = 0, uuid_index: int = 0) -> bytes:
        return self._given(NvmeCommand(CommandKind.LOG, lid, lsi, uuid_index), length)

    def identify(self, cns: int, nsid: int) -> bytes:
        return self._given(NvmeCommand(CommandKind.IDENTIFY, cns, nsid), 0)

    def _given(self, command: NvmeCommand, length: int) -> bytes:
        self._ask(command, length)
        return _bytes_of(self._answers[command])

    def _ask(self, command: NvmeCommand, length: int) -> None:
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
            self._answers[command] = refusal_of(error)


class StoredAnswers:
    """What was read once, as the transport that it was read from. What was not asked then has no answer."""

    def __init__(self, answers: Iterable[DriveAnswer]) -> None:
        self._answers = {given.command: given.answer for given in answers}

    def get_log(self, lid: int, length: int, lsi: int = 0, uuid_index: int = 0) -> bytes:
        what = f"log page {lid:02X}h"
        return self._given(NvmeCommand(CommandKind.LOG, lid, lsi, uuid_index), what)[:length]

    def identify(self, cns: int, nsid: int) -> bytes:
        return self._given(NvmeCommand(CommandKind.IDENTIFY, cns, nsid), f"Identify {cns:02X}h")

    def _given(self, command: NvmeCommand, what: str) -> bytes:
        answer = self._answers.get(command)
        if answer is None:
            raise OpwatchError(f"{what} was not read")
        return _bytes_of(answer)


def _bytes_of(answer: bytes | Refusal) -> bytes:
    if isinstance(answer, Refusal):
        raise answer.error()
    return answer
