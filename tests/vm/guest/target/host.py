"""This machine as the target's host: start the target, connect, and give it orders."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.vm.guest.support import sysfs
from tests.vm.guest.support.copies import run_server
from tests.vm.guest.target.drive import SERIAL
from tests.vm.guest.target.identify import NQN
from tests.vm.guest.target.sanitize import SanitizeOrders
from tests.vm.guest.target.serve import serve_target
from tests.vm.requirements import need_module

_CLASS = Path("/sys/class/nvme")


@dataclass(frozen=True)
class ConnectedTarget:
    """The target from this host's view, and the target's own log."""

    folder: Path

    def find_controller(self) -> str:
        [name] = [
            path.parent.name for path in _CLASS.glob("nvme*/serial") if path.read_text().strip() == SERIAL
        ]
        return name

    def list_disks(self) -> list[str]:
        return sysfs.find_disks(SERIAL)

    def read_log(self) -> list[tuple[str, int]]:
        """Return (command, bytes of the namespace) in order."""
        lines = [json.loads(line) for line in (self.folder / "log").read_text().splitlines()]
        return [(line["what"], line["bytes"]) for line in lines]

    def write_orders(
        self,
        *,
        fail: dict[str, list[int]] | None = None,
        hold: Sequence[str] = (),
        sanitize: SanitizeOrders | None = None,
    ) -> None:
        """Answer the next commands of a kind with these statuses (0 executes the command); hold others."""
        new = self.folder / "orders.new"
        orders = {"fail": fail or {}, "hold": list(hold), "sanitize": asdict(sanitize or SanitizeOrders())}
        new.write_text(json.dumps(orders))
        new.rename(self.folder / "orders")
        for path in self.folder.glob("orders.*"):
            path.unlink()

    def wait_until_on_hold(self, what: str) -> None:
        sysfs.wait_for(f"a {what}", (self.folder / f"orders.{what}").exists)


@contextlib.contextmanager
def connect_target(folder: Path, *, controllers: int = 1, sharing: int = 0) -> Iterator[ConnectedTarget]:
    """Yield the connected target with one namespace."""
    need_module("nvme-tcp")
    folder.mkdir()
    target = ConnectedTarget(folder)
    target.write_orders()
    with run_server(serve_target, folder, controllers, sharing):
        sysfs.wait_for("the target", (folder / "port").exists)
        words = f"nqn={NQN},transport=tcp,traddr=127.0.0.1,trsvcid={(folder / 'port').read_text()}"
        _write_text("/dev/nvme-fabrics", f"{words},nr_io_queues=2,keep_alive_tmo=120,ctrl_loss_tmo=0")
        sysfs.wait_for("the target's disk", lambda: len(target.list_disks()) == 1)
        yield target
        (folder / "orders").write_text(json.dumps({"fail": {}, "hold": []}))
        _write_text(str(_CLASS / target.find_controller() / "delete_controller"), "1")


def _write_text(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_RDWR if path.startswith("/dev") else os.O_WRONLY)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)
