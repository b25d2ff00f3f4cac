"""Targets that are no functions, as programs write them: a webhook, a command, a container."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict, Unpack

from duly.domain.duration import Duration
from duly.domain.targets.spec import CommandTarget, ContainerTarget, WebhookTarget


class WebhookFields(TypedDict, total=False):
    """The keywords of a webhook besides its URL."""

    method: str
    headers: Mapping[str, str] | None
    final: Sequence[int]
    retry: Sequence[int]
    callback_within: Duration | None


class ProgramFields(TypedDict, total=False):
    """The keywords that commands and containers share."""

    environment: Mapping[str, str] | None
    network: bool
    memory_bytes: int | None
    processes: int | None
    ok: Sequence[int]
    retry: Sequence[int]


class CommandFields(ProgramFields, total=False):
    """The keywords of a command besides its arguments."""

    cpu_seconds: float | None
    file_bytes: int | None


class ContainerFields(ProgramFields, total=False):
    """The keywords of a container besides its image and its arguments."""

    cpus: float | None


def webhook(url: str, **fields: Unpack[WebhookFields]) -> WebhookTarget:
    """Have a signed request sent to `url`, with the job's payload as its body.

    `final` and `retry` name statuses that are taken otherwise than usual. A receiver that answers 202 may take
    `callback_within` to settle the run.
    """
    return WebhookTarget(url=url, **_plain(fields))


def command(argv: Sequence[str], **fields: Unpack[CommandFields]) -> CommandTarget:
    """Have a program run, by its absolute path, with its arguments; no shell reads them.

    Exit codes in `ok` are a success, by default 0; those in `retry` are tried again, by default 75; all others are final.
    """
    return CommandTarget(argv=list(argv), **_plain(fields))


def container(image: str, argv: Sequence[str] = (), **fields: Unpack[ContainerFields]) -> ContainerTarget:
    """Have a container run, of an image that the operator allows; exit codes are taken as those of a command."""
    return ContainerTarget(image=image, argv=list(argv), **_plain(fields))


def _plain(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Give what was said, with the dicts and lists that a spec holds."""
    return {name: _as_spec(value) for name, value in fields.items() if value is not None}


def _as_spec(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else value
