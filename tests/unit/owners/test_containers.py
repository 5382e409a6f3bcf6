"""Control group paths of systemd, docker, podman, CRI-O and containerd, and the containers found in them."""

from __future__ import annotations

import pytest

from opwatch.owners.containers import Container, find_container

ID = "1a2b3c4d5e6f" + "0" * 52
UID = "6f1e2d3c-0a1b-4c2d-9e8f-0123456789ab"
SYSTEMD_UID = UID.replace("-", "_")
STATIC_UID = "0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize(
    ("path", "container"),
    [
        ("/", None),
        ("/system.slice/postgresql.service", None),
        ("/user.slice/user-1000.slice/user@1000.service/app.slice", None),
        (f"/system.slice/docker-{ID}.scope", Container("docker", ID, None)),
        (f"/docker/{ID}", Container("docker", ID, None)),
        (f"/docker/{ID}/init.scope", Container("docker", ID, None)),
        (f"/machine.slice/libpod-{ID}.scope/container", Container("podman", ID, None)),
        (f"/libpod_parent/libpod-{ID}", Container("podman", ID, None)),
        (
            f"/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-payload-{ID}",
            Container("podman", ID, None),
        ),
        (
            f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{SYSTEMD_UID}.slice/"
            f"cri-containerd-{ID}.scope",
            Container("containerd", ID, UID),
        ),
        (
            f"/kubepods.slice/kubepods-pod{SYSTEMD_UID}.slice/crio-{ID}.scope/container",
            Container("cri-o", ID, UID),
        ),
        (f"/kubepods/besteffort/pod{UID}/{ID}", Container(None, ID, UID)),
        (f"/kubepods/burstable/pod{STATIC_UID}/{ID}", Container(None, ID, STATIC_UID)),
        (f"/kubepods/burstable/pod{UID}", Container(None, None, UID)),
        (
            f"/system.slice/containerd.service/kubepods-burstable-pod{SYSTEMD_UID}.slice:cri-containerd:{ID}",
            Container("containerd", ID, UID),
        ),
        ("/machine.slice/machine-web\\x2d1.scope/payload", Container("machine", "web-1", None)),
        ("/lxc.payload.build/init", Container("lxc", "build", None)),
        # In nested containers the inner one does the work.
        (f"/docker/{ID}/docker/{ID[::-1]}", Container("docker", ID[::-1], None)),
        # Sixty-four digits are a container only if the path names an engine or a pod.
        (f"/system.slice/{ID}", None),
        (f"/system.slice/docker-{ID[:-1]}.scope", None),
        ("/system.slice/podman.service", None),
    ],
)
def test_container_is_found_in_a_path(path: str, container: Container | None) -> None:
    assert find_container(path) == container


def test_container_has_a_readable_name() -> None:
    assert Container("containerd", ID, UID).usual_name == "pod 6f1e2d3c containerd 1a2b3c4d5e6f"
    assert Container(None, ID, None).usual_name == "container 1a2b3c4d5e6f"
    assert Container(None, None, UID).usual_name == "pod 6f1e2d3c"
