"""What of a target is not shown: values of headers and variables whose names say that they are secrets.

Whoever reads a target sees `***` in their place, and may send that back: it stands for the value that the job has. It does so
only as long as the value goes where it went: to the same origin, the same command or the same container. Otherwise whoever may
change a job, and not read its secrets, could have them sent elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from duly.domain.errors import InvalidOption
from duly.domain.target import Command, Container, Target, Webhook
from duly.domain.webhook_url import origin_of

HIDDEN = "***"
_TELLING = ("auth", "token", "secret", "key", "cookie", "password", "passwd", "credential", "signature", "session")

T = TypeVar("T", bound=Target)


def is_secret(name: str) -> bool:
    """Say whether the name of a header or variable tells that its value is a secret."""
    return any(word in name.lower() for word in _TELLING)


def masked(target: T) -> T:
    """Give a target as it is shown."""
    if isinstance(target, Webhook):
        return msgspec.structs.replace(target, headers=_masked(target.headers))
    return msgspec.structs.replace(target, environment=_masked(target.environment))


def restored(target: T, standing: Target | None) -> T:
    """Put back the values that were not shown, from the target that a job has. Raises InvalidOption."""
    name, values = _secrets_of(target)
    if not any(_is_hidden(*item) for item in values.items()):
        return target
    before = _secrets_of(standing)[1] if standing is not None and _goes_where(target, standing) else {}
    whole = {key: _value(name, key, before) if _is_hidden(key, value) else value for key, value in values.items()}
    return msgspec.structs.replace(target, **{name: whole})


def _value(name: str, key: str, before: Mapping[str, str]) -> str:
    found = next((value for other, value in before.items() if other.lower() == key.lower()), None)
    if found is None:
        raise InvalidOption(
            f"{key} in {name} of the target is {HIDDEN}, which stands for a value that is not shown; here is none that it could"
            " stand for, because the job is new, has no such value, or leads elsewhere now. Send the value itself"
        )
    return found


def _goes_where(target: Target, standing: Target) -> bool:
    match target, standing:
        case Webhook(), Webhook():
            return origin_of(target.url) == origin_of(standing.url)
        case Command(), Command():
            return target.argv == standing.argv
        case Container(), Container():
            return (target.image, target.argv) == (standing.image, standing.argv)
    return False


def _secrets_of(target: Target) -> tuple[str, Mapping[str, str]]:
    return ("headers", target.headers) if isinstance(target, Webhook) else ("environment", target.environment)


def _masked(values: Mapping[str, str]) -> dict[str, str]:
    return {name: HIDDEN if is_secret(name) else value for name, value in values.items()}


def _is_hidden(name: str, value: str) -> bool:
    return value == HIDDEN and is_secret(name)
