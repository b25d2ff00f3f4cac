"""What of a target is not shown: values of headers and variables whose names say that they are secrets.

Whoever reads a target sees `***` in their place, and may send that back: it stands for the value that the job has. It does so
only as long as the value goes where it went: to the same URL, or into the same command or container, with the same variables
beside it and the same network. Otherwise whoever may change a job, and not read its secrets, could have them sent elsewhere: one
variable more may tell a program where to send its credentials.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from duly.domain.errors import InvalidOption
from duly.domain.target import Command, Container, Target, Webhook, WorkflowTarget, target_of_node

HIDDEN = "***"
_TELLING = (
    *("auth", "token", "secret", "key", "cookie", "pass", "pwd", "credential", "signature", "session"),
    # Addresses that usually have a password in them.
    *(
        "dsn",
        "database_url",
        "db_url",
        "redis_url",
        "broker_url",
        "amqp_url",
        "mongo",
        "connection_string",
        "webhook_url",
    ),
)

T = TypeVar("T", bound=Target)


def is_secret(name: str) -> bool:
    """Say whether the name of a header or variable tells that its value is a secret."""
    return any(word in name.lower() for word in _TELLING)


def masked(target: T) -> T:
    """Give a target as it is shown."""
    if isinstance(target, WorkflowTarget):
        return msgspec.structs.replace(target, nodes=tuple(with_target(node, masked) for node in target.nodes))
    name, values = _secrets_of(target)
    return msgspec.structs.replace(target, **{name: _masked(values)})


def restored(target: T, standing: Target | None) -> T:
    """Put back the values that were not shown, from the target that a job has. Raises InvalidOption."""
    if isinstance(target, WorkflowTarget):
        return msgspec.structs.replace(target, nodes=tuple(_restored_node(node, standing) for node in target.nodes))
    name, values = _secrets_of(target)
    if not any(_is_hidden(*item) for item in values.items()):
        return target
    before: Mapping[str, str] = {}
    if standing is not None and not isinstance(standing, WorkflowTarget) and _goes_where(target, standing):
        before = _secrets_of(standing)[1]
    whole = {key: _value(name, key, before) if _is_hidden(key, value) else value for key, value in values.items()}
    return msgspec.structs.replace(target, **{name: whole})


def _value(name: str, key: str, before: Mapping[str, str]) -> str:
    found = next((value for other, value in before.items() if other.lower() == key.lower()), None)
    if found is None:
        raise InvalidOption(
            f"{key} in {name} of the target is {HIDDEN}, which stands for a value that is not shown; here is none that it could"
            " stand for, because the job is new, has no such value, or leads elsewhere now: to another URL or program, or"
            " with other variables or another network beside it. Send the value itself"
        )
    return found


def _goes_where(target: Target, standing: Target) -> bool:
    match target, standing:
        case Webhook(), Webhook():
            return target.url == standing.url
        case Command(), Command():
            return target.argv == standing.argv and _is_beside_the_same(target, standing)
        case Container(), Container():
            is_same = (target.image, target.argv) == (standing.image, standing.argv)
            return is_same and _is_beside_the_same(target, standing)
    return False


def _is_beside_the_same(target: Command | Container, standing: Command | Container) -> bool:
    hidden = {name for name, value in target.environment.items() if _is_hidden(name, value)}
    beside, beside_before = (
        {name: value for name, value in one.environment.items() if name not in hidden} for one in (target, standing)
    )
    return beside == beside_before and target.network == standing.network


def _restored_node(node: Mapping[str, Any], standing: Target | None) -> Mapping[str, Any]:
    """Put back what was not shown of a node's target, from the node of that name."""
    nodes = standing.nodes if isinstance(standing, WorkflowTarget) else ()
    before = next((target_of_node(one) for one in nodes if one.get("name") == node.get("name")), None)
    return with_target(node, lambda target: restored(target, before))


def with_target(node: Mapping[str, Any], change: Callable[[Target], Target]) -> Mapping[str, Any]:
    """Give a node with another target; a node that calls a function stays as it is."""
    target = target_of_node(node)
    if target is None:
        return node
    return {**node, "options": {**node["options"], "target": msgspec.to_builtins(change(target))}}


def _secrets_of(target: Webhook | Command | Container) -> tuple[str, Mapping[str, str]]:
    return ("headers", target.headers) if isinstance(target, Webhook) else ("environment", target.environment)


def _masked(values: Mapping[str, str]) -> dict[str, str]:
    return {name: HIDDEN if is_secret(name) else value for name, value in values.items()}


def _is_hidden(name: str, value: str) -> bool:
    return value == HIDDEN and is_secret(name)
