"""A webhook in a worker's hands: what is sent, and what each answer makes of the run."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from uuid import UUID

import msgspec
import pytest
from standardwebhooks import Webhook as Reference

from duly import __version__
from duly.clock import Rng
from duly.domain.fields import non_defaults
from duly.domain.runs.callback_token import CallbackTokens
from duly.domain.runs.options import RunMetadata, RunPolicy, options_of
from duly.domain.runs.outcome import Awaited, Failed, Succeeded, TimedOut, WaitForDestination
from duly.domain.runs.retry import Retry
from duly.domain.runs.run import TENANT_DEFAULT, Run
from duly.domain.targets.circuit import Verdict
from duly.domain.targets.spec import spec_of_target
from duly.domain.targets.target import WEBHOOK, Webhook
from duly.domain.targets.webhook_secret import show_secret
from duly.domain.tenancy.sealed_options import seal_options
from duly.domain.tenancy.sealing import KEY_BYTES, Keyring, new_key_line, read_keyring
from duly.log import Log
from duly.moves.admin.destinations import limit
from duly.moves.cancel import CancelAnswer, cancel_run
from duly.store.boxes import runs
from duly.store.tables import destinations
from duly.webhooks import verify
from duly.worker.context import RunContext
from duly.worker.handlers import Registry
from duly.worker.targets import Targets
from duly.worker.targets.permits import Permits
from duly.worker.targets.webhook import CannotSign, ReceiverCallbacks, Sender
from tests.outbound.servers import Names, a_caller, answer, answering, read_request, serving
from tests.worker.stories import attempts_of, ended, submitted, until, working

SECRET, OLD = bytes(range(32)), bytes(range(32, 64))
NOW = datetime(2026, 11, 2, 9, 0, tzinfo=UTC)
HOOK = Webhook("https://hooks.example/in")
OK = answer(200, b'{"ok":true}', "Content-Type: application/json")
RUN = Run(
    tid=(0, 1),
    fence=41,
    run_id=UUID(int=2),
    job_id=UUID(int=1),
    scheduled_at=datetime(2026, 11, 2, 9, 30, tzinfo=UTC),
    due_at=datetime(2026, 11, 2, 9, 30, tzinfo=UTC),
    previous_scheduled_at=None,
    generation=1,
    tenant=7,
    attempt=3,
    priority=5,
    losses=0,
    suspect=False,
    payload_stored=False,
    queue="default",
    handler=WEBHOOK,
    payload='{"customer": 7}',
)


class Lines:
    """A desk that keeps what a run logs."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str, dict]] = []

    def log(self, run, level, message, fields):
        self.lines.append((level, message, fields))


class ConstantSecrets:
    """The same secrets for everybody."""

    def __init__(self, *secrets: bytes, is_new: bool = False) -> None:
        self._secrets = secrets
        self._is_new = is_new

    async def of(self, tenant, origin):
        return self._secrets

    def are_known(self, tenant, origin):
        return not self._is_new

    async def are_kept(self, tenant, origin):
        return not self._is_new


class Door:
    """Permits that can be shut, and remember what they were told."""

    def __init__(self, *, is_open: bool = True, is_ailing: bool = False) -> None:
        self.is_open = is_open
        self.is_ailing = is_ailing
        self.retries = 0
        self.entered: list[tuple[int, str]] = []
        self.left: list[tuple[int, str, Verdict, float | None]] = []

    async def enter(self, tenant, origin, *, is_retry=False):
        self.retries += is_retry
        if self.is_open:
            self.entered.append((tenant, origin))
        return self.is_open

    def is_probing(self, tenant, origin):
        return self.is_ailing

    def leave(self, tenant, origin, verdict, retry_after=None):
        self.left.append((tenant, origin, verdict, retry_after))


class Crowd(Door):
    """So many wait that nobody has a turn."""

    async def enter(self, tenant, origin, *, is_retry=False):
        await asyncio.sleep(60)


class Attempt:
    """One attempt of a webhook, and what it left behind."""

    def __init__(self, door: Door | None = None) -> None:
        self.services = Lines()
        self.door = door or Door()

    async def of(
        self, target, *, port=None, secrets=(SECRET,), callbacks=None, run=RUN, names=None, marked=None, **policy
    ):
        run = msgspec.structs.replace(run, metadata=RunMetadata(**marked or {}))
        run = msgspec.structs.replace(run, policy=RunPolicy(target=target, **policy))
        async with a_caller(*([f"127.0.0.1:{port}"] if port else []), names=names) as caller:
            sender = Sender(caller, ConstantSecrets(*secrets), self.door, callbacks=callbacks, now=lambda: NOW)
            return await sender.attempt(RunContext(run, self.services), run)  # type: ignore[arg-type]

    @property
    def verdict(self):
        [(tenant, _, verdict, _)] = self.door.left
        assert tenant == RUN.tenant
        return verdict


async def taken(status=200, body=b"", *headers, **target):
    """Send a webhook to a server that answers so."""
    attempt = Attempt()
    async with answering(answer(status, body, *headers)) as (port, asked):
        outcome = await attempt.of(Webhook(f"http://127.0.0.1:{port}/hook?key=geheim", **target), port=port)
    return outcome, attempt, asked.requests[0]


def headers_of(request: bytes) -> dict[str, str]:
    lines = request.split(b"\r\n\r\n")[0].decode().split("\r\n")[1:]
    pairs = [line.split(": ", 1) for line in lines]
    assert len({name.lower() for name, _ in pairs}) == len(pairs), "a header was sent twice"
    return dict(pairs)


async def test_webhook_request_identifies_its_run_and_is_signed():
    _, _, request = await taken()
    head, body = request.split(b"\r\n\r\n", 1)
    headers = headers_of(request)

    assert head.startswith(b"POST /hook?key=geheim HTTP/1.1\r\n")
    assert body == b'{"customer": 7}'
    assert {name: headers[name] for name in ("X-Job-Id", "X-Run-Id", "X-Attempt", "X-Fence", "X-Scheduled-At")} == {
        "X-Job-Id": str(RUN.job_id),
        "X-Run-Id": str(RUN.run_id),
        "X-Attempt": "3",
        "X-Fence": "41",
        "X-Scheduled-At": "2026-11-02T09:30:00Z",
    }
    assert headers["webhook-id"] == str(RUN.run_id)
    assert headers["X-Scheduler-Signature"] == headers["webhook-signature"]
    assert headers["Content-Type"] == "application/json"
    assert headers["User-Agent"] == f"duly/{__version__}"
    assert verify(body, headers, show_secret(SECRET), now=NOW).id == str(RUN.run_id)
    signature = Reference(show_secret(SECRET)).sign(headers["webhook-id"], NOW, body.decode())
    assert headers["webhook-signature"] == signature


async def test_while_a_secret_is_rotated_both_sign():
    async with answering(OK) as (port, asked):
        await Attempt().of(Webhook(f"http://127.0.0.1:{port}/"), port=port, secrets=(SECRET, OLD))
    headers = headers_of(asked.requests[0])
    for secret in (SECRET, OLD):
        verify(b'{"customer": 7}', headers, secret, now=NOW)


async def test_webhook_that_cannot_be_signed_waits_and_blames_no_destination():
    class Locked:
        def are_known(self, tenant, origin):
            return True

        async def of(self, tenant, origin):
            raise CannotSign("the keyring lacks k1")

    run = msgspec.structs.replace(RUN, policy=RunPolicy(target=HOOK, timeout_seconds=0.1))
    services, door = Lines(), Door()
    async with a_caller() as caller:
        outcome = await Sender(caller, Locked(), door).attempt(RunContext(run, services), run)  # type: ignore[arg-type]

    assert outcome == WaitForDestination("https://hooks.example")
    assert [verdict for _, _, verdict, _ in door.left] == [Verdict.IGNORED]
    assert "k1" not in repr(services.lines)


async def test_a_job_adds_headers_and_overrides_none_of_ours():
    own = {"Authorization": "Bearer x", "content-type": "application/cloudevents+json"}
    _, _, request = await taken(headers=own)
    assert headers_of(request).items() >= own.items()

    for name in ("X-Run-Id", "Host", "webhook-signature", "Content-Length", "User-Agent"):
        attempt = Attempt()
        outcome = await attempt.of(Webhook("http://127.0.0.1:1/", headers={name: "x"}), port=1)
        assert isinstance(outcome, Failed)
        assert not outcome.retryable
        assert attempt.door.entered == []


async def test_webhook_forwards_the_request_id_and_the_traceparent():
    async with answering(OK) as (port, asked):
        await Attempt().of(
            Webhook(f"http://127.0.0.1:{port}/"), port=port, marked={"request_id": "r-1", "traceparent": "00-aa-bb-01"}
        )
    headers = headers_of(asked.requests[0])
    assert (headers["X-Request-ID"], headers["traceparent"]) == ("r-1", "00-aa-bb-01")


@pytest.mark.parametrize(
    ("method", "payload", "body"),
    [
        ("PUT", '{"a":1}', b'{"a":1}'),
        ("post", None, b"{}"),
        ("GET", "{}", b""),
        ("GET", None, b""),
        ("DELETE", '{"a":1}', b'{"a":1}'),
    ],
)
async def test_the_payload_is_the_body(method, payload, body):
    run = msgspec.structs.replace(RUN, payload=payload)
    async with answering(OK) as (port, asked):
        await Attempt().of(Webhook(f"http://127.0.0.1:{port}/", method=method), port=port, run=run)
    [request] = asked.requests
    assert request.startswith(method.upper().encode())
    assert request.split(b"\r\n\r\n", 1)[1] == body
    verify(body, headers_of(request), SECRET, now=NOW)


@pytest.mark.parametrize(
    ("body", "headers", "result"),
    [
        (b'{"ok": true}', (), {"ok": True}),
        (b"[1,2]", (), [1, 2]),
        (b"", (), {"status": 200}),
        (b"thanks", (), {"status": 200, "body": "thanks"}),
        (b"\xff\x00", (), {"status": 200, "body": "��"}),
        (b'{"a":"\\u0000"}', (), {"status": 200, "body": '{"a":"\\u0000"}'}),
        (b"[" * 100 + b"]" * 100, (), {"status": 200, "body": "[" * 100 + "]" * 100}),
        (b"[" * 20_000, (), {"status": 200, "body": "[" * 1_000 + "…"}),
        (b"NaN", (), {"status": 200, "body": "NaN"}),
        (b'{"a":1}', ("Content-Encoding: gzip",), {"status": 200, "body": "(compressed)"}),
        (b'"' + b"x" * 65_600 + b'"', (), {"status": 200, "body": '"' + "x" * 999 + "…"}),
    ],
)
async def test_webhook_response_becomes_the_result(body, headers, result):
    outcome, attempt, _ = await taken(200, body, *headers)
    assert isinstance(outcome, Succeeded)
    assert outcome.result is not None
    assert msgspec.json.decode(outcome.result) == result
    assert (outcome.reason is not None) == (len(body) > 65_536), "and it says that it is not all"
    assert attempt.verdict is Verdict.HEALTHY


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
async def test_2xx_is_done(status):
    outcome, attempt, _ = await taken(status)
    assert isinstance(outcome, Succeeded)
    assert attempt.verdict is Verdict.HEALTHY


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504, 599])
async def test_webhook_is_retried_after_a_transient_status(status):
    outcome, attempt, _ = await taken(status, b"out of order")
    assert isinstance(outcome, Failed)
    assert outcome.detail is not None
    detail = msgspec.json.decode(outcome.detail)
    assert detail.pop("to").endswith("/hook?…"), "the query may hold a secret"
    assert detail == {"status": status, "body": "out of order"}
    assert outcome == Failed(f"it answered {status}", detail=outcome.detail, status=status)
    assert attempt.verdict is Verdict.FAILING


@pytest.mark.parametrize("status", [300, 301, 302, 304, 307, 308, 400, 401, 403, 404, 409, 410, 413, 422, 451, 499])
async def test_everything_else_is_final(status):
    outcome, attempt, _ = await taken(status, b"no" if status != 304 else b"", "Location: http://127.0.0.1:1/")
    assert isinstance(outcome, Failed)
    assert not outcome.retryable
    assert str(status) in outcome.reason
    assert attempt.verdict is Verdict.HEALTHY


@pytest.mark.parametrize(
    ("status", "target", "kind"),
    [
        (404, {"retry": (404,)}, "again"),
        (302, {"retry": (302,)}, "again"),
        (500, {"final": (500,)}, "final"),
        (429, {"final": (429,)}, "final"),
        (200, {"retry": (200,)}, "again"),
        (204, {"final": (204,)}, "final"),
        (404, {"retry": (404,), "final": (404,)}, "again"),
    ],
)
async def test_a_job_may_take_a_status_otherwise(status, target, kind):
    outcome, _, _ = await taken(status, b"", **target)
    assert isinstance(outcome, Failed)
    assert outcome.retryable == (kind == "again")


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("120", 120),
        (" 7 ", 7),
        ("0", 0),
        ("99999999", 86_400),
        ("9" * 400, 86_400),
        ("Mon, 02 Nov 2026 09:01:40 GMT", 100),
        ("Mon, 02 Nov 2026 10:01:40 +0100", 100),
        ("Mon, 02 Nov 2026 08:00:00 GMT", 0),
        ("Tue, 02 Nov 2027 09:00:00 GMT", 86_400),
        ("soon", None),
        ("-5", None),
        ("1.5", None),
        ("", None),
        ("Mon, 99 Nov 2026 09:01:40 GMT", None),
    ],
)
async def test_retry_after_is_honoured_up_to_a_day(value, seconds):
    outcome, attempt, _ = await taken(503, b"", f"Retry-After: {value}")
    assert isinstance(outcome, Failed)
    assert outcome.retry_after == (None if seconds is None else timedelta(seconds=seconds))
    assert attempt.door.left[0][3] == seconds


async def test_a_receiver_that_takes_too_long_is_timed_out():
    async def stay_silent(reader, writer):
        await asyncio.sleep(60)

    attempt = Attempt()
    async with serving(stay_silent) as port:
        outcome = await attempt.of(Webhook(f"http://127.0.0.1:{port}/"), port=port, timeout_seconds=0.2)
    assert outcome == TimedOut(0.2, f'{{"to":"http://127.0.0.1:{port}/"}}')
    assert attempt.verdict is Verdict.FAILING


async def test_delayed_worker_still_blames_a_receiver_that_exceeds_its_deadline():
    """Both deadlines, the request's and the attempt's, are over when the loop looks again."""

    async def stay_silent(reader, writer):
        await asyncio.sleep(60)

    attempt = Attempt()
    async with serving(stay_silent) as port:
        asyncio.get_running_loop().call_later(0.1, time.sleep, 0.4)
        outcome = await attempt.of(Webhook(f"http://127.0.0.1:{port}/"), port=port, timeout_seconds=0.3)
    assert isinstance(outcome, TimedOut)
    assert attempt.verdict is Verdict.FAILING


async def test_the_wait_for_a_slot_is_no_part_of_the_timeout():
    class Slow(Door):
        async def enter(self, tenant, origin, *, is_retry=False):
            await asyncio.sleep(0.3)
            return await super().enter(tenant, origin, is_retry=is_retry)

    async def take_a_while(reader, writer):
        await read_request(reader)
        await asyncio.sleep(0.1)
        writer.write(OK)

    attempt = Attempt(Slow())
    async with serving(take_a_while) as port:
        outcome = await attempt.of(Webhook(f"http://127.0.0.1:{port}/"), port=port, timeout_seconds=0.25)
    assert isinstance(outcome, Succeeded)
    assert attempt.verdict is Verdict.HEALTHY


async def test_webhook_that_waits_for_a_permit_ends_when_it_is_cancelled():
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await Attempt(Crowd()).of(HOOK, timeout_seconds=30)


async def test_a_receiver_that_is_not_there_is_tried_again():
    attempt = Attempt()
    outcome = await attempt.of(Webhook("http://127.0.0.1:1/"), port=1)
    assert isinstance(outcome, Failed)
    assert outcome.retryable
    assert "127.0.0.1" not in outcome.reason
    assert attempt.verdict is Verdict.FAILING


@pytest.mark.parametrize("url", ["http://10.0.0.1/", "http://127.0.0.1:80/", "http://hooks.example:7401/"])
async def test_webhook_that_worker_settings_forbid_is_not_sent_and_may_be_retried(url):
    """Whoever took the job found that it may be called: so another worker may be allowed to."""
    attempt = Attempt()
    outcome = await attempt.of(Webhook(url))
    assert isinstance(outcome, Failed)
    assert outcome.retryable
    assert "is not allowed" in outcome.reason
    assert "the settings of the worker" in outcome.reason
    assert (attempt.door.entered, attempt.door.left) == ([], []), "it is no destination: none is made"


@pytest.mark.parametrize("url", ["ftp://hooks.example/", "http://me:secret@hooks.example/", "http://"])
async def test_webhook_that_no_settings_would_allow_fails_permanently(url):
    attempt = Attempt()
    outcome = await attempt.of(Webhook(url))
    assert isinstance(outcome, Failed)
    assert not outcome.retryable
    assert (attempt.door.entered, attempt.door.left) == ([], [])


async def test_a_name_that_leads_inside_ends_as_one_that_is_not_there():
    names = Names(inner_example=[["10.0.0.1"]])
    outcomes = [await Attempt().of(Webhook(f"http://{name}.example/"), names=names) for name in ("inner", "other")]
    assert all(isinstance(outcome, Failed) and outcome.retryable for outcome in outcomes)
    assert len({outcome.reason.replace("inner", "other") for outcome in outcomes if isinstance(outcome, Failed)}) == 1


@pytest.mark.parametrize("is_new", [True, False])
async def test_a_name_that_leads_nowhere_makes_no_destination_unless_it_was_one(is_new):
    """One that was called before is ill by it, and everybody else's runs wait; one that never was is nobody's business."""
    door, services = Door(), Lines()
    run = msgspec.structs.replace(RUN, policy=RunPolicy(target=Webhook("http://inner.example/")))
    async with a_caller(names=Names(inner_example=[["10.0.0.1"]])) as caller:
        sender = Sender(caller, ConstantSecrets(SECRET, is_new=is_new), door, now=lambda: NOW)
        outcome = await sender.attempt(RunContext(run, services), run)  # type: ignore[arg-type]

    assert isinstance(outcome, Failed)
    assert (outcome.retryable, "its host was not found" in outcome.reason) == (True, True)
    assert [verdict for *_, verdict, _ in door.left] == ([] if is_new else [Verdict.FAILING])
    assert [message for _, message, _ in services.lines] == ["webhook not answered"]


@pytest.mark.parametrize(
    "target",
    [Webhook("ftp://example.com/"), Webhook("http://example.com/", method="TRACE"), None],
)
async def test_invalid_webhook_target_fails_permanently(target):
    attempt = Attempt()
    outcome = await attempt.of(target)
    assert isinstance(outcome, Failed)
    assert not outcome.retryable
    assert attempt.door.entered == []


async def test_webhook_without_a_permit_waits_for_its_destination_and_sends_nothing():
    attempt = Attempt(Door(is_open=False))
    async with answering(OK) as (port, asked):
        outcome = await attempt.of(Webhook(f"http://127.0.0.1:{port}/"), port=port)
    assert outcome == WaitForDestination(f"http://127.0.0.1:{port}")
    assert (asked.connections, attempt.door.left, attempt.services.lines) == (0, [], [])


async def test_a_credential_that_does_not_open_fails_the_attempt_and_nothing_is_sent():
    ring = Keyring({"lost": bytes(KEY_BYTES)})
    attempt = Attempt()
    async with answering(OK) as (port, asked):
        clear = Webhook(f"http://127.0.0.1:{port}/?token=geheim", headers={"Authorization": "geheim"})
        options = seal_options(options_of(target=clear), RUN.tenant, lambda: ring)
        outcome = await attempt.of(options.policy.target, port=port)
    assert isinstance(outcome, Failed)
    assert outcome.retryable, "the key may be there for the next attempt"
    assert "a secret of the webhook cannot be had" in outcome.reason
    assert asked.connections == 0
    assert attempt.door.entered == [], "it is no fault of its destination"


class Later:
    """Callbacks of a test: a token is sent, and who repeats it settles later."""

    async def headers_for(self, run, target):
        return {"X-Callback-Token": "t-1"}

    def awaited(self, run, target):
        return WaitForDestination("later")


@pytest.mark.parametrize(
    ("status", "header", "is_awaited"),
    [
        (202, "X-Callback-Token: t-1", True),
        (202, "x-callback-token: t-1", True),
        (202, "X-Callback-Token: t-2", False),
        (202, "X-Other: t-1", False),
        (200, "X-Callback-Token: t-1", False),
    ],
)
async def test_a_202_that_repeats_the_token_leaves_the_run_open(status, header, is_awaited):
    attempt = Attempt()
    async with answering(answer(status, b"", header)) as (port, asked):
        outcome = await attempt.of(Webhook(f"http://127.0.0.1:{port}/"), port=port, callbacks=Later())
    assert headers_of(asked.requests[0])["X-Callback-Token"] == "t-1"
    assert isinstance(outcome, WaitForDestination) == is_awaited
    assert attempt.verdict is Verdict.HEALTHY


# ------------------------------------------------------------------------------------------------------- in a real worker


@asynccontextmanager
async def sending(url, port, door=None, parts=(), **options):
    async with a_caller(f"127.0.0.1:{port}") as caller:
        sender = Sender(caller, ConstantSecrets(SECRET), door or Door())
        targets = Targets([sender.handler], [*parts, sender], closing=[caller.close])
        async with working(url, Registry(), targets=targets, **options) as worker:
            yield worker


async def test_a_worker_sends_until_it_is_taken(url, store):
    async with answering(answer(503), answer(500), OK) as (port, asked), sending(url, port):
        target = Webhook(f"http://127.0.0.1:{port}/")
        run_id = await submitted(store, WEBHOOK, payload={"a": 1}, target=target)
        assert await ended(store, run_id) == "succeeded"

    assert await attempts_of(store, run_id) == [(1, "failed"), (2, "failed"), (3, "succeeded")]
    assert [headers_of(request)["X-Attempt"] for request in asked.requests] == ["1", "2", "3"]
    assert {headers_of(request)["webhook-id"] for request in asked.requests} == {str(run_id)}
    assert len({headers_of(request)["X-Fence"] for request in asked.requests}) == 3


@pytest.mark.parametrize("hours", [-1, 1])
async def test_worker_with_a_wrong_host_clock_signs_with_the_time_of_the_database(url, store, monkeypatch, hours):
    class HostClock(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.now(tz) + timedelta(hours=hours)

    monkeypatch.setattr("duly.clock.datetime", HostClock)
    async with answering(OK) as (port, asked), sending(url, port):
        run_id = await submitted(store, WEBHOOK, payload={"a": 1}, target=Webhook(f"http://127.0.0.1:{port}/"))
        assert await ended(store, run_id) == "succeeded"

    request = asked.requests[0]
    Reference(show_secret(SECRET)).verify(request.split(b"\r\n\r\n", 1)[1].decode(), headers_of(request))


async def test_a_final_answer_buries_the_run_at_once(url, store):
    async with answering(answer(404, b"no such hook")) as (port, asked), sending(url, port):
        run_id = await submitted(store, WEBHOOK, target=Webhook(f"http://127.0.0.1:{port}/"))
        assert await ended(store, run_id) == "dead"
    assert len(asked.requests) == 1

    found = await runs.find(store, run_id)
    assert found is not None
    [attempt] = found["attempts"]
    assert attempt["reason"].startswith("it answered 404")
    detail = {"to": f"http://127.0.0.1:{port}/", "status": 404, "body": "no such hook"}
    assert msgspec.json.decode(attempt["detail"]) == detail


async def test_retry_after_puts_the_next_attempt_off(url, store):
    async with answering(answer(429, b"", "Retry-After: 3600")) as (port, _), sending(url, port):
        run_id = await submitted(store, WEBHOOK, target=Webhook(f"http://127.0.0.1:{port}/"))
        await until(lambda: _has_attempt(store, run_id))
    [due] = [row["due_at"] for row in await store.fetch("select due_at from duly.timers where run_id = $1", run_id)]
    assert due - await store.fetchval("select duly.clock_now()") > timedelta(minutes=55)


async def _has_attempt(store, run_id):
    return bool(await attempts_of(store, run_id))


async def test_a_cancel_aborts_the_request(url, store):
    hung_up, begun, door = asyncio.Event(), asyncio.Event(), Door()

    async def wait(reader, writer):
        await read_request(reader)
        begun.set()
        assert await reader.read() == b""
        hung_up.set()

    async with serving(wait) as port, sending(url, port, door):
        run_id = await submitted(store, WEBHOOK, target=Webhook(f"http://127.0.0.1:{port}/"))
        await asyncio.wait_for(begun.wait(), 10)
        assert await cancel_run(store, run_id) == CancelAnswer.REQUESTED
        await asyncio.wait_for(hung_up.wait(), 5)
        assert await ended(store, run_id) == "cancelled"
    assert door.left[0][2] is Verdict.IGNORED


async def test_the_timeout_of_the_job_is_the_deadline_of_the_request(url, store):
    async def stay_silent(reader, writer):
        await asyncio.sleep(60)

    door = Door()
    async with serving(stay_silent) as port, sending(url, port, door):
        target = Webhook(f"http://127.0.0.1:{port}/")
        run_id = await submitted(store, WEBHOOK, target=target, timeout=0.3, retry=Retry(max_attempts=1))
        assert await ended(store, run_id) == "dead"
    assert await attempts_of(store, run_id) == [(1, "timed_out")]
    assert door.left[0][2] is Verdict.FAILING


async def test_each_request_to_a_receiver_with_one_slot_has_its_whole_timeout(url, store):
    """The receiver takes 0.35 s and one request at a time: with half a second from the start, the second had 0.15 s left."""
    asked = []

    async def take_a_while(reader, writer):
        asked.append(await read_request(reader))
        await asyncio.sleep(0.35)
        writer.write(OK)

    permits = Permits(rng=Rng(), log=Log("destinations"))
    async with serving(take_a_while) as port:
        made = await destinations.make(store, Rng().uuid(), TENANT_DEFAULT, f"http://127.0.0.1:{port}")
        await limit(store, TENANT_DEFAULT, made, slots=1)
        async with sending(url, port, permits, [permits]):
            target = Webhook(f"http://127.0.0.1:{port}/")
            submitted_runs = [await submitted(store, WEBHOOK, target=target, timeout=0.5) for _ in range(3)]
            assert {await ended(store, run_id) for run_id in submitted_runs} == {"succeeded"}

    assert {tuple(await attempts_of(store, run_id)) for run_id in submitted_runs} == {((1, "succeeded"),)}
    assert len(asked) == 3


@pytest.mark.parametrize(
    ("said", "seconds"),
    [(None, 86_400), (60, 60), (1e20, 30 * 86_400), (-1e20, 1)],
    ids=["nothing", "60", "most", "least"],
)
def test_receiver_callback_deadline_stays_within_its_bounds(said, seconds):
    keyring = read_keyring(new_key_line(Rng(1).secret).reveal(), "test")
    target = Webhook("https://hooks.example/", callback_within_seconds=said)

    assert ReceiverCallbacks(CallbackTokens(keyring)).awaited(RUN, target) == Awaited(seconds)
    assert said is None or "callback_within" in non_defaults(spec_of_target(target))


async def test_attempt_reports_a_failed_probe_only_when_the_receiver_fails():
    attempt = Attempt(Door(is_ailing=True))
    async with answering(answer(503)) as (port, _):
        outcome = await attempt.of(Webhook(f"http://127.0.0.1:{port}/hook"), port=port)

    assert isinstance(outcome, Failed)
    assert outcome.probe

    well = Attempt(Door(is_ailing=True))
    async with answering(answer(404)) as (port, _):
        outcome = await well.of(Webhook(f"http://127.0.0.1:{port}/hook"), port=port)

    assert isinstance(outcome, Failed)
    assert not outcome.probe, "it answers, so it is well"
    assert outcome.status == 404


async def test_unreachable_receiver_fails_as_a_connection_error():
    outcome = await Attempt().of(Webhook("http://127.0.0.1:1/hook"), port=1)

    assert isinstance(outcome, Failed)
    assert "builtins.ConnectionError" in outcome.kinds
