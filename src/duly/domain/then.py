"""Who is told of the end of a run: of every end, of burials alone, or both.

A URL is sent a signed webhook. Another job is triggered, and finds the outcome in the field `event` of its payload; whoever wants
headers of their own, another method or other retries names a job that sends such a webhook.
"""

from __future__ import annotations

from typing import NoReturn

import msgspec

from duly.domain.errors import InvalidOption
from duly.domain.triggers.errors import shown
from duly.domain.webhook_url import check_url

NAME_CHARACTERS_MAX = 200


class Callback(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who is told: what a URL leads to, by way of a queue other than the run's if one is named; or a job, by name or id."""

    url: str | None = None
    job: str | None = None
    queue: str | None = None


class Then(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who is told of what."""

    done: Callback | None = None
    dead: Callback | None = None


def check_then(on_done: Callback | None, on_dead: Callback | None) -> Then | None:
    """Take who is told of every end and who of burials; nothing when it is nobody. Raises InvalidOption."""
    if on_done is None and on_dead is None:
        return None
    return Then(_checked("on_done", on_done), _checked("on_dead", on_dead))


def _checked(what: str, callback: Callback | None) -> Callback | None:
    if callback is None:
        return None
    if (callback.url is None) == (callback.job is None):
        _refuse(f'{what} names a URL or a job, one of them: {{"url": "https://…"}} or {{"job": "its name"}}')
    if callback.job is not None:
        if callback.queue is not None:
            _refuse(f"{what} names a queue beside a job, which has its own; leave it out")
        return Callback(job=_checked_name(f"job in {what}", callback.job))
    assert callback.url is not None
    queue = None if callback.queue is None else _checked_name(f"queue in {what}", callback.queue)
    return Callback(url=check_url(callback.url), queue=queue)


def _checked_name(what: str, name: str) -> str:
    if not (0 < len(name) <= NAME_CHARACTERS_MAX and name.isprintable()):
        _refuse(f"{what} {shown(name)} is not a name: 1 to {NAME_CHARACTERS_MAX} printable characters")
    return name


def _refuse(message: str) -> NoReturn:
    raise InvalidOption(message)
