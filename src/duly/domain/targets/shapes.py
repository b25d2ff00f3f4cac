"""The shapes in which people and programs ask for targets, over HTTP and in files, and the same targets as they are told."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from duly.domain.duration import parse, to_iso
from duly.domain.runs.run import target_of
from duly.domain.targets.checks import (
    ARGUMENTS_MAX,
    EXIT_CODE_MOST,
    STATUS_LEAST,
    STATUS_MOST,
    STATUSES_MAX,
    callback_seconds,
    check_target,
)
from duly.domain.targets.masking import masked
from duly.domain.targets.program_environment import VARIABLES_MAX
from duly.domain.targets.target import FUNCTION, WEBHOOK, Command, Container, Target, Webhook, is_reserved, type_of
from duly.domain.targets.webhook_request import HEADERS_MAX
from duly.domain.targets.webhook_url import CHARACTERS_MAX, shown_url

# Bounds stand in the schemas, and are checked with better words than theirs.
Url = Annotated[
    str,
    Meta(
        description="Where the request is sent: http or https. Secrets in its query are told as ***.",
        extra_json_schema={"maxLength": CHARACTERS_MAX, "pattern": "^[hH][tT][tT][pP][sS]?://"},
    ),
]
Method = Annotated[str, Meta(extra_json_schema={"pattern": "^[A-Za-z0-9-]{1,32}$"})]
Headers = Annotated[
    dict[str, str],
    Meta(
        description="Sent with the request, besides those that Duly sets. Secrets are told as ***.",
        extra_json_schema={"maxProperties": HEADERS_MAX},
    ),
]
_STATUS = {"items": {"type": "integer", "minimum": STATUS_LEAST, "maximum": STATUS_MOST}, "maxItems": STATUSES_MAX}
_CODE = {"items": {"type": "integer", "minimum": 0, "maximum": EXIT_CODE_MOST}, "maxItems": STATUSES_MAX}
_FINAL = "Statuses that end the run though they would be tried again otherwise."
_RETRIED = "Statuses that are tried again though they would be final otherwise."
_CALLBACK = "How long a receiver that answers 202 may take to settle the run: PT1S to P30D, or seconds."
FinalStatuses = Annotated[list[int], Meta(description=_FINAL, extra_json_schema=_STATUS)]
RetriedStatuses = Annotated[list[int], Meta(description=_RETRIED, extra_json_schema=_STATUS)]
OkCodes = Annotated[
    list[int], Meta(description="Exit codes that are a success: 0 unless others are named.", extra_json_schema=_CODE)
]
RetriedCodes = Annotated[
    list[int], Meta(description="Exit codes that are tried again: 75 unless others are named.", extra_json_schema=_CODE)
]
Span = Annotated[str | float, Meta(description=_CALLBACK, examples=["PT1H"])]
Arguments = Annotated[
    list[str],
    Meta(description="As they are: no shell reads them.", extra_json_schema={"maxItems": ARGUMENTS_MAX}),
]
Program = Annotated[
    list[str],
    Meta(
        description="The program, by its absolute path, and its arguments; no shell reads them.",
        extra_json_schema={"minItems": 1, "maxItems": ARGUMENTS_MAX},
    ),
]
Environment = Annotated[
    dict[str, str],
    Meta(
        description="All of its environment, besides what Duly sets. Secrets are told as ***.",
        extra_json_schema={"maxProperties": VARIABLES_MAX, "propertyNames": {"pattern": "^[A-Z_][A-Z0-9_]*$"}},
    ),
]
_OK, _RETRY = (0,), (75,)  # as in the targets themselves
Network = Annotated[bool, Meta(description="Whether it has a network.")]


class TargetShape(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type"):
    """What all of them share."""


class WebhookTarget(TargetShape, frozen=True, tag="webhook"):
    """A signed request to a URL."""

    url: Url
    method: Method = "POST"
    headers: Headers = {}
    final: FinalStatuses = []
    retry: RetriedStatuses = []
    callback_within: Span | None = None


class CommandTarget(TargetShape, frozen=True, tag="command"):
    """A program that the operator allows, without a shell."""

    argv: Program
    environment: Environment = {}
    network: Network = False
    memory_bytes: int | None = None
    cpu_seconds: float | None = None
    processes: int | None = None
    file_bytes: int | None = None
    ok: OkCodes = msgspec.field(default_factory=lambda: [*_OK])
    retry: RetriedCodes = msgspec.field(default_factory=lambda: [*_RETRY])


class ContainerTarget(TargetShape, frozen=True, tag="container"):
    """An image that the operator allows."""

    image: Annotated[str, Meta(extra_json_schema={"minLength": 1, "maxLength": 189})]
    argv: Arguments = []
    environment: Environment = {}
    network: Network = False
    memory_bytes: int | None = None
    cpus: float | None = None
    processes: int | None = None
    ok: OkCodes = msgspec.field(default_factory=lambda: [*_OK])
    retry: RetriedCodes = msgspec.field(default_factory=lambda: [*_RETRY])


Shape = WebhookTarget | CommandTarget | ContainerTarget
_KINDS: Mapping[type[TargetShape], type[Target]] = {
    WebhookTarget: Webhook,
    CommandTarget: Command,
    ContainerTarget: Container,
}


def read_target(shape: Shape) -> Target:
    """Read a target as it is asked for. Raises InvalidOption, InvalidSchedule."""
    given: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in _fields(shape)}
    if isinstance(shape, WebhookTarget):
        within = given.pop("callback_within")
        given["callback_within_seconds"] = None if within is None else parse(within, "callback_within").total_seconds()
    return check_target(_KINDS[type(shape)](**given))


def told_target(target: Target) -> dict[str, Any]:
    """Tell a target in the shape in which it is asked for, without its secrets; what is not said is left out."""
    return _told(masked(target))


def told_of(handler: str, options: str | None) -> dict[str, Any]:
    """Tell what runs, from its row; of what this version cannot read, no more than its type."""
    if not is_reserved(handler):
        return {"type": FUNCTION, "handler": handler}
    target = target_of(options)
    return {"type": type_of(handler)} if target is None else told_target(target)


def told_in_short(handler: str, options: str | None) -> dict[str, Any]:
    """Tell what runs, in short: what a worker must offer, and where a webhook leads, without its query."""
    target = target_of(options) if handler == WEBHOOK else None
    url = shown_url(target.url) if isinstance(target, Webhook) else None
    return {"type": type_of(handler), "handler": handler, "url": url}


def asked_target(target: Target) -> Shape:
    """Write a target in the shape in which it is asked for, as it is."""
    shape: Shape = msgspec.convert(_told(target), Shape)
    return shape


def _told(target: Target) -> dict[str, Any]:
    told: dict[str, Any] = {"type": target.__struct_config__.tag, **msgspec.structs.asdict(target)}
    told.pop("sealed_url", None)
    if (seconds := told.pop("callback_within_seconds", None)) is not None:
        told["callback_within"] = to_iso(timedelta(seconds=callback_seconds(seconds)))
    return {
        name: list(value) if isinstance(value, tuple) else value for name, value in told.items() if value is not None
    }


def _fields(shape: Shape) -> list[tuple[str, Any]]:
    return list(msgspec.structs.asdict(shape).items())
