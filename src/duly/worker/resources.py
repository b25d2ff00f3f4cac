"""Resources of a handler that runs on a Ray cluster: what one attempt takes of the node it runs on."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from duly.domain.errors import InvalidOption
from duly.domain.triggers.errors import nearest, shown

_NUMBERS = ("num_cpus", "num_gpus", "memory")
KNOWN = (*_NUMBERS, "accelerator_type", "resources")
_OF_NODES = {"num_cpus": "CPU", "num_gpus": "GPU", "memory": "memory"}
_ACCELERATOR_SHARE = 0.001  # how much of an accelerator's mark Ray takes of a node that has one


def check_resources(resources: Mapping[str, Any]) -> dict[str, Any]:
    """Check the resources of a handler, in Ray's own words; one CPU unless it says otherwise. Raises InvalidOption."""
    if not isinstance(resources, Mapping):
        raise InvalidOption(f'resources {shown(resources)} is not a mapping; give one: resources={{"num_cpus": 2}}')
    checked: dict[str, Any] = {"num_cpus": 1}
    for name, value in resources.items():
        checked[name] = _check(name, value)
    return checked


def needs(resources: Mapping[str, Any]) -> dict[str, float]:
    """Return checked resources as the nodes of a Ray cluster name them."""
    found = {_OF_NODES[name]: float(resources[name]) for name in _NUMBERS if resources.get(name)}
    if accelerator := resources.get("accelerator_type"):
        found[f"accelerator_type:{accelerator}"] = _ACCELERATOR_SHARE
    return found | {name: number for name, number in resources.get("resources", {}).items() if number}


def _check(name: str, value: Any) -> Any:
    if name in _NUMBERS:
        return _check_number(f"resources {name}", value)
    if name == "accelerator_type":
        if not isinstance(value, str) or not value:
            raise InvalidOption(f'resources accelerator_type {shown(value)} is not a name; give one, such as "A100"')
        return value
    if name != "resources":
        meant = nearest(name, KNOWN)
        remedy = f"did you mean {meant!r}?" if meant else f"known are {', '.join(KNOWN)}."
        raise InvalidOption(
            f'resources has no {name!r}; {remedy} Resources of your own are written as {{"resources": {{{name!r}: 1}}}}'
        )
    if not isinstance(value, Mapping) or not all(isinstance(key, str) and key for key in value):
        raise InvalidOption(f'resources {shown(value)} is not a mapping of names; give {{"resources": {{"ssd": 1}}}}')
    return {key: _check_number(f"resources {key}", number) for key, number in value.items()}


def _check_number(what: str, value: Any) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise InvalidOption(f"{what} {shown(value)} is not an amount; give a number, 0 or more")
    if value > 1 and value != int(value):
        raise InvalidOption(
            f"{what} {shown(value)} is more than 1 and not whole, which Ray refuses; give {round(value)}"
        )
    return value
