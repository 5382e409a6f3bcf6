"""Imports among the modules of a tree, and among its packages."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache


@dataclass(frozen=True)
class Import:
    """An import of a module by another module of the same tree."""

    importer: str
    imported: str
    line: int


@cache
def parse_source(source: str) -> ast.Module:
    """Parse a source once for all rules."""
    return ast.parse(source)


def _resolve_module(node: ast.ImportFrom, package: str) -> str:
    if not node.level:
        return node.module or ""
    parents = package.split(".")
    kept = parents[: len(parents) - node.level + 1]
    return ".".join([*kept, node.module] if node.module else kept)


def _iterate_names(node: ast.AST, package: str) -> Iterator[tuple[str, str]]:
    """Yield (imported name, module if the name is in one) for an import."""
    if isinstance(node, ast.Import):
        yield from ((alias.name, alias.name) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = _resolve_module(node, package)
        yield from ((f"{base}.{alias.name}", base) for alias in node.names)


def find_imports(modules: Mapping[str, str]) -> list[Import]:
    """Return every import of one module by another, including imports inside functions. `modules`: dotted
    name -> source."""
    packages = {name.rpartition(".")[0] for name in modules}
    arrows = []
    for importer, source in modules.items():
        package = importer if importer in packages else importer.rpartition(".")[0]
        for node in ast.walk(parse_source(source)):
            for full, base in _iterate_names(node, package):
                imported = full if full in modules else base
                if imported in modules and imported != importer:
                    arrows.append(Import(importer, imported, getattr(node, "lineno", 0)))
    return arrows


def find_cycles(edges: Mapping[str, set[str]]) -> list[list[str]]:
    """Return the groups of nodes that all reach each other."""
    reach = {node: _find_reachable(node, edges) for node in edges}
    groups = {tuple(sorted(other for other in reach[node] if node in reach.get(other, ()))) for node in edges}
    return [list(group) for group in sorted(groups) if len(group) > 1]


def _find_reachable(start: str, edges: Mapping[str, set[str]]) -> set[str]:
    reached, waiting = {start}, [start]
    while waiting:
        for node in edges.get(waiting.pop(), set()) - reached:
            reached.add(node)
            waiting.append(node)
    return reached
