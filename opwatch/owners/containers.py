"""Identify the container in a cgroup path: engine, ID and pod. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

# Number of ID characters usually typed by users.
SHORT = 12
_ID = "[0-9a-f]{64}"
_POD = "[0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12}|[0-9a-f]{32}"
# Scope names of engines: as a systemd unit, as a folder, or as containerd's SLICE:PREFIX:ID.
_ENGINES = {
    "docker": "docker",
    "libpod": "podman",
    "libpod-payload": "podman",
    "crio": "cri-o",
    "cri-containerd": "containerd",
    "nerdctl": "containerd",
}
_NAMED = re.compile(rf"(?:^|[:/])(?P<engine>{'|'.join(_ENGINES)})[-:/](?P<id>{_ID})(?:\.scope)?$")
_BARE = re.compile(rf"^{_ID}$")
_OF_POD = re.compile(rf"(?:^|-)pod(?P<pod>{_POD})(?:\.slice)?(?:$|:)")
_MACHINE = re.compile(r"^machine-(?P<name>.+)\.scope$|^lxc\.payload\.(?P<lxc>.+)$")
_ESCAPE = re.compile(r"\\x([0-9a-f]{2})")


@dataclass(frozen=True, slots=True)
class Container:
    """A container.

    `engine` is the container engine, or None if not in the path. `number` is the container's ID or a
    machine's name; `pod` the UID of the pod, or None without a pod. A pod's own processes have no `number`.
    """

    engine: str | None
    number: str | None
    pod: str | None

    @property
    def usual_name(self) -> str:
        """Return the container's usual name."""
        pod = f"pod {self.pod[:8]}" if self.pod else ""
        own = f"{self.engine or 'container'} {self.number[:SHORT]}" if self.number else ""
        return " ".join(filter(None, (pod, own)))


def find_container(path: str) -> Container | None:
    """Return the innermost container of a path, or None if the path is not in a container."""
    pod, container = None, None
    for before, part in zip(["", *path.split("/")], path.split("/"), strict=False):
        if of_pod := _OF_POD.search(part):
            pod, container = of_pod["pod"].replace("_", "-"), None
        if named := _NAMED.search(part):
            container = Container(_ENGINES[named["engine"]], named["id"], pod)
        elif _BARE.match(part) and (pod or before in _ENGINES):
            container = Container(_ENGINES.get(before), part, pod)
        elif machine := _MACHINE.match(part):
            name = machine["name"] or machine["lxc"]
            container = Container("lxc" if machine["lxc"] else "machine", _unescape_unit(name), None)
    return container or (Container(None, None, pod) if pod else None)


def _unescape_unit(name: str) -> str:
    """Undo systemd's escaping of a unit name's part."""
    return _ESCAPE.sub(lambda code: chr(int(code[1], 16)), name)
