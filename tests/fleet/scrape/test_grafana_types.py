"""The dashboards have the types of @grafana/schema, by the TypeScript compiler.

    make test-fleet

Packages come from the npm registry. The compiler refuses fields that a type does not have.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.requirements import skip_or_fail

from .dashboards import FOLDER

NODE = Path(__file__).parents[3] / "build" / "fleet" / "node"
PACKAGES = ("@grafana/schema@13", "typescript@5")
_RAW = "./node_modules/@grafana/schema/dist/types/raw"
# Kinds of panels, and the type of their options.
_PANELS = ("stat", "timeseries", "heatmap", "table")
# JSON has the values of enumerations, which TypeScript does not accept for the enumerations themselves.
_PLAIN = """type Plain<T> = T extends string ? `${T}` : T extends Array<infer U> ? Plain<U>[]
    : T extends object ? { [K in keyof T]: Plain<T[K]> } : T;"""


@pytest.fixture(scope="module")
def compiler() -> Path:
    """Return the TypeScript compiler, beside the types."""
    found = NODE / "node_modules" / ".bin" / "tsc"
    if not found.exists():
        npm = shutil.which("npm")
        if not npm:
            skip_or_fail("fleet", "npm is not installed")
        NODE.mkdir(parents=True, exist_ok=True)
        argv = [npm, "install", "--silent", "--no-save", "--no-audit", "--no-fund", "--prefix", str(NODE)]
        done = subprocess.run([*argv, *PACKAGES], capture_output=True, text=True, check=False, timeout=300)
        if done.returncode:
            skip_or_fail("fleet", f"npm cannot fetch {PACKAGES}: {done.stderr[-300:]}")
    return found


def build_module(dashboard: dict[str, Any]) -> str:
    """Return TypeScript that declares the dashboard, its panels and their options with their types."""
    lines = [f"import type {{ Dashboard, Panel }} from '{_RAW}/dashboard/x/types.gen';"]
    for kind in _PANELS:
        path = f"{_RAW}/composable/{kind}/panelcfg/x/types.gen"
        lines.append(f"import type {{ Options as {kind}_options }} from '{path}';")
    lines.append(_PLAIN)
    lines.append(f"export const dashboard: Plain<Dashboard> = {json.dumps(dashboard)};")
    for panel in dashboard["panels"]:
        number = panel["id"]
        if panel["type"] != "row":
            lines.append(f"export const panel{number}: Plain<Panel> = {json.dumps(panel)};")
            options = json.dumps(panel["options"])
            lines.append(
                f"export const options{number}: Plain<Partial<{panel['type']}_options>> = {options};"
            )
    return "\n".join(lines) + "\n"


def check_types(compiler: Path, name: str, text: str) -> str:
    """Return the compiler's messages, empty if the types are right."""
    source = NODE / f"{name}.ts"
    source.write_text(text)
    options = (
        "--noEmit",
        "--strict",
        "--skipLibCheck",
        "--module",
        "esnext",
        "--moduleResolution",
        "bundler",
    )
    done = subprocess.run([str(compiler), *options, str(source)], capture_output=True, text=True, check=False)
    return done.stdout


@pytest.mark.parametrize("name", ["opwatch-fleet", "opwatch-host", "opwatch-drive"])
def test_dashboard_has_the_types_of_the_schema(compiler: Path, name: str) -> None:
    text = build_module(json.loads((FOLDER / f"{name}.json").read_text()))
    assert check_types(compiler, name, text) == ""


def test_compiler_notices_a_misspelt_field(compiler: Path) -> None:
    dashboard = json.loads((FOLDER / "opwatch-host.json").read_text())
    dashboard["panels"][1]["gridPoss"] = {}
    assert "gridPoss" in check_types(compiler, "misspelt", build_module(dashboard))
