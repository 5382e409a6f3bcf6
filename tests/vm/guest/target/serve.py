"""Serve the target on 127.0.0.1."""

from __future__ import annotations

import socket
from pathlib import Path

from tests.vm.guest.target.admin import TargetController
from tests.vm.guest.target.drive import BLOCK, TargetDrive
from tests.vm.guest.target.queue import TargetQueue

CAPACITY, FIRST = 64 << 20, 32 << 20


def serve_target(folder: Path, controllers: int, sharing: int) -> None:
    """Serve forever. Reads `orders` in the folder, and writes `log` and `port`."""
    drive = TargetDrive(CAPACITY, folder / "log", folder / "orders", controllers)
    blocks = FIRST // BLOCK
    drive.set_attached(drive.create_namespace(blocks, blocks, 0, sharing), attached=True)
    drive.changed.clear()
    served = [TargetController(drive)]
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = folder / "port"
        port.with_suffix(".new").write_text(str(server.getsockname()[1]))
        port.with_suffix(".new").rename(port)
        while True:
            connection, _ = server.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            TargetQueue(connection, served).start()
