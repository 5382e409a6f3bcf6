"""A client of QEMU's monitor protocol over a connected socket."""

from __future__ import annotations

import json
import socket

from tests.vm.errors import BenchError


class QmpError(BenchError):
    """QEMU refused a command."""


class Qmp:
    """One monitor connection."""

    def __init__(self, sock: socket.socket) -> None:
        sock.settimeout(120)
        self._file = sock.makefile("rwb", buffering=0)
        self._ready = False

    def _send_command(self, command: str, arguments: dict[str, object]) -> object:
        request = {"execute": command, "arguments": arguments}
        self._file.write(json.dumps(request).encode() + b"\n")
        for line in self._file:
            answer: dict[str, object] = json.loads(line)
            if "error" in answer:
                raise QmpError(f"QEMU refused {command}: {answer['error']}")
            if "return" in answer:
                return answer["return"]
        raise QmpError(f"QEMU ended before it answered {command}")

    def execute(self, command: str, **arguments: object) -> object:
        """Return the command's result; events that arrive in between are dropped."""
        if not self._ready:
            self._ready = True
            self._send_command("qmp_capabilities", {})
        return self._send_command(command, arguments)
