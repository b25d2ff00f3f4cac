"""Completion callbacks: who is notified of every end of a run, of dead letters alone, or of both.

A URL receives a signed webhook. Another job is triggered, and finds the outcome in the field `event` of its payload;
for other headers, methods or retries, name a job that sends such a webhook.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from duly.domain.errors import InvalidOption
from duly.domain.targets.webhook_url import check_url
from duly.domain.triggers.errors import shown

NAME_CHARACTERS_MAX = 200
_SCHEMES = ("http://", "https://")
_FIELDS = frozenset({"url", "job", "queue"})
_EXAMPLE = '{"url": "https://…"} or {"job": "its name"}'


class Callback(msgspec.Struct, frozen=True, omit_defaults=True):
    """A completion callback: a URL, by way of a queue other than the run's if one is named; or a job, by name or id."""

    url: str | None = None
    job: str | None = None
    queue: str | None = None
    sealed_url: str | None = None  # the whole URL, sealed, if the query of `url` has its secrets removed


class Callbacks(msgspec.Struct, frozen=True, omit_defaults=True):
    """The completion callbacks of a run, by outcome."""

    end: Callback | None = None
    failure: Callback | None = None


def check_callbacks(on_end: object, on_failure: object) -> Callbacks | None:
    """Check the callbacks for every end and for dead letters; None without either. Raises InvalidOption."""
    if on_end is None and on_failure is None:
        return None
    return Callbacks(read_callback("on_end", on_end), read_callback("on_failure", on_failure))


def read_callback(what: str, given: object) -> Callback | None:
    """Parse a callback: its struct, its fields, or in short a URL or the name of a job. Raises InvalidOption."""
    match given:
        case None:
            return None
        case Callback():
            return _checked(what, given)
        case str():
            return _checked(what, Callback(**short_callback(given)))
        case Mapping() if given.keys() <= _FIELDS and all(isinstance(value, str) for value in given.values()):
            return _checked(what, Callback(**given))
    raise InvalidOption(f"{what} {shown(given)} has no receiver; write {_EXAMPLE}")


def short_callback(text: str) -> dict[str, str]:
    """Expand the short form of a callback: a URL, or the name of a job."""
    return {"url" if text.startswith(_SCHEMES) else "job": text}


def _checked(what: str, callback: Callback) -> Callback:
    if (callback.url is None) == (callback.job is None):
        raise InvalidOption(f"{what} takes either a URL or a job; write {_EXAMPLE}")
    if callback.job is not None:
        if callback.queue is not None:
            raise InvalidOption(f"{what} has a queue beside a job, which has its own; leave the queue out")
        return Callback(job=_checked_name(f"job in {what}", callback.job))
    assert callback.url is not None
    queue = None if callback.queue is None else _checked_name(f"queue in {what}", callback.queue)
    return Callback(url=check_url(callback.url), queue=queue)


def _checked_name(what: str, name: str) -> str:
    if not (0 < len(name) <= NAME_CHARACTERS_MAX and name.isprintable()):
        raise InvalidOption(f"{what} {shown(name)} is not a name: 1 to {NAME_CHARACTERS_MAX} printable characters")
    return name
