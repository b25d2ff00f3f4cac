"""Webhooks: one signed request, and the meaning of its response for the run.

Its dependencies are protocols: who may call now (`Permits`), and the signing keys (`Secrets`). All of it lives on the
handlers' loop.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Protocol
from uuid import UUID

import msgspec

from duly import __version__
from duly.clock import SystemClock, moment_of
from duly.domain.diagnosis.figures import Histogram
from duly.domain.errors import DulyError, InvalidOption, Refused
from duly.domain.runs.callback_token import HEADER, CallbackTokens
from duly.domain.runs.lifecycle import is_retry
from duly.domain.runs.options import RunPolicy
from duly.domain.runs.outcome import Awaited, Deferral, Failed, Outcome, Succeeded, TimedOut, WaitForDestination
from duly.domain.runs.payload import RESULT_BYTES_MAX
from duly.domain.runs.retry_rules import kinds_of
from duly.domain.runs.run import Run
from duly.domain.targets.checks import callback_seconds
from duly.domain.targets.circuit import Verdict
from duly.domain.targets.target import WEBHOOK, Webhook
from duly.domain.targets.webhook_answer import Taken, excerpt, is_ailing, read_retry_after, result_of, take
from duly.domain.targets.webhook_request import WITHOUT_BODY, check_headers, check_method
from duly.domain.targets.webhook_url import WebhookUrl, read_url
from duly.domain.tenancy.sealed_options import open_target
from duly.domain.tenancy.sealing import FindKeyring, no_keyring
from duly.outbound import traces
from duly.outbound.calling import Caller, DeadlinePassed
from duly.outbound.errors import NotAllowed, OutboundError
from duly.outbound.signing import sign
from duly.outbound.transport import Answer, Request
from duly.store.connection.database import Database
from duly.worker.context import RunContext
from duly.worker.slots import Kind
from duly.worker.targets import TargetHandler

TIMEOUT_SECONDS_DEFAULT = 30.0
WITHIN_SECONDS_DEFAULT = 86_400.0  # that a receiver may take to settle a run
_USER_AGENT = f"duly/{__version__}"
_TOO_LONG = (
    f"its answer was longer than {RESULT_BYTES_MAX:,} bytes and only its beginning is kept;"
    " let it answer with a reference to what is stored elsewhere"
)
# The request's deadline comes a little before the attempt's, so that its log line describes the destination.
_BEFORE_SECONDS = 0.01
_SECONDS_MIN = 0.001
_UNSIGNED_SECONDS = 1.0
_NO_PAYLOAD = (None, "{}")
_CLASSES = ("2xx", "3xx", "4xx", "5xx", "timeout", "unreachable")
_UNREACHED = kinds_of(ConnectionError)


class CannotSign(DulyError):
    """The signing key cannot be read now, through no fault of the job or its destination."""


class Secrets(Protocol):
    """The signing keys of destinations."""

    async def of(self, tenant: int, origin: str) -> Sequence[bytes]:
        """Return the valid secrets, the newest first; a destination is created on first use. Raises CannotSign."""
        ...

    def are_known(self, tenant: int, origin: str) -> bool:
        """Return whether a destination's keys have been read, so that it exists."""
        ...

    async def are_kept(self, tenant: int, origin: str) -> bool:
        """Return whether a destination exists; True if that cannot be known."""
        ...


class Permits(Protocol):
    """The admission of requests to destinations."""

    async def enter(self, tenant: int, origin: str, *, is_retry: bool = False) -> bool:
        """Ask for a slot. False: not now, and the run waits in `blocked`. After True, call `leave`."""
        ...

    def is_probing(self, tenant: int, origin: str) -> bool:
        """Return whether a request to a destination is a probe now."""
        ...

    def leave(self, tenant: int, origin: str, verdict: Verdict, retry_after: float | None = None) -> None:
        """Return the slot, and report the health of the destination; `retry_after` is in seconds, if it asked for it."""
        ...


class ReceiverCallbacks:
    """Runs that their receiver settles later, over the API: each attempt has a token, with which it reports the outcome."""

    def __init__(self, tokens: CallbackTokens) -> None:
        self._tokens = tokens

    async def headers_for(self, run: Run, target: Webhook) -> Mapping[str, str]:
        """Return the header with the token."""
        return {HEADER: self._tokens.make(run.run_id, run.fence)}

    def awaited(self, run: Run, target: Webhook) -> Awaited:
        """Await the outcome of a run whose receiver has answered 202 and repeated the token, for as long as its target says."""
        within = target.callback_within_seconds
        return Awaited(WITHIN_SECONDS_DEFAULT if within is None else callback_seconds(within))


class _Call(msgspec.Struct, frozen=True):
    """The request of one attempt, read and checked."""

    run: Run
    target: Webhook
    url: WebhookUrl
    seconds: float
    began: float


class _End(msgspec.Struct, frozen=True):
    """The result of one attempt: for the run, and for its destination."""

    outcome: Outcome | Deferral
    verdict: Verdict
    retry_after: timedelta | None = None


class Sender:
    """Sends webhooks; a service of a worker, which signs by the database clock.

    A receiver refuses a signature that is minutes old, and the clock of this host may be wrong.
    """

    def __init__(
        self,
        caller: Caller,
        secrets: Secrets,
        permits: Permits,
        *,
        callbacks: ReceiverCallbacks | None = None,
        keyring: FindKeyring = no_keyring,
        now: Callable[[], datetime] | None = None,
    ) -> None:
        self._caller = caller
        self._secrets = secrets
        self._permits = permits
        self._callbacks = callbacks
        self._keyring = keyring
        self._clock = SystemClock()
        self._now = now or _not_begun
        self._durations = {name: Histogram() for name in _CLASSES}

    async def begin(self, database: Database, worker_id: UUID) -> None:
        """Sign by the clock of this database from now on, unless tests have named another."""
        if self._now is _not_begun:
            self._now = lambda: moment_of(database.clock.now())

    async def end(self) -> None:
        """Keep the clock: the next life has the same one."""

    @property
    def handler(self) -> TargetHandler:
        """The handler that a worker offers."""
        return TargetHandler(WEBHOOK, Kind.WEBHOOK, self.attempt, applies_timeout=True, durations=self._durations)

    async def attempt(self, context: RunContext, run: Run) -> Outcome | Deferral:
        """Send the run's webhook once."""
        began, policy = self._clock.monotonic(), run.policy
        if not isinstance(policy.target, Webhook):
            return Failed("the run names no webhook; submit it with a target of type webhook", retryable=False)
        try:
            target = open_target(policy.target, run.tenant, self._keyring)
        except Refused as error:
            return Failed(f"a secret of the webhook cannot be had: {error}")
        try:
            call = _Call(run, target, read_url(target.url), _seconds(policy), began)
            # Checked again: a run that was inserted by SQL passed no API.
            check_method(target.method)
            check_headers(target.headers)
            self._caller.check(target.url)  # before it takes a slot and a secret: it is no destination
        except InvalidOption as error:
            return Failed(str(error), retryable=False)
        except NotAllowed as error:
            return _forbidden(error)
        return await self._to_nowhere(context, call) or await self._within_permit(context, call)

    async def _to_nowhere(self, context: RunContext, call: _Call) -> Outcome | Deferral | None:
        """Fail a run whose address may not be called, unless it was before: otherwise it would become a destination."""
        tenant, origin = call.run.tenant, call.url.origin
        if self._secrets.are_known(tenant, origin):
            return None
        try:
            await self._caller.look_up(call.target.url, tenant=tenant, seconds=max(self._left(call), _SECONDS_MIN))
        except OutboundError as error:
            if await self._secrets.are_kept(tenant, origin):
                return None  # its health is known from its other callers
            self._log(context, call, "webhook not answered", reason=str(error))
            return _unanswered(error, call).outcome
        return None

    async def _within_permit(self, context: RunContext, call: _Call) -> Outcome | Deferral:
        tenant, origin = call.run.tenant, call.url.origin
        if not await self._permits.enter(tenant, origin, is_retry=is_retry(call.run)):
            return WaitForDestination(origin)
        # The timeout counts from here: a receiver is not blamed for our waiting.
        call = msgspec.structs.replace(call, began=self._clock.monotonic())
        verdict, wait, is_probe = Verdict.IGNORED, None, self._permits.is_probing(tenant, origin)
        try:
            end = await self._send_in_time(context, call)
            verdict, wait = end.verdict, end.retry_after
            return _as_probe(end.outcome) if is_probe and verdict is Verdict.FAILING else end.outcome
        finally:
            self._permits.leave(tenant, origin, verdict, None if wait is None else wait.total_seconds())

    async def _send_in_time(self, context: RunContext, call: _Call) -> _End:
        scope = asyncio.timeout(call.seconds)
        try:
            async with scope:
                return await self._send(context, call)
        except TimeoutError:
            if not scope.expired():
                raise
            return _timed_out(call)

    def _left(self, call: _Call) -> float:
        return call.seconds - (self._clock.monotonic() - call.began) - _BEFORE_SECONDS

    async def _send(self, context: RunContext, call: _Call) -> _End:
        extra = await self._callbacks.headers_for(call.run, call.target) if self._callbacks else {}
        try:
            secrets = await self._secrets.of(call.run.tenant, call.url.origin)
        except CannotSign:
            return await self._unsigned(context, call)
        request = build_request(call.run, call.target, secrets, int(self._now().timestamp()), extra)
        sent_at, moment = self._clock.monotonic(), self._now().timestamp()
        try:
            answer = await self._caller.call(
                call.target.url, request, tenant=call.run.tenant, seconds=max(self._left(call), _SECONDS_MIN)
            )
            self._observe(f"{answer.status // 100}xx", sent_at)
        except OutboundError as error:
            self._observe("timeout" if isinstance(error, DeadlinePassed) else "unreachable", sent_at)
            traces.called(call.run, moment, self._now().timestamp(), None, type(error).__name__)
            self._log(context, call, "webhook not answered", reason=str(error))
            return _unanswered(error, call)
        traces.called(call.run, moment, self._now().timestamp(), answer.status, None)
        self._log(context, call, "webhook answered", status=answer.status, bytes=len(answer.body))
        return self._taken(call, answer, extra)

    def _observe(self, kind: str, sent_at: float) -> None:
        if (durations := self._durations.get(kind)) is not None:
            durations.observe(self._clock.monotonic() - sent_at)

    async def _unsigned(self, context: RunContext, call: _Call) -> _End:
        """Postpone the run: nothing was sent, so no attempt was made."""
        self._log(context, call, "webhook put off: its signing secret cannot be read now")
        # A waiting run goes on at the next tick: holding the slot for a moment keeps it from looping.
        await self._clock.sleep(min(_UNSIGNED_SECONDS, max(0.0, self._left(call) / 2)))
        return _End(WaitForDestination(call.url.origin), Verdict.IGNORED)

    def _taken(self, call: _Call, answer: Answer, extra: Mapping[str, str]) -> _End:
        status = answer.status
        verdict = Verdict.FAILING if is_ailing(status) else Verdict.HEALTHY
        match take(status, call.target):
            case Taken.DONE if status == 202 and self._callbacks and _repeats_token(answer, extra):
                return _End(self._callbacks.awaited(call.run, call.target), verdict)
            case Taken.DONE:
                return _End(_succeeded(answer), verdict)
            case Taken.RETRY:
                wait = read_retry_after(answer.headers.get("Retry-After"), self._now())
                failed = Failed(f"it answered {status}", detail=_detail(call, answer), retry_after=wait, status=status)
                return _End(failed, verdict, wait)
            case Taken.FINAL:
                reason = _final_reason(status)
                return _End(Failed(reason, retryable=False, detail=_detail(call, answer), status=status), verdict)

    def _log(self, context: RunContext, call: _Call, message: str, **fields: object) -> None:
        milliseconds = round((self._clock.monotonic() - call.began) * 1_000)
        context.log.info(message, to=call.url.shown, ms=milliseconds, **fields)


def _not_begun() -> datetime:
    raise AssertionError("a webhook was sent before the worker had read the database's clock")


def build_request(
    run: Run, target: Webhook, secrets: Sequence[bytes], timestamp: int, extra: Mapping[str, str]
) -> Request:
    """Build the signed request of one attempt. Our headers come last, so that nothing of a job overrides them."""
    method = target.method.upper()
    body = b"" if method in WITHOUT_BODY and run.payload in _NO_PAYLOAD else (run.payload or "{}").encode()
    run_id = str(run.run_id)
    signature = sign(secrets, run_id, timestamp, body)
    headers = {"Content-Type": "application/json"} if body else {}
    names = {name.lower() for name in target.headers}
    headers = {name: value for name, value in headers.items() if name.lower() not in names} | dict(target.headers)
    headers |= {
        "User-Agent": _USER_AGENT,
        "X-Job-Id": str(run.job_id),
        "X-Run-Id": run_id,
        "X-Attempt": str(run.attempt),
        "X-Fence": str(run.fence),
        "X-Scheduled-At": run.scheduled_at.astimezone(UTC).isoformat().replace("+00:00", "Z"),
        "X-Scheduler-Signature": signature,
        "webhook-id": run_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": signature,
    }
    if run.metadata.request_id is not None:
        headers["X-Request-ID"] = run.metadata.request_id
    if (traceparent := traces.traceparent_for(run)) is not None:
        headers["traceparent"] = traceparent
    return Request(method, headers | dict(extra), body)


def _seconds(policy: RunPolicy) -> float:
    return TIMEOUT_SECONDS_DEFAULT if policy.timeout_seconds is None else policy.timeout_seconds


def _timed_out(call: _Call) -> _End:
    return _End(TimedOut(call.seconds, _detail_to(call)), Verdict.FAILING)


def _detail_to(call: _Call) -> str:
    return msgspec.json.encode({"to": call.url.shown}).decode()


def _unanswered(error: OutboundError, call: _Call) -> _End:
    to = _detail_to(call)
    match error:
        case DeadlinePassed():
            return _timed_out(call)
        case NotAllowed():
            return _End(_forbidden(error, to), Verdict.IGNORED)
    return _End(Failed(str(error), detail=to, kinds=_UNREACHED), Verdict.FAILING)


def _forbidden(error: NotAllowed, detail: str | None = None) -> Failed:
    """Fail the attempt; nothing was sent. The address was allowed at submit, so another worker's settings may allow it."""
    reason = f"{error}; so say the settings of the worker that tried it; another worker's may allow it"
    return Failed(reason, detail=detail, kinds=_UNREACHED)


def _as_probe(outcome: Outcome | Deferral) -> Outcome | Deferral:
    """Mark a failure as a probe of its destination."""
    return msgspec.structs.replace(outcome, probe=True) if isinstance(outcome, Failed | TimedOut) else outcome


def _repeats_token(answer: Answer, extra: Mapping[str, str]) -> bool:
    sent, received = extra.get(HEADER), answer.headers.get(HEADER)
    return bool(sent and received) and hmac.compare_digest(str(sent).encode(), str(received).encode())


def _succeeded(answer: Answer) -> Succeeded:
    result = result_of(answer.status, answer.body, is_whole=answer.is_whole, is_packed=_is_packed(answer))
    return Succeeded(result, reason=None if answer.is_whole else _TOO_LONG)


def _detail(call: _Call, answer: Answer) -> str:
    """Encode the detail of an attempt as JSON; of the address, only what may be shown."""
    body = "(compressed)" if _is_packed(answer) else excerpt(answer.body)
    return msgspec.json.encode({"to": call.url.shown, "status": answer.status, "body": body}).decode()


def _is_packed(answer: Answer) -> bool:
    return answer.headers.get("Content-Encoding", "identity").strip().lower() not in ("", "identity")


def _final_reason(status: int) -> str:
    if 300 <= status < 400:
        return f"it answered {status}: redirects are not followed; name the address that it leads to"
    return f"it answered {status}, which is final unless the job says otherwise"
