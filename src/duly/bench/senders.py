"""Senders of webhooks to a sink, signed and guarded: as a worker, or the sending alone, for comparison."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from duly.clock import Rng, SystemClock, host_now
from duly.domain.runs.callback_token import CallbackTokens
from duly.domain.targets.circuit import Verdict
from duly.domain.tenancy.sealing import new_key_line, read_keyring
from duly.log import Log
from duly.outbound.calling import Caller
from duly.outbound.egress import Egress, read_allowance
from duly.outbound.guard import Guard
from duly.outbound.resolver import SystemResolver
from duly.outbound.transport import PinnedTransport
from duly.worker.targets import Targets
from duly.worker.targets.permits import Permits
from duly.worker.targets.secrets import Secrets
from duly.worker.targets.webhook import ReceiverCallbacks, Sender


def webhooks_to(ports: Iterable[int]) -> Targets:
    """Build what a worker offers: permits that all workers share, secrets that are kept sealed, and callbacks."""
    rng = Rng()
    keyring = read_keyring(new_key_line(rng.secret).reveal(), "the benchmark's keyring")
    permits, secrets = Permits(rng=rng, log=Log("destinations")), Secrets(keyring, rng=rng)
    caller = _caller_to(ports)
    tokens = CallbackTokens(keyring)
    sender = Sender(caller, secrets, permits, callbacks=ReceiverCallbacks(tokens), keyring=lambda: keyring)
    return Targets([sender.handler], [permits, secrets, sender], [caller.close])


def sender_alone(port: int) -> tuple[Caller, Sender]:
    """Build what sends and needs no database: everybody may call, and everything is signed with the same secret."""
    caller = _caller_to([port])
    return caller, Sender(caller, _ConstantSecret(), _Unlimited(), now=host_now)


def _caller_to(ports: Iterable[int]) -> Caller:
    egress = Egress(allowances=tuple(read_allowance(f"127.0.0.1:{port}") for port in ports))
    return Caller(Guard(egress, SystemResolver(SystemClock()), Log("outbound")), PinnedTransport(), Log("outbound"))


class _ConstantSecret:
    async def of(self, tenant: int, origin: str) -> Sequence[bytes]:
        return (bytes(range(32)),)

    def are_known(self, tenant: int, origin: str) -> bool:
        return True

    async def are_kept(self, tenant: int, origin: str) -> bool:
        return True


class _Unlimited:
    async def enter(self, tenant: int, origin: str, *, is_retry: bool = False) -> bool:
        return True

    def is_probing(self, tenant: int, origin: str) -> bool:
        return False

    def leave(self, tenant: int, origin: str, verdict: Verdict, retry_after: float | None = None) -> None:
        return
