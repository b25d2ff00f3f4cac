"""Flags that are also settings: a command names those it takes, and receives the settings."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import wraps
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import click

from duly import log
from duly.domain.duration import parse
from duly.domain.errors import InvalidSchedule
from duly.settings import KNOWN, Settings, SettingsError, is_of_opentelemetry, load

Command = Callable[..., Any]

LEASE_MIN = timedelta(seconds=1)
_COMMON = ("data", "database_url", "log_level", "log_format")
_DECLARATIONS: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "data": (("--data",), {"type": click.Path(path_type=Path), "metavar": "FOLDER"}),
    "database_url": (("--database-url",), {"metavar": "URL"}),
    "host": (("--host",), {}),
    "port": (("--port",), {"type": int}),
    "tls_certificate": (("--tls-certificate",), {"type": click.Path(path_type=Path), "metavar": "FILE"}),
    "tls_key": (("--tls-key",), {"type": click.Path(path_type=Path), "metavar": "FILE"}),
    "plain_http": (("--plain-http/--no-plain-http",), {"default": None}),
    "metrics_host": (("--metrics-host",), {}),
    "metrics_port": (("--metrics-port",), {"type": int}),
    "dashboard": (("--dashboard/--no-dashboard",), {"default": None}),
    "app": (("--app",), {"metavar": "MODULE:NAME"}),
    "pooler": (("--pooler/--no-pooler",), {"default": None}),
    "queues": (("--queue", "queues"), {"multiple": True, "metavar": "NAME[=WEIGHT]"}),
    "slots": (("--slots",), {"type": int}),
    "threads": (("--threads",), {"type": int}),
    "processes": (("--processes",), {"type": int}),
    "lease": (("--lease",), {"metavar": "DURATION"}),
    "grace": (("--grace",), {"metavar": "DURATION"}),
    "webhooks": (("--webhooks",), {"type": int}),
    "secrets_key": (("--secrets-key",), {"type": click.Path(path_type=Path), "metavar": "FILE"}),
    "egress_loopback": (("--egress-loopback/--no-egress-loopback",), {"default": None}),
    "retention_succeeded": (("--retention-succeeded",), {"metavar": "DURATION"}),
    "retention_failed": (("--retention-failed",), {"metavar": "DURATION"}),
    "retention_audit": (("--retention-audit",), {"metavar": "DURATION"}),
    "retention_jobs": (("--retention-jobs",), {"metavar": "DURATION"}),
    "history_payload_bytes": (("--history-payload-bytes",), {"type": int}),
    "queue_age_limit": (("--queue-age-limit",), {"metavar": "DURATION"}),
    "recovery_after": (("--recovery-after",), {"metavar": "DURATION"}),
    "url": (("--url",), {"metavar": "URL"}),
    "as_tenant": (("--as-tenant",), {"metavar": "TENANT"}),
    "log_level": (("--log-level",), {"type": click.Choice(["debug", "info", "warning", "error"])}),
    "log_format": (("--log-format",), {"type": click.Choice(["text", "json"])}),
}
# The operator's rules on what jobs may reach and run are no flags: they are configured, for all workers of a machine.
# Only loopback is one, because `duly up` passes it to its workers.
FLAGS = tuple(_DECLARATIONS)


def together(*decorators: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Combine decorators; the first is the outermost, and the first in the help."""

    def decorate(function: Command) -> Command:
        for one in reversed(decorators):
            function = one(function)
        return function

    return decorate


def with_settings(*names: str) -> Callable[[Command], Command]:
    """Add the flags of these settings, and the common ones, to a command that takes `settings`."""
    of_client = ("as_tenant",) if "url" in names else ()
    wanted = tuple(dict.fromkeys((*names, *of_client, *_COMMON)))

    def decorate(function: Command) -> Command:
        @wraps(function)
        def call(**given: Any) -> Any:
            settings = load({name: given.pop(name) for name in wanted})
            report(settings)
            return function(settings=settings, **given)

        return together(*map(_option, wanted))(call)

    return decorate


def report(settings: Settings) -> None:
    """Set up what this process says of itself: its log, and the traces of runs. Raises SettingsError, Refused."""
    log.set_up(settings.log_level, as_json=settings.log_format == "json")
    if settings.otel_endpoint is not None:
        _send_traces(settings, settings.otel_endpoint)


def _send_traces(settings: Settings, endpoint: str) -> None:
    from duly.outbound import traces  # here, because nearly no command needs them

    source = settings.sources["otel_endpoint"]
    is_address = endpoint.startswith(("http://", "https://"))
    if is_of_opentelemetry(source) and not (is_address and traces.is_installed()):
        lacks = "duly[otel] is not installed" if is_address else "it is not an address such as http://127.0.0.1:4318"
        traces.send_none(f"{source} is set, but {lacks}; OTEL_TRACES_EXPORTER=none is for no traces")
        return
    if not is_address:
        raise SettingsError(f"{source} is not the address of a collector; write it as http://127.0.0.1:4318")
    pairs = [pair.partition("=") for pair in str(settings.otel_headers or "").split(",") if pair]
    headers = {name.strip(): unquote(value.strip()) for name, _, value in pairs}
    traces.set_up(traces.Collector(endpoint, settings.otel_service, headers, settings.otel_ratio))


def _option(name: str) -> Callable[[Command], Command]:
    flags, kind = _DECLARATIONS[name]
    return click.option(*flags, help=f"{KNOWN[name].help}.", **kind)


def span(settings: Settings, name: str) -> timedelta:
    """Parse a duration from the settings. Raises SettingsError, saying where it was written."""
    try:
        value = parse(getattr(settings, name), name)
    except InvalidSchedule as error:
        raise SettingsError(f"{settings.sources[name]}: {error}") from None
    if value <= timedelta():
        raise SettingsError(f"{settings.sources[name]}: {name} must be more than 0")
    if name == "lease" and value < LEASE_MIN:
        raise SettingsError(
            f"{settings.sources[name]}: lease {getattr(settings, name)} is shorter than {LEASE_MIN.total_seconds():g} s, within"
            " which no worker can be sure to renew it; write PT15S, or PT1S at the least"
        )
    return value
