"""What a job or a run does, and how: targets as they are told, retries and limits as they cross HTTP."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from duly.wire.callbacks import ToldCallback
from duly.wire.schema.shapes import Asked, Duration, Moment, Name, Told


class JobTarget(Told, frozen=True, omit_defaults=True):
    """What a job runs, by its `type`: the fields of that type are there, and no others. Secrets are told as ***.

    Types and fields may be added; whoever does not know one reads the rest.
    """

    type: Annotated[str, Meta(examples=["function", "webhook", "command", "container", "workflow"])]
    handler: str | None = None
    url: str | None = None
    method: str | None = None
    headers: dict[str, str] | None = None
    final: list[int] | None = None
    callback_within: str | None = None
    argv: list[str] | None = None
    image: str | None = None
    environment: dict[str, str] | None = None
    network: bool | None = None
    memory_bytes: int | None = None
    cpu_seconds: float | None = None
    cpus: float | None = None
    processes: int | None = None
    file_bytes: int | None = None
    ok: list[int] | None = None
    retry: list[int] | None = None
    name: str | None = None
    nodes: dict[str, Any] | None = None


Numbers = int | Annotated[str, Meta(examples=["4xx", "500-599"])]
Jitter = Literal["full", "equal", "none"] | Annotated[float, Meta(ge=0, le=1)]


class RetryRule(Asked, frozen=True, omit_defaults=True):
    """What becomes of a failure of one kind: exactly one of `error`, `status` and `exit`. A snooze uses up no attempt."""

    then: Literal["retry", "bury", "snooze"]
    error: (
        Annotated[str, Meta(max_length=200, description="A class by name or path, or a pattern: *Timeout.")] | None
    ) = None
    status: Annotated[Numbers, Meta(description="Of a webhook's answer: 404, 4xx or 500-599.")] | None = None
    exit: Annotated[Numbers, Meta(description="Of a command or a container: 75 or 1-10.")] | None = None
    delay: Annotated[Duration, Meta(description="How long it waits then; a snooze needs it.")] | None = None


class RetryPolicy(Asked, frozen=True):
    """How often and how soon a failed run is tried again; docs/retries-and-dead-letters.md says which gap each policy gives."""

    policy: Literal["exponential", "linear", "fixed", "list"] = "exponential"
    max_attempts: Annotated[int, Meta(ge=1, le=1000)] = 5
    base: Duration = "PT1S"
    cap: Annotated[Duration, Meta(description="The longest gap, where gaps grow.")] = "PT10M"
    jitter: (
        Annotated[Jitter, Meta(description="The part of a gap that is left to chance; null: as is usual.")] | None
    ) = None
    delays: Annotated[list[Duration], Meta(max_length=100, description="Of a list; the last one repeats.")] = (
        msgspec.field(default_factory=list)
    )
    max_age: (
        Annotated[Duration, Meta(description="No attempt starts later than this after the first was due.")] | None
    ) = None
    rules: Annotated[list[RetryRule], Meta(max_length=32, description="The first that fits decides.")] = msgspec.field(
        default_factory=list
    )


class Concurrency(Asked, frozen=True):
    """At most `limit` runs of all jobs with this key are under way at once. With order fifo: one after another, in order."""

    key: Name
    limit: Annotated[int, Meta(ge=1, le=999_999)] = 1
    order: Annotated[
        Literal["fifo"] | None,
        Meta(
            description="fifo: in order of due moments, the next when the former has come to its end. Null: as places come free."
        ),
    ] = None


class RateLimit(Asked, frozen=True):
    """At most `limit` runs of all jobs with this key start in each `per`, evenly, across the whole fleet."""

    key: Name
    limit: Annotated[float, Meta(gt=0, le=1_000_000)]
    per: Duration = "PT1S"
    burst: Annotated[int, Meta(ge=1, le=999_999, description="How many may start at once after a rest.")] = 1


class RunDefinition(Told, frozen=True):
    """The definition that a run uses or used: of a job with versions, the version; of a one-shot, 1.

    `retry` and `timeout` are null where they are left to the handler.
    """

    version: int
    target: JobTarget
    retry: RetryPolicy | None
    timeout: str | None
    concurrency: Concurrency | None
    rate_limit: RateLimit | None
    expires_at: Moment | None = None
    expires_after: str | None = None
    on_done: ToldCallback | None = None
    on_dead: ToldCallback | None = None
