"""The page of metrics, from the source files that define them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from scripts.reference.markdown import document, table

SOURCE = Path(__file__).parents[2] / "src" / "duly"
MODULES = {
    "The API, `duly up`": ("api/metrics",),
    "Workers and schedulers, on `metrics_port`": ("cli/up/role_metrics.py",),
}
_SUFFIX = {"counter": "_total", "info": "_info"}
_HEAD = """
Every metric, in the format of Prometheus. The API serves `/metrics` with the operator's key: figures of the whole installation,
read from the database. With `metrics_port`, each process serves its own on an address of its own, without a key, so that a sum
over processes is right.

A label that users choose, such as a queue, takes at most 100 values of one tenant and 1,000 in all; later ones are counted under
`other`. A histogram has `_bucket`, `_sum` and `_count`.
"""


def page() -> str:
    """Write the page."""
    parts = [
        f"## {title}\n\n" + table(["metric", "type", "labels", "meaning"], sorted(_metrics(modules)))
        for title, modules in MODULES.items()
    ]
    return document("Metrics", _HEAD, *parts)


def _metrics(modules: tuple[str, ...]) -> Iterator[tuple[str, str, str, str]]:
    for module in modules:
        path = SOURCE / module
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            yield from filter(None, map(_metric, ast.walk(ast.parse(file.read_text()))))


def _metric(node: ast.AST) -> tuple[str, str, str, str] | None:
    """Read a call such as `CounterMetricFamily("duly_runs", "Attempts that ended.", labels=["queue"])`."""
    match node:
        case ast.Call(func=called, args=[ast.Constant(value=str(name)), ast.Constant(value=str(said)), *_]) if (
            name.startswith("duly_")
        ):
            kind = _kind(called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", ""))
            labels = [ast.literal_eval(word.value) for word in node.keywords if word.arg == "labels"]
            shown = ", ".join(f"`{label}`" for label in labels[0]) if labels else ""
            return f"`{name}{_SUFFIX.get(kind, '')}`", kind, shown, said
    return None


def _kind(called: str) -> str:
    kinds = ("counter", "gauge", "info")
    return next((kind for kind in kinds if kind in called.lower()), "histogram")
