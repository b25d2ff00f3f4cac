"""`duly notify`: channels, rules, and past notifications."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from duly.cli.client import lists, with_client
from duly.cli.flags.filters import first
from duly.cli.lazy import ListingGroup
from duly.cli.render.output import Columns, answer
from duly.client.asynchronous.client import AsyncClient
from duly.clock import SystemClock
from duly.domain.notifications.channel import (
    PORT_DEFAULT,
    RECIPIENTS_MAX,
    AppriseChannel,
    ChannelSpec,
    EmailChannel,
    WebhookChannel,
)
from duly.domain.notifications.rule import CHANNELS_MAX, CLOCK, EVENTS, RuleSpec
from duly.domain.runs.run import FINAL_STATES
from duly.wire.notifications import Channel, Notification, NotificationRule
from duly.wire.pages import PAGE_SIZE_MAX
from duly.wire.schema.reading import Misshapen, read_value

_SHOWN_MAX = 10_000
_POLL_SECONDS = 0.2
S = TypeVar("S", bound=msgspec.Struct)


def _receiver(one: Channel) -> str:
    shown = one.configuration
    return ", ".join(shown["recipients"]) if "recipients" in shown else str(shown.get("url"))


COLUMNS: Columns = {
    "at": "happened_at",
    "rule": "rule",
    "event": "event",
    "text": "text",
    "sent": lambda one: ", ".join(f"{each.channel} {each.state}" for each in one.deliveries) or "waits",
}
CHANNELS: Columns = {
    "name": "name",
    "kind": "kind",
    "to": _receiver,
    "rules": "rules",
    "latest": lambda one: one.latest and one.latest.state,
    "reason": lambda one: one.latest and one.latest.reason,
}
RULES: Columns = {
    "name": "name",
    "events": lambda one: one.definition.events,
    "filter": lambda one: one.definition.filter,
    "mode": lambda one: one.definition.mode,
    "channels": lambda one: one.definition.channels,
    "file": lambda one: f"{one.source}, changed since" if one.is_drifted else one.source,
    "waiting": "waiting",
    "sent": "sent_at",
}


@click.group(cls=ListingGroup)
def notify() -> None:
    """Get notified of failed, late and absent runs. Without a command: list notifications."""


@notify.command("list")
@click.option("--rule", metavar="NAME", help="Of this rule alone.")
@click.option("--limit", type=click.IntRange(1, _SHOWN_MAX), default=50, show_default=True, help="Maximum number.")
@lists(COLUMNS, "no notifications")
async def list_notifications(client: AsyncClient, rule: str | None, limit: int) -> list[Notification]:
    """List notifications, the newest first."""
    return await first(client.notifications.list(rule, page_size=min(limit, PAGE_SIZE_MAX)), limit)


@notify.command()
@lists(CHANNELS, "no channels; create one: duly notify put-channel NAME --webhook URL")
async def channels(client: AsyncClient) -> list[Channel]:
    """List channels, with what became of the latest delivery."""
    return [one async for one in client.channels.list()]


@notify.command("put-channel")
@click.argument("name")
@click.option("--webhook", metavar="URL", help="A URL that receives signed requests; - reads it from standard input.")
@click.option("--apprise", metavar="URL", help="An Apprise URL, as slack://…; - reads it from standard input.")
@click.option("--smtp", metavar="HOST[:PORT]", help=f"A mail server; default port: {PORT_DEFAULT}.")
@click.option("--from", "sender", metavar="ADDRESS", help="Sender of the mail.")
@click.option("--to", "recipients", metavar="ADDRESS", multiple=True, help="Recipient of the mail; may be repeated.")
@click.option("--security", type=click.Choice(["starttls", "tls", "none"]), default="starttls", show_default=True)
@click.option("--user", help="User of the mail server.")
@click.option(
    "--password-file", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="File with its password."
)
@with_client()
async def put_channel(
    client: AsyncClient,
    as_json: bool,
    name: str,
    webhook: str | None,
    apprise: str | None,
    smtp: str | None,
    sender: str | None,
    recipients: tuple[str, ...],
    security: str,
    user: str | None,
    password_file: Path | None,
) -> None:
    """Store the channel NAME, new or changed: a webhook, a service of Apprise, or mail."""
    if sum(one is not None for one in (webhook, apprise, smtp)) != 1:
        raise click.UsageError("give one of --webhook, --apprise and --smtp")
    spec: ChannelSpec
    if webhook is not None:
        spec = WebhookChannel(url=_secret(webhook))
    elif apprise is not None:
        spec = AppriseChannel(url=_secret(apprise))
    else:
        assert smtp is not None
        if sender is None or not recipients:
            raise click.UsageError("a channel of mail needs --from and --to")
        host, port = _host_and_port(smtp)
        password = None if password_file is None else _content(password_file)
        if len(recipients) > RECIPIENTS_MAX:
            raise click.UsageError(
                f"--to is given {len(recipients)} times; the limit is {RECIPIENTS_MAX}: write to a mailing list, or create"
                " another channel"
            )
        fields = {"kind": "email", "host": host, "port": port, "sender": sender, "recipients": list(recipients)}
        spec = _read({**fields, "security": security, "user": user, "password": password}, EmailChannel)
    stored = await client.channels.put(name, spec)
    answer(as_json, stored, f"channel {name} is stored; try it: duly notify test {name}")


@notify.command()
@click.argument("name")
@click.option(
    "--wait", type=float, default=30.0, show_default=True, metavar="SECONDS", help="Time to wait for the delivery."
)
@with_client()
async def test(client: AsyncClient, as_json: bool, name: str, wait: float) -> int:
    """Send a test to the channel NAME, and wait for its delivery. The exit code is 1 when it fails."""
    sent, clock = await client.channels.test(name), SystemClock()
    until = clock.monotonic() + wait
    while (run := await client.runs.get(sent.run_id)).state not in FINAL_STATES and clock.monotonic() < until:
        await clock.sleep(_POLL_SECONDS)
    answer(as_json, run, f"test of channel {name}: {run.state}", *([run.reason] if run.reason else []))
    return 0 if run.state == "succeeded" else 1


@notify.command("delete-channel")
@click.argument("name")
@with_client()
async def delete_channel(client: AsyncClient, as_json: bool, name: str) -> None:
    """Delete the channel NAME, which no rule may use."""
    await client.channels.delete(name)
    answer(as_json, {"name": name, "deleted": True}, f"channel {name} is deleted")


@notify.command()
@lists(RULES, "no rules; create one: duly notify put-rule NAME --on dead --channel CHANNEL")
async def rules(client: AsyncClient) -> list[NotificationRule]:
    """List rules, and how many notifications of each wait to be sent."""
    return [one async for one in client.notifications.rules()]


@notify.command("put-rule")
@click.argument("name")
@click.option(
    "--on",
    "events",
    multiple=True,
    required=True,
    metavar="EVENT",
    type=click.Choice(EVENTS),
    help=f"One or more of {', '.join(EVENTS)}.",
)
@click.option("--channel", "channels", multiple=True, required=True, metavar="NAME", help="A channel; may be repeated.")
@click.option(
    "--filter",
    "filter_",
    default="",
    metavar="FILTER",
    help="Jobs by name, queue and tag: 'tag:billing AND name:report*'.",
)
@click.option("--mode", type=click.Choice(["every", "on_change", "digest"]), default="every", show_default=True)
@click.option("--digest", default="PT1H", show_default=True, metavar="DURATION", help="Span of a digest.")
@click.option("--late-after", default="PT5M", show_default=True, metavar="DURATION", help="Limit of late.")
@click.option("--absent-after", default="PT5M", show_default=True, metavar="DURATION", help="Limit of absent.")
@click.option("--queue-age", default="PT10M", show_default=True, metavar="DURATION", help="Limit of queue_age.")
@click.option("--quiet", metavar="START-END", help="Quiet hours, as 22:00-07:00.")
@click.option("--tz", metavar="ZONE", help="Time zone of the quiet hours; UTC unless given.")
@click.option(
    "--max",
    "deliveries_max",
    type=click.IntRange(1, 1_000),
    default=20,
    show_default=True,
    help="Deliveries within --per.",
)
@click.option("--per", default="PT1H", show_default=True, metavar="DURATION", help="Span of --max.")
@with_client()
async def put_rule(
    client: AsyncClient,
    as_json: bool,
    name: str,
    events: tuple[str, ...],
    channels: tuple[str, ...],
    filter_: str,
    mode: str,
    digest: str,
    late_after: str,
    absent_after: str,
    queue_age: str,
    quiet: str | None,
    tz: str | None,
    deliveries_max: int,
    per: str,
) -> None:
    """Store the rule NAME, new or changed. A new one covers what happens from then on."""
    if len(channels) > CHANNELS_MAX:
        raise click.UsageError(
            f"--channel is given {len(channels)} times; the limit is {CHANNELS_MAX}: put the rest into another rule"
        )
    spec = _read(
        {
            "events": list(events), "channels": list(channels), "filter": filter_, "mode": mode, "digest": digest,
            "late_after": late_after, "absent_after": absent_after, "queue_age": queue_age, "quiet": _hours(quiet, tz),
            "deliveries_max": deliveries_max, "per": per,
        },
        RuleSpec,
    )  # fmt: skip
    stored = await client.notifications.put_rule(name, spec)
    answer(as_json, stored, f"rule {name} is stored: {', '.join(events)} to {', '.join(channels)}")


@notify.command("delete-rule")
@click.argument("name")
@with_client()
async def delete_rule(client: AsyncClient, as_json: bool, name: str) -> None:
    """Delete the rule NAME. Its past notifications stay."""
    await client.notifications.delete_rule(name)
    answer(as_json, {"name": name, "deleted": True}, f"rule {name} is deleted")


def _hours(quiet: str | None, tz: str | None) -> dict[str, str] | None:
    """Read quiet hours and their zone. Raises UsageError."""
    if quiet is None:
        if tz is not None:
            raise click.UsageError("--tz is the zone of quiet hours; give --quiet too, such as --quiet 22:00-07:00")
        return None
    start, _, end = quiet.partition("-")
    if not (CLOCK.fullmatch(start) and CLOCK.fullmatch(end)):
        raise click.UsageError(f"--quiet {quiet!r} is not two times of day from 00:00 to 23:59; write 22:00-07:00")
    return {"start": start, "end": end, "tz": tz or "UTC"}


def _read(fields: dict[str, Any], kind: type[S]) -> S:
    """Read a spec from options. Raises UsageError, which names the option at fault."""
    try:
        return read_value(fields, kind)
    except Misshapen as error:
        raise click.UsageError(str(error)) from None


def _secret(given: str) -> str:
    return _text(sys.stdin.buffer.readline(), "standard input") if given == "-" else given


def _content(file: Path) -> str:
    try:
        return _text(file.read_bytes(), str(file))
    except OSError as error:
        raise click.UsageError(f"{file} cannot be read: {error.strerror}; name a file that can be") from None


def _text(data: bytes, name: str) -> str:
    try:
        return data.decode().strip()
    except UnicodeDecodeError as error:
        raise click.UsageError(f"{name} is not UTF-8 text: byte {error.start}; write it in UTF-8") from None


def _host_and_port(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or "]" in port:
        return text.strip("[]"), PORT_DEFAULT
    if not port.isascii() or not port.isdigit() or not 1 <= int(port) <= 65_535:
        raise click.UsageError(f"port {port!r} is not a number from 1 to 65535")
    return host.strip("[]"), int(port)
