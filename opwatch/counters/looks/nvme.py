"""Read log pages and Identify structures of an NVMe drive through any transport."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace

from opwatch.counters.catalogue.families import Catalogue
from opwatch.counters.decode import endurance, fdp, identify, ocp, smart_log
from opwatch.counters.decode.identify import Controller, Namespace
from opwatch.counters.evidence import Evidence, merge_evidence
from opwatch.counters.looks.pages import decode_controller_evidence, decode_page_evidence
from opwatch.counters.looks.transport import Transport
from opwatch.errors import OpwatchError, PermissionMissing

_SOLIDIGM_UUID = bytes.fromhex("9619586ec11b43adaaaa654187f6bbb2")
_ALL = 0xFFFFFFFF
_VENDOR_LENGTH = 512


class _Collector:
    """Reads page by page. A failed page loses only its own fields."""

    def __init__(self, transport: Transport, catalogue: Catalogue, nsid: int) -> None:
        self._transport = transport
        self._catalogue = catalogue
        self._nsid = nsid
        self._failures: list[str] = []
        self._denied: PermissionMissing | None = None
        self._evidence = Evidence()

    def _merge_page(self, read: Callable[[], Evidence], *, quietly: bool = False) -> None:
        try:
            self._evidence = merge_evidence(self._evidence, read())
        except PermissionMissing as error:
            self._denied = error
        except OpwatchError as error:
            if not quietly:
                self._failures.append(str(error))

    def _collect_log(
        self, lid: int, length: int, lsi: int = 0, uuid_index: int = 0, *, quietly: bool = False
    ) -> None:
        def read_log() -> Evidence:
            return decode_page_evidence(lid, self._transport.get_log(lid, length, lsi, uuid_index))

        self._merge_page(read_log, quietly=quietly)

    def _collect_controller(self) -> Controller:
        controller = Controller()

        def read_controller() -> Evidence:
            nonlocal controller
            raw = self._transport.identify(identify.CONTROLLER, 0)
            controller = identify.decode_controller(raw)
            return decode_controller_evidence(raw)

        self._merge_page(read_controller)
        return controller

    def _collect_namespace(self) -> Namespace:
        namespace = Namespace()

        def read_namespace() -> Evidence:
            nonlocal namespace
            namespace = identify.decode_namespace(self._transport.identify(identify.NAMESPACE, self._nsid))
            return Evidence(namespace=namespace)

        self._merge_page(read_namespace)
        return namespace

    def _find_uuid_index(self, controller: Controller, wanted: bytes) -> int:
        if controller.has_uuid_list:
            with contextlib.suppress(OpwatchError):
                return identify.find_uuid_index(self._transport.identify(identify.UUID_LIST, 0), wanted)
        return 0

    def collect(self) -> Evidence:
        controller, namespace = self._collect_controller(), self._collect_namespace()
        self._collect_log(smart_log.LID, smart_log.LENGTH)
        # A drive without C0h, or with another vendor's page, is not a failure.
        self._collect_log(
            ocp.LID, ocp.LENGTH, uuid_index=self._find_uuid_index(controller, identify.OCP_UUID), quietly=True
        )
        group = namespace.endurance_group or 0
        if controller.has_endurance_groups:
            self._collect_log(endurance.LID, endurance.LENGTH, lsi=group or 1)
        if controller.has_placement:
            self._collect_log(fdp.LID, fdp.LENGTH, lsi=group or 1, quietly=True)
        for entry in self._catalogue.find_entries(self._evidence.drive, "nvme"):
            if entry.lid and not entry.fault:
                index = self._find_uuid_index(controller, _SOLIDIGM_UUID) if entry.layout == "kv12" else 0
                self._collect_log(entry.lid, _VENDOR_LENGTH, uuid_index=index)
        if self._denied and not self._evidence.smart:
            raise self._denied
        return replace(self._evidence, failures=(*self._evidence.failures, *self._failures))


def collect_nvme(transport: Transport, catalogue: Catalogue, nsid: int = 1) -> Evidence:
    """Return all pages that the drive has and the catalogue knows.

    Raises PermissionMissing if no page could be read for lack of privileges.
    """
    return _Collector(transport, catalogue, nsid).collect()
