"""Targets that a worker offers besides its app, as its settings allow."""

from __future__ import annotations

from duly.cli.up import programs
from duly.cli.up.egress import caller_of
from duly.clock import Rng
from duly.domain.runs.callback_token import CallbackTokens
from duly.domain.tenancy.sealing import Keyring
from duly.log import Log
from duly.outbound.calling import Caller
from duly.outbound.shapes import egress_of
from duly.settings import Settings
from duly.store.tenancy.keyring import keyring_of
from duly.worker.slots import Kind
from duly.worker.targets import Part, TargetHandler, Targets
from duly.worker.targets.workflow import Starter


def targets_of(settings: Settings, name: str) -> Targets:
    """Build the targets that a worker of this name with these settings offers. Raises Refused for what cannot work here."""
    programmes, owned = programs.of(settings, name)
    keyring = keyring_of(settings) if settings.webhooks else None
    # Starting a workflow takes a statement, so it goes along with what waits elsewhere, and needs no claims of its own.
    starter = Starter(Kind.LOOP if keyring is None else Kind.WEBHOOK)
    handlers, parts = [*programmes, starter.handler], [*owned, starter]
    if keyring is None:
        return Targets(handlers, parts)
    caller = caller_of(settings)
    calling, shared = _calling(settings, caller, keyring)
    return Targets([*handlers, *calling], [*parts, *shared], [caller.close])


def _calling(settings: Settings, caller: Caller, keyring: Keyring) -> tuple[list[TargetHandler], list[Part]]:
    from duly.outbound.apprise import Apprise
    from duly.worker.targets.notification import Notifier
    from duly.worker.targets.permits import Permits
    from duly.worker.targets.secrets import Secrets
    from duly.worker.targets.webhook import ReceiverCallbacks, Sender

    rng = Rng()
    permits, secrets = Permits(rng=rng, log=Log("destinations")), Secrets(keyring, rng=rng)
    tokens = CallbackTokens(keyring)
    sender = Sender(caller, secrets, permits, callbacks=ReceiverCallbacks(tokens), keyring=lambda: keyring)
    notifier = Notifier(caller, keyring, sender, permits, Apprise(settings.apprise_schemes, egress_of(settings)))
    return [sender.handler, notifier.handler], [permits, secrets, sender, notifier]
