"""Manifests, chart, compose file and image: valid by the schemas of Kubernetes, and without privileges.

make test-fleet
"""

from __future__ import annotations

import importlib
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

DEPLOY = Path(__file__).parents[3] / "tools" / "deploy"
CHART = DEPLOY / "kubernetes" / "helm" / "opwatch"
VERSIONS = ("1.25.0", "1.31.0", "1.37.0")
# Capabilities to trace; with firmware.enabled, those to read log pages too.
TRACING = ["BPF", "PERFMON"]
yaml = importlib.import_module("yaml")


def read_manifests(text: str) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(text) if document]


def find_kind(manifests: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    (found,) = [manifest for manifest in manifests if manifest["kind"] == kind]
    return found


def check_pod(pod: dict[str, Any], capabilities: list[str]) -> None:
    """Assert that a pod has these capabilities and no other privilege."""
    assert pod["hostPID"] is pod["hostNetwork"] is pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in pod["containers"]:
        context = container["securityContext"]
        assert context["privileged"] is context["allowPrivilegeEscalation"] is False
        assert context["readOnlyRootFilesystem"] is True
        assert context["capabilities"]["drop"] == ["ALL"]
        assert {"cpu", "memory"} <= container["resources"]["limits"].keys()
        assert (
            container["resources"]["limits"] | {"cpu": "100m", "memory": "96Mi"}
            == container["resources"]["limits"]
        )
        is_broker = container["name"] == "broker"
        assert context["capabilities"].get("add", []) == (capabilities if is_broker else [])
        assert is_broker or context["runAsNonRoot"]
    for volume in pod["volumes"]:
        assert volume.get("hostPath", {}).get("path") in (None, "/sys/fs/cgroup", "/run/opwatch")


def check_schemas(manifests: list[dict[str, Any]]) -> None:
    """Validate the objects of Kubernetes itself; those of operators have no schema there."""
    validate = importlib.import_module("kubernetes_validate").validate
    for manifest in manifests:
        if not manifest["apiVersion"].startswith("monitoring.coreos.com/"):
            for version in VERSIONS:
                validate(manifest, version, strict=True)


def test_manifests_are_valid_and_have_no_privileges() -> None:
    manifests = read_manifests((DEPLOY / "kubernetes" / "opwatch.yaml").read_text())
    check_schemas(manifests)
    pod = find_kind(manifests, "DaemonSet")["spec"]["template"]["spec"]
    assert [container["name"] for container in pod["containers"]] == ["broker", "exporter"]
    check_pod(pod, TRACING)
    sockets = [volume for volume in pod["volumes"] if volume["name"] == "socket"]
    assert "emptyDir" in sockets[0]
    for container in pod["containers"]:
        assert {"name": "socket", "mountPath": "/run/opwatch"} in container["volumeMounts"]


def test_schema_check_notices_a_wrong_field() -> None:
    manifests = read_manifests((DEPLOY / "kubernetes" / "opwatch.yaml").read_text())
    find_kind(manifests, "DaemonSet")["spec"]["template"]["spec"]["containers"][0]["limits"] = {}
    with pytest.raises(Exception, match="limits"):
        check_schemas(manifests)


def render_chart(*settings: str) -> list[dict[str, Any]]:
    helm = shutil.which("helm")
    if not helm:
        pytest.skip("helm is not installed")
    # A helm that was built without a version assumes an old Kubernetes.
    argv = [helm, "template", "opwatch", str(CHART), "--namespace", "opwatch", "--kube-version", VERSIONS[-1]]
    argv += [word for setting in settings for word in ("--set", setting)]
    return read_manifests(subprocess.run(argv, capture_output=True, text=True, check=True).stdout)


@pytest.mark.parametrize(
    ("settings", "capabilities", "names"),
    [
        ((), TRACING, ["broker", "exporter"]),
        (("broker.mode=host",), [], ["exporter"]),
        (
            ("firmware.enabled=true", "firmware.devices.example\\.org/nvme=8"),
            [*TRACING, "SYS_ADMIN", "SYS_RAWIO"],
            ["broker", "exporter"],
        ),
        (
            (
                *("podMonitor.enabled=true", "prometheusRule.enabled=true", "grafanaDashboard.enabled=true"),
                *("exporter.webConfigSecret=web", "exporter.extraArgs={--queue}"),
            ),
            TRACING,
            ["broker", "exporter"],
        ),
    ],
)
def test_rendered_chart_is_valid(
    settings: tuple[str, ...], capabilities: list[str], names: list[str]
) -> None:
    manifests = render_chart(*settings)
    check_schemas(manifests)
    pod = find_kind(manifests, "DaemonSet")["spec"]["template"]["spec"]
    assert [container["name"] for container in pod["containers"]] == names
    check_pod(pod, capabilities)
    if "prometheusRule.enabled=true" in settings:
        rules = yaml.safe_load((DEPLOY / "prometheus" / "opwatch.rules.yml").read_text())
        assert find_kind(manifests, "PrometheusRule")["spec"] == rules
        data = find_kind(manifests, "ConfigMap")["data"]
        assert {name: json.loads(text) for name, text in data.items()} == {
            path.name: json.loads(path.read_text()) for path in (DEPLOY / "grafana").glob("*.json")
        }


def test_chart_refuses_an_unknown_mode() -> None:
    with pytest.raises(subprocess.CalledProcessError):
        render_chart("broker.mode=privileged")


def test_templates_use_values_that_exist() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    used = {
        name
        for path in (CHART / "templates").iterdir()
        for name in re.findall(r"\.Values\.([\w.]+)", path.read_text())
    }
    assert len(used) > 15
    for name in used:
        value = values
        for part in name.split("."):
            assert part in value, name
            value = value[part]


def test_compose_has_no_privileges_and_mounts_files_that_exist() -> None:
    compose = yaml.safe_load((DEPLOY / "compose" / "compose.yaml").read_text())
    for name in ("broker", "exporter"):
        service = compose["services"][name]
        assert "privileged" not in service and service["read_only"] and service["cap_drop"] == ["ALL"]
        assert service.get("cap_add", []) == (TRACING if name == "broker" else [])
    for service in compose["services"].values():
        for volume in service["volumes"]:
            source = volume.split(":")[0]
            if source.startswith("."):
                assert (DEPLOY / "compose" / source).is_file(), source
            else:
                assert source.startswith("/sys/") or source in compose["volumes"]
    assert (DEPLOY / "compose" / compose["services"]["broker"]["build"]["context"] / "setup.py").is_file()


def test_image_is_built_from_packages_of_debian_and_runs_as_a_user() -> None:
    text = (DEPLOY / "image" / "Containerfile").read_text()
    instructions = re.findall(r"^([A-Z]+) ((?:.*\\\n)*.*)", text, re.MULTILINE)
    assert {words.split()[0] for name, words in instructions if name == "FROM"} == {
        "docker.io/library/debian:trixie-slim"
    }
    assert all("--no-index" in words for words in re.findall(r"-m pip (.*)", text))
    assert [words for name, words in instructions if name == "USER"] == ["65532:65532"]
