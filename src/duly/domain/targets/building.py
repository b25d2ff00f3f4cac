"""Targets that are no functions, as programs write them: a webhook, a command, a container."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

from duly.domain.duration import Duration, to_iso
from duly.domain.targets.spec import CommandTarget, ContainerTarget, WebhookTarget


def webhook(
    url: str,
    *,
    method: str = "POST",
    headers: Mapping[str, str] | None = None,
    final: Sequence[int] = (),
    retry: Sequence[int] = (),
    callback_within: Duration | None = None,
) -> WebhookTarget:
    """Describe a signed request to `url`, with the job's payload as its body.

    `final` and `retry` list statuses to treat otherwise than by default. A receiver that answers 202 may take
    `callback_within` to settle the run.
    """
    return WebhookTarget(
        url=url,
        method=method,
        headers=dict(headers or {}),
        final=list(final),
        retry=list(retry),
        callback_within=to_iso(callback_within) if isinstance(callback_within, timedelta) else callback_within,
    )


def command(
    argv: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    network: bool = False,
    memory_bytes: int | None = None,
    cpu_seconds: float | None = None,
    processes: int | None = None,
    file_bytes: int | None = None,
    ok: Sequence[int] = (0,),
    retry: Sequence[int] = (75,),
) -> CommandTarget:
    """Describe a program, by its absolute path, with its arguments; no shell reads them.

    Exit codes in `ok` are a success, by default 0; those in `retry` are retried, by default 75; all others are final.
    """
    return CommandTarget(
        argv=list(argv),
        environment=dict(environment or {}),
        network=network,
        memory_bytes=memory_bytes,
        cpu_seconds=cpu_seconds,
        processes=processes,
        file_bytes=file_bytes,
        ok=list(ok),
        retry=list(retry),
    )


def container(
    image: str,
    argv: Sequence[str] = (),
    *,
    environment: Mapping[str, str] | None = None,
    network: bool = False,
    memory_bytes: int | None = None,
    cpus: float | None = None,
    processes: int | None = None,
    ok: Sequence[int] = (0,),
    retry: Sequence[int] = (75,),
) -> ContainerTarget:
    """Describe a container of an image that the operator allows; exit codes mean the same as a command's."""
    return ContainerTarget(
        image=image,
        argv=list(argv),
        environment=dict(environment or {}),
        network=network,
        memory_bytes=memory_bytes,
        cpus=cpus,
        processes=processes,
        ok=list(ok),
        retry=list(retry),
    )
