"""Specs of targets, as people and programs write them; and the conversion to the stored target and back."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from duly.domain.duration import parse, to_iso
from duly.domain.fields import Name, Spec
from duly.domain.runs.options import RunOptions
from duly.domain.targets.checks import (
    ARGUMENTS_MAX,
    EXIT_CODE_MOST,
    STATUS_LEAST,
    STATUS_MOST,
    STATUSES_MAX,
    callback_seconds,
    check_target,
)
from duly.domain.targets.program_environment import VARIABLES_MAX
from duly.domain.targets.target import WEBHOOK, Command, Container, Target, Webhook, type_of
from duly.domain.targets.webhook_request import HEADERS_MAX
from duly.domain.targets.webhook_url import CHARACTERS_MAX, shown_url

# Bounds are stated in the schemas, and checked with clearer messages.
Url = Annotated[
    str,
    Meta(
        description="Address of the request: http or https. Secrets in the query are shown as ***.",
        extra_json_schema={"maxLength": CHARACTERS_MAX, "pattern": "^[hH][tT][tT][pP][sS]?://"},
    ),
]
Method = Annotated[str, Meta(extra_json_schema={"pattern": "^[A-Za-z0-9-]{1,32}$"})]
Headers = Annotated[
    dict[str, str],
    Meta(
        description="Request headers besides those that Duly sets. Secrets are shown as ***.",
        extra_json_schema={"maxProperties": HEADERS_MAX},
    ),
]
_STATUS = {"items": {"type": "integer", "minimum": STATUS_LEAST, "maximum": STATUS_MOST}, "maxItems": STATUSES_MAX}
_CODE = {"items": {"type": "integer", "minimum": 0, "maximum": EXIT_CODE_MOST}, "maxItems": STATUSES_MAX}
_FINAL = "HTTP statuses that are final although they are retried by default."
_RETRIED = "HTTP statuses that are retried although they are final by default."
_CALLBACK = "Time in which a receiver that answers 202 must report the outcome: PT1S to P30D, or seconds."
FinalStatuses = Annotated[list[int], Meta(description=_FINAL, extra_json_schema=_STATUS)]
RetriedStatuses = Annotated[list[int], Meta(description=_RETRIED, extra_json_schema=_STATUS)]
OkCodes = Annotated[list[int], Meta(description="Exit codes that mean success; default: 0.", extra_json_schema=_CODE)]
RetriedCodes = Annotated[
    list[int], Meta(description="Exit codes that are retried; default: 75.", extra_json_schema=_CODE)
]
Span = Annotated[str | float, Meta(description=_CALLBACK, examples=["PT1H"])]
Arguments = Annotated[
    list[str],
    Meta(description="Arguments, passed without a shell.", extra_json_schema={"maxItems": ARGUMENTS_MAX}),
]
Program = Annotated[
    list[str],
    Meta(
        description="Absolute path of the program, and its arguments; passed without a shell.",
        extra_json_schema={"minItems": 1, "maxItems": ARGUMENTS_MAX},
    ),
]
Environment = Annotated[
    dict[str, str],
    Meta(
        description="Environment variables besides those that Duly sets. Secrets are shown as ***.",
        extra_json_schema={"maxProperties": VARIABLES_MAX, "propertyNames": {"pattern": "^[A-Z_][A-Z0-9_]*$"}},
    ),
]
_OK, _RETRY = (0,), (75,)  # as in the targets themselves
Network = Annotated[bool, Meta(description="Allow network access.")]


class TargetSpec(Spec, frozen=True, tag_field="type"):
    """The fields that all targets share."""


class FunctionTarget(TargetSpec, frozen=True, tag="function"):
    """A function that a worker has under this name."""

    handler: Name


class WebhookTarget(TargetSpec, frozen=True, tag="webhook"):
    """A signed request to a URL."""

    url: Url
    method: Method = "POST"
    headers: Headers = msgspec.field(default_factory=dict)
    final: FinalStatuses = msgspec.field(default_factory=list)
    retry: RetriedStatuses = msgspec.field(default_factory=list)
    callback_within: Span | None = None


class CommandTarget(TargetSpec, frozen=True, tag="command"):
    """A program that the operator allows, without a shell."""

    argv: Program
    environment: Environment = msgspec.field(default_factory=dict)
    network: Network = False
    memory_bytes: int | None = None
    cpu_seconds: float | None = None
    processes: int | None = None
    file_bytes: int | None = None
    ok: OkCodes = msgspec.field(default_factory=lambda: [*_OK])
    retry: RetriedCodes = msgspec.field(default_factory=lambda: [*_RETRY])


class ContainerTarget(TargetSpec, frozen=True, tag="container"):
    """An image that the operator allows."""

    image: Annotated[str, Meta(extra_json_schema={"minLength": 1, "maxLength": 189})]
    argv: Arguments = msgspec.field(default_factory=list)
    environment: Environment = msgspec.field(default_factory=dict)
    network: Network = False
    memory_bytes: int | None = None
    cpus: float | None = None
    processes: int | None = None
    ok: OkCodes = msgspec.field(default_factory=lambda: [*_OK])
    retry: RetriedCodes = msgspec.field(default_factory=lambda: [*_RETRY])


Called = WebhookTarget | CommandTarget | ContainerTarget
_KINDS: Mapping[type[TargetSpec], type[Target]] = {
    WebhookTarget: Webhook,
    CommandTarget: Command,
    ContainerTarget: Container,
}


def read_target(spec: Called) -> Target:
    """Read a target. Raises InvalidOption, InvalidSchedule."""
    fields = msgspec.structs.asdict(spec)
    given: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}
    if isinstance(spec, WebhookTarget):
        within = given.pop("callback_within")
        given["callback_within_seconds"] = None if within is None else parse(within, "callback_within").total_seconds()
    return check_target(_KINDS[type(spec)](**given))


def spec_of_target(target: Target) -> Called:
    """Return the spec of a target that is no function and no workflow, its secrets as they are."""
    given: dict[str, Any] = {"type": target.__struct_config__.tag, **msgspec.structs.asdict(target)}
    given.pop("sealed_url", None)
    if (seconds := given.pop("callback_within_seconds", None)) is not None:
        given["callback_within"] = to_iso(timedelta(seconds=callback_seconds(seconds)))
    said = {name: value for name, value in given.items() if value is not None}
    spec: Called = msgspec.convert(said, Called)
    return spec


def described_in_short(handler: str, options: RunOptions) -> dict[str, Any]:
    """Describe a target in short: the handler that a worker must have, and a webhook's address without its query."""
    target = options.policy.target if handler == WEBHOOK else None
    url = shown_url(target.url) if isinstance(target, Webhook) else None
    return {"type": type_of(handler), "handler": handler, "url": url}
