"""What a worker does besides running its app: the targets that its settings allow."""

from __future__ import annotations

from duly.cli import programs
from duly.cli.egress import caller_of
from duly.cli.keyring import keyring_of
from duly.clock import Rng
from duly.domain.callback_token import CallbackTokens
from duly.domain.sealing import Keyring
from duly.log import Log
from duly.outbound.calling import Caller
from duly.settings import Settings
from duly.worker.targets import Part, TargetHandler, Targets


def targets_of(settings: Settings, name: str) -> Targets:
    """Build the targets that a worker of this name with these settings offers. Raises Refused for what cannot work here."""
    handlers, parts = programs.of(settings, name)
    keyring = keyring_of(settings) if settings.webhooks else None
    if keyring is None:
        return Targets(handlers, parts)
    caller = caller_of(settings)
    handler, shared = _webhooks(caller, keyring)
    return Targets([*handlers, handler], [*parts, *shared], [caller.close])


def _webhooks(caller: Caller, keyring: Keyring) -> tuple[TargetHandler, list[Part]]:
    from duly.worker.targets.callbacks import ReceiverCallbacks
    from duly.worker.targets.permits import Permits
    from duly.worker.targets.secrets import Secrets
    from duly.worker.targets.webhook import Sender

    rng = Rng()
    permits, secrets = Permits(rng=rng, log=Log("destinations")), Secrets(keyring, rng=rng)
    sender = Sender(caller, secrets, permits, callbacks=ReceiverCallbacks(CallbackTokens(keyring)))
    return sender.handler, [permits, secrets]
