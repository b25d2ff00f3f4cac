"""Masking of targets: values of headers, variables and URL parameters whose names say that they are secrets.

Readers see `***` in their place, and may send that back: it stands for the stored value. It does so only while the
value goes where it went: to the same URL, or into the same command or container, with the same variables beside it and
the same network. Otherwise a caller that may change a job, but not read its secrets, could have them sent elsewhere:
one more variable may tell a program where to send its credentials. `sealed_options.py` stores them, and puts them back.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar
from urllib.parse import unquote_plus

import msgspec

from duly.domain.runs.callbacks import Callbacks
from duly.domain.targets.target import Target, Webhook, WorkflowTarget, target_of_node

HIDDEN = "***"
_TELLING = (
    *("auth", "token", "secret", "key", "cookie", "pass", "pwd", "credential", "signature", "session"),
    # Addresses that usually contain a password.
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
# Parameters that are credentials though their names do not say so: of signed URLs, and of functions called by a key.
# `duly.is_clear_url` has the same names, and `duly.is_secret_name` those above.
_TELLING_PARAMETERS = frozenset({"sig", "code", "jwt"})
_PARAMETERS = re.compile(r"([&;])")

T = TypeVar("T", bound=Target)


def is_secret(name: str) -> bool:
    """Return whether the name of a header or variable says that its value is a secret."""
    return any(word in name.lower() for word in _TELLING)


def masked(target: T) -> T:
    """Return a target as it is shown."""
    if isinstance(target, WorkflowTarget):
        nodes = tuple(masked_node(node) for node in target.nodes)
        return msgspec.structs.replace(target, nodes=nodes, callbacks=masked_callbacks(target.callbacks))
    if isinstance(target, Webhook):
        url, headers = masked_url(target.url), _masked(target.headers)
        return msgspec.structs.replace(target, url=url, sealed_url=None, headers=headers)
    return msgspec.structs.replace(target, environment=_masked(target.environment))


def masked_url(url: str) -> str:
    """Return a URL as it is shown: with `***` for the secret parameters of its query."""
    path, question, query = url.partition("?")
    if not question:
        return url
    return path + question + "".join(_masked_part(part) for part in _PARAMETERS.split(query))


def has_hidden_parameter(url: str) -> bool:
    """Return whether `***` stands for a secret in the query of a URL."""
    return any(value == HIDDEN for name, value in _parameters(url) if is_secret_parameter(name))


def is_secret_parameter(name: str) -> bool:
    """Return whether the name of a query parameter says that its value is a secret."""
    plain = unquote_plus(name)
    return is_secret(plain) or plain.lower() in _TELLING_PARAMETERS


def masked_callbacks(callbacks: Callbacks | None) -> Callbacks | None:
    """Return completion callbacks as they are shown."""
    if callbacks is None:
        return None
    done, dead = (
        callback and msgspec.structs.replace(callback, url=callback.url and masked_url(callback.url), sealed_url=None)
        for callback in (callbacks.end, callbacks.failure)
    )
    return Callbacks(done, dead)


def masked_node(node: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a node of a workflow target as it is shown."""
    shown = with_target(node, masked)
    options = shown.get("options") or {}
    if not isinstance(options.get("callbacks"), Mapping):
        return shown
    callbacks = masked_callbacks(msgspec.convert(options["callbacks"], Callbacks))
    return {**shown, "options": {**options, "callbacks": msgspec.to_builtins(callbacks)}}


def with_target(node: Mapping[str, Any], change: Callable[[Target], Target]) -> Mapping[str, Any]:
    """Return a node with another target; a node that calls a function stays as it is."""
    target = target_of_node(node)
    if target is None:
        return node
    return {**node, "options": {**node["options"], "target": msgspec.to_builtins(change(target))}}


def _masked(values: Mapping[str, str]) -> dict[str, str]:
    return {name: HIDDEN if is_secret(name) else value for name, value in values.items()}


def _parameters(url: str) -> Iterator[tuple[str, str]]:
    for part in _PARAMETERS.split(url.partition("?")[2]):
        name, _, value = part.partition("=")
        yield name, value


def _masked_part(part: str) -> str:
    name, _, value = part.partition("=")
    return f"{name}={HIDDEN}" if value and is_secret_parameter(name) else part
