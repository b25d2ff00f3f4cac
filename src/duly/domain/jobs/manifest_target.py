"""The targets of two jobs, compared part by part."""

from __future__ import annotations

from typing import Any

import msgspec

from duly.domain.targets.masking import HIDDEN, is_secret, masked_node
from duly.domain.targets.target import Target, WorkflowTarget
from duly.domain.workflows.target import plain_node

_MAPPINGS = ("headers", "environment")
_NODES = "target.nodes."
SEALED_QUERY = "secrets in the query"  # the part that a URL is not shown with


def target_parts(handler: str, target: Target | None) -> dict[str, Any]:
    """Give a target part by part, as it is, to be compared."""
    if target is None:
        return {"target": handler}
    found: dict[str, Any] = {"target": target.__struct_config__.tag}
    if isinstance(target, WorkflowTarget):
        nodes = {f"{_NODES}{node['name']}": plain_node(node) for node in target.nodes}
        return found | {"target.name": target.name} | nodes
    for name, value in msgspec.structs.asdict(target).items():
        if name == "sealed_url":
            found |= {} if value is None else {f"target.url, {SEALED_QUERY}": value}
        elif name in _MAPPINGS:
            found |= {f"target.{name}.{key}": part for key, part in value.items()}
        elif value not in (None, ()):
            found[f"target.{name}"] = list(value) if isinstance(value, tuple) else value
    return found


def shown_parts(field: str, before: Any, after: Any) -> tuple[Any, Any]:
    """Give a part as it stands and as it is asked for, as they are shown; of a secret no more than that it is another."""
    if field.startswith(_NODES):
        return _shown_node(before), _shown_node(after)
    if not _is_secret_part(field):
        return before, after
    hidden = HIDDEN if before is None or after is None else f"{HIDDEN}, another value"
    return None if before is None else HIDDEN, None if after is None else hidden


def _is_secret_part(field: str) -> bool:
    is_value = field.startswith(tuple(f"target.{name}." for name in _MAPPINGS))
    return field.endswith(SEALED_QUERY) or (is_value and is_secret(field.rpartition(".")[2]))


def _shown_node(node: Any) -> Any:
    return None if node is None else masked_node(node)
