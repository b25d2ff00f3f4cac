"""Deliveries of notifications: the run names a delivery, the store has its message and its sealed channel.

A webhook goes out like any other: signed, and admitted by its destination's circuit breaker. A mail server is such a
destination, too. What a channel refuses is an error of the run: retried by its policy, and in the end a dead letter.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime
from typing import Any, TypeVar

import msgspec

from duly.domain.errors import InvalidOption, NotFound, Refused
from duly.domain.notifications.channel import (
    AppriseChannel,
    ChannelSpec,
    EmailChannel,
    WebhookChannel,
    scheme_of,
    webhook_of,
)
from duly.domain.notifications.message import SHOWN_MAX, Message
from duly.domain.runs.lifecycle import is_retry
from duly.domain.runs.outcome import Awaited, Deferral, Failed, Outcome, Succeeded, WaitForDestination
from duly.domain.runs.run import Run
from duly.domain.targets.circuit import Verdict
from duly.domain.targets.target import NOTIFICATION
from duly.domain.tenancy.sealing import Keyring
from duly.moves.admin.notifications import opened_channel
from duly.outbound.apprise import Apprise
from duly.outbound.calling import Caller
from duly.outbound.errors import NotAllowed, OutboundError
from duly.outbound.smtp import Mail, MailRefused, deliver
from duly.store.connection.database import Unavailable
from duly.store.tables.notifications import message_of
from duly.worker.context import RunContext
from duly.worker.slots import Kind
from duly.worker.targets import TargetHandler, UsesDatabase
from duly.worker.targets.webhook import Permits, Sender

_SECONDS = 20.0  # for one mail, or one call of Apprise; the run's own timeout is longer
T = TypeVar("T")


class Notifier(UsesDatabase):
    """Delivers notifications."""

    def __init__(self, caller: Caller, keyring: Keyring, sender: Sender, permits: Permits, apprise: Apprise) -> None:
        self.handler = TargetHandler(NOTIFICATION, Kind.WEBHOOK, self.attempt)
        self._caller = caller
        self._keyring = keyring
        self._sender = sender
        self._permits = permits
        self._apprise = apprise

    async def attempt(self, context: RunContext, run: Run) -> Outcome | Deferral:
        """Deliver once."""
        database, loop = self._database, self._loop
        if database is None or loop is None:
            return Failed("the worker is stopping")
        try:
            found = await _on(loop, message_of(database, run.run_id, SHOWN_MAX))
            if found is None or found[0] != run.tenant:
                return Failed("its record is no longer kept, so nothing is known of what to send", retryable=False)
            message = found[1]
            channel = await _on(loop, opened_channel(database, self._keyring, run.tenant, message.channel))
        except NotFound as error:
            return Failed(str(error), retryable=False)
        except (Refused, Unavailable) as error:
            return Failed(str(error))
        return await self._deliver(context, run, message, channel)

    async def _deliver(
        self, context: RunContext, run: Run, message: Message, channel: ChannelSpec
    ) -> Outcome | Deferral:
        try:
            match channel:
                case WebhookChannel():
                    return await self._to_webhook(context, run, message, channel)
                case EmailChannel():
                    return await self._to_mail_server(run, message, channel)
                case AppriseChannel():
                    scheme = scheme_of(channel.url)
                    await self._apprise.deliver(scheme, channel.url, message.title, message.body, seconds=_SECONDS)
                    return Succeeded()
        except NotAllowed as error:
            return Failed(str(error), retryable=False)
        except (InvalidOption, OutboundError) as error:
            return Failed(str(error), retryable=not (isinstance(error, MailRefused) and error.is_final))

    async def _to_webhook(
        self, context: RunContext, run: Run, message: Message, channel: WebhookChannel
    ) -> Outcome | Deferral:
        policy = msgspec.structs.replace(run.policy, target=webhook_of(channel))
        payload = msgspec.json.encode(message.event).decode()
        outcome = await self._sender.attempt(context, msgspec.structs.replace(run, policy=policy, payload=payload))
        return Succeeded() if isinstance(outcome, Awaited) else outcome  # nobody waits for what a receiver makes of it

    async def _to_mail_server(self, run: Run, message: Message, channel: EmailChannel) -> Outcome | Deferral:
        origin = f"smtp://{channel.host}:{channel.port}"
        if not await self._permits.enter(run.tenant, origin, is_retry=is_retry(run)):
            return WaitForDestination(origin)
        verdict = Verdict.IGNORED
        try:
            refused = await deliver(self._caller, mail_of(message, channel), tenant=run.tenant, seconds=_SECONDS)
            verdict = Verdict.HEALTHY
        except (NotAllowed, InvalidOption):
            raise
        except MailRefused:
            verdict = Verdict.HEALTHY  # it answered
            raise
        except OutboundError:
            verdict = Verdict.FAILING
            raise
        finally:
            self._permits.leave(run.tenant, origin, verdict)
        return Succeeded(msgspec.json.encode({"refused_recipients": refused}).decode() if refused else None)


def mail_of(message: Message, channel: EmailChannel) -> Mail:
    """Write a message as a mail. Its id is the delivery's, so a mailbox shows a repeated one once."""
    mail = EmailMessage(policy=SMTP)
    mail["From"], mail["To"], mail["Subject"] = channel.sender, ", ".join(channel.recipients), message.title
    mail["Date"] = format_datetime(message.created_at)
    mail["Message-ID"] = f"<{message.delivery_id}@{channel.sender.rpartition('@')[2]}>"
    mail["Auto-Submitted"] = "auto-generated"
    mail.set_content(message.body)
    return Mail(
        channel.host, channel.port, channel.security, channel.user, channel.password, channel.sender,
        channel.recipients, mail.as_bytes(),
    )  # fmt: skip


async def _on(loop: asyncio.AbstractEventLoop, asking: Coroutine[Any, Any, T]) -> T:
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(asking, loop))
