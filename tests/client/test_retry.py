"""One request to its end: what is tried again, how long, and what is raised. No I/O: the test plays the world."""

import pickle
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from duly.client import EventMatch, FunctionTarget, JobSpec
from duly.client.definitions import changing, creating, written
from duly.client.errors import (
    ApiError,
    Conflict,
    Invalid,
    NotFound,
    QuotaReached,
    RateLimited,
    ServerFailed,
    Unavailable,
    UnexpectedResponse,
    VersionChanged,
)
from duly.client.requests import ApiRequest, NoReply, Reply, getting, path, posting, reader, removing
from duly.client.retry import Manners, Patience, Pause, Send, converse
from duly.clock import Rng
from duly.domain import errors
from duly.wire.jobs.jobs import JobList, JobSummary
from duly.wire.problems import problem
from duly.wire.runs import TargetSummary

LOST = NoReply("No answer: the connection was cut.", may_have_arrived=True)
REFUSED = NoReply("No answer: connection refused.", may_have_arrived=False)
DONE = Reply(200, {}, b'{"n": 1}')
A_SUMMARY: dict[str, Any] = {
    **dict.fromkeys(JobSummary.__struct_fields__),
    "job_id": "00000000-0000-4000-8000-000000000000",
    "status": "active",
    "target": {"type": "function", "handler": "a"},
    "queue": "default",
    "priority": 5,
    "description": "Once, now",
    "tags": [],
    "version": 1,
    "owner": "api",
    "created_at": "2026-01-01T00:00:00Z",
}


def told(code: str, **headers: str) -> Reply:
    document = problem(code, f"It is {code}.", instance="/v1", request_id="r1")
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(document.status, names, msgspec.json.encode(document))


class World:
    """Answers a conversation from a script; pauses pass at once on its clock."""

    def __init__(self, *events: Reply | NoReply, **patience: float) -> None:
        self.events = list(events)
        self.now = 100.0
        self.sent: list[Send] = []
        self.pauses: list[float] = []
        self.manners = Manners(Patience(**patience), lambda: self.now, Rng(1))

    def hear(self, ask: ApiRequest):
        conversation = converse(ask, self.manners)
        try:
            step = next(conversation)
            while True:
                step = conversation.send(self._take(step))
        except StopIteration as done:
            return done.value

    def _take(self, step: Send | Pause):
        if isinstance(step, Pause):
            self.pauses.append(step.seconds)
            self.now += step.seconds
            return None
        self.sent.append(step)
        return self.events.pop(0) if len(self.events) > 1 else self.events[0]


A_POST = posting(path("jobs"), dict, {"target": "app:mail"})
A_GET = getting(path("jobs", "j"), dict)


@pytest.mark.parametrize("event", [LOST, REFUSED, told("unavailable"), Reply(502, {}, b"<html>"), Reply(504, {}, b"")])
@pytest.mark.parametrize("ask", [A_POST, A_GET])
def test_transient_failure_is_retried_under_the_same_key(event, ask):
    world = World(event, event, DONE)

    assert world.hear(ask) == {"n": 1}

    assert len(world.sent) == 3
    assert len({send.headers.get("Idempotency-Key") for send in world.sent}) == 1


def test_a_post_has_a_key_of_its_own_or_the_one_that_was_given():
    world = World(DONE)
    for ask in (A_POST, A_POST, posting(path("jobs"), dict, {}, key="mine"), A_GET):
        world.hear(ask)

    first, second, given, none = (send.headers.get("Idempotency-Key") for send in world.sent)

    assert first != second
    assert (given, none) == ("mine", None)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("invalid_body", Invalid),
        ("not_found", NotFound),
        ("name_taken", errors.NameTaken),
        ("conflict", Conflict),
        ("internal_error", ServerFailed),
        ("version_changed", VersionChanged),
        ("quota_reached", QuotaReached),
    ],
)
def test_permanent_error_is_raised_without_a_retry(code, kind):
    world = World(told(code), DONE)

    with pytest.raises(kind) as raised:
        world.hear(A_POST)

    assert len(world.sent) == 1
    assert (raised.value.code, raised.value.request_id) == (code, "r1")


def test_a_pause_is_as_long_as_the_server_asks_for():
    world = World(told("rate_limited", retry_after="7"), told("key_in_progress", retry_after="2"), DONE)

    world.hear(A_POST)

    assert world.pauses == [7.0, 2.0]


def test_pauses_double_up_to_the_longest_with_half_of_each_by_chance():
    world = World(*[LOST] * 8, DONE, pause_first=0.1, pause_max=1.0)

    world.hear(A_GET)

    whole = [0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0, 1.0]
    assert all(most / 2 <= pause <= most for pause, most in zip(world.pauses, whole, strict=True))


def test_after_the_deadline_the_last_error_is_raised_with_the_key_to_ask_again_with():
    world = World(LOST, deadline=10.0, pause_max=1.0)

    with pytest.raises(Unavailable) as raised:
        world.hear(A_POST)

    assert world.now <= 110.0
    assert raised.value.idempotency_key == world.sent[0].headers["Idempotency-Key"]
    assert raised.value.idempotency_key in str(raised.value)
    assert "may or may not have been done" in str(raised.value)


def test_unsent_request_is_not_reported_as_possibly_done():
    with pytest.raises(Unavailable) as raised:
        World(REFUSED, deadline=1.0).hear(A_POST)

    assert "may or may not" not in str(raised.value)


def test_read_gives_up_sooner_when_the_connection_is_refused():
    unreached = NoReply("No answer: connection refused", may_have_arrived=False, is_unreached=True)
    reading, writing = (World(unreached, deadline=20.0, connect_deadline=1.5) for _ in range(2))

    with pytest.raises(Unavailable, match="See that DULY_URL is right"):
        reading.hear(A_GET)
    with pytest.raises(Unavailable):
        writing.hear(A_POST)

    assert 1 < len(reading.sent) < len(writing.sent)
    assert reading.now <= 101.5
    assert writing.now > 110.0


def test_a_pause_beyond_the_deadline_is_not_waited_for():
    world = World(told("rate_limited", retry_after="3600"), DONE, deadline=10.0)

    with pytest.raises(RateLimited) as raised:
        world.hear(A_POST)

    assert (world.pauses, raised.value.retry_after) == ([], 3600.0)


def test_a_try_takes_no_longer_than_is_left():
    world = World(*[told("rate_limited", retry_after="8")] * 2, DONE, timeout=15.0, deadline=20.0)

    world.hear(A_POST)

    assert [send.timeout for send in world.sent] == [15.0, 12.0, 4.0]


def test_an_untrusted_certificate_is_not_tried_again():
    world = World(NoReply("No answer: untrusted", may_have_arrived=False, is_hopeless=True))

    with pytest.raises(Unavailable):
        world.hear(A_GET)

    assert len(world.sent) == 1


@pytest.mark.parametrize(("status", "body"), [(200, b"<html>"), (302, b""), (200, b"[1]")])
def test_client_raises_unexpected_response_for_a_foreign_body(status, body):
    with pytest.raises(UnexpectedResponse):
        World(Reply(status, {}, body)).hear(A_GET)


def test_delete_treats_not_found_after_a_lost_response_as_success():
    world = World(LOST, told("not_found"))

    assert world.hear(removing(path("calendars", "holidays"))) is None


def test_delete_of_an_unknown_resource_raises_not_found():
    with pytest.raises(NotFound):
        World(told("not_found")).hear(removing(path("calendars", "holidays")))
    with pytest.raises(NotFound):  # The first try was never sent.
        World(REFUSED, told("not_found")).hear(removing(path("calendars", "holidays")))


def a_job(version: int, queue: str) -> Reply:
    job = {
        "job_id": "6b0b5c1e-0d1c-4b7e-8d43-0a6d0f7f4a11", "name": "n", "status": "active",
        "target": {"type": "function", "handler": "app:mail"}, "queue": queue, "priority": 5, "payload": {},
        "schedule": None, "description": "", "next_run_at": None, "next_fires": [], "retry": None, "timeout": "PT90S",
        "concurrency": None, "on_event": None, "tags": [], "version": version, "owner": "api", "source": None,
        "pause_reason": None, "last_run": None, "created_at": "2026-11-01T00:00:00Z",
    }  # fmt: skip
    return Reply(200, {}, msgspec.json.encode(job))


A_CHANGE = changing("j", 3, {"queue": "mail", "timeout": 90})


def test_change_with_a_lost_response_is_recognized_as_applied():
    world = World(LOST, told("version_changed"), a_job(4, "mail"))

    assert world.hear(A_CHANGE).version == 4

    assert [send.method for send in world.sent] == ["PATCH", "PATCH", "GET"]


@pytest.mark.parametrize("now", [a_job(4, "default"), a_job(5, "mail")])
def test_ambiguous_change_after_a_lost_response_raises_version_changed(now):
    with pytest.raises(VersionChanged, match="is unknown"):
        World(LOST, told("version_changed"), now).hear(A_CHANGE)


def test_a_change_that_came_too_late_is_refused_without_a_second_look():
    world = World(told("version_changed"))

    with pytest.raises(VersionChanged):
        world.hear(A_CHANGE)

    assert len(world.sent) == 1


def test_an_error_can_be_sent_to_another_process():
    with pytest.raises(ApiError) as raised:
        World(told("not_found")).hear(A_GET)

    again = pickle.loads(pickle.dumps(raised.value))

    assert (type(again), str(again), again.code) == (NotFound, str(raised.value), "not_found")


class TestUnsendableValues:
    """It is refused before anything is sent, and the place is named."""

    @pytest.mark.parametrize(
        ("payload", "told"),
        [
            ({"n": [1.0, float("nan")]}, "/payload/n/1 is nan, which JSON cannot express"),
            ({"n": float("-inf")}, "/payload/n is -inf"),
            ({"tags": {"a", "b"}}, "/payload/tags is a set"),
            ({"text": "a\ud800b"}, "has a lone surrogate at position 1"),
            ({"a\ud800": 1}, "A key of /payload"),
            ({"f": print}, "The body is not JSON"),
        ],
    )
    def test_in_a_payload(self, payload, told):
        for ask in (
            lambda: creating({"target": {}, "payload": payload}, None, None),
            lambda: changing("7", 1, {"payload": payload}),
            lambda: written(JobSpec(target=FunctionTarget(handler="a"), payload=payload)),
        ):
            with pytest.raises(Invalid) as refused:
                ask()
            assert told in str(refused.value)
            assert (refused.value.code, refused.value.status) == ("invalid_payload", None)

    def test_payload_that_contains_itself_is_refused(self):
        endless: list[object] = []
        endless.append(endless)
        with pytest.raises(Invalid, match="nested too deeply"):
            posting(path("jobs"), dict, {"payload": endless})

    def test_in_a_path_a_query_or_a_key(self):
        with pytest.raises(Invalid, match="lone surrogate at position 0"):
            path("jobs", "by-name", "\ud800")
        for dots in (".", ".."):
            with pytest.raises(Invalid):
                path("queues", dots, "pause")
        with pytest.raises(Invalid, match="lone surrogate"):
            getting(path("jobs"), dict, filter="name:\ud800")
        with pytest.raises(Invalid, match="The name has 100,013 bytes in the address; the limit is 16,384"):
            path("channels", "x" * 100_000)
        with pytest.raises(Invalid, match=r"Filter has 60,000 bytes .* Give a shorter one"):
            getting(path("jobs"), dict, filter="é" * 10_000)
        world = World(DONE)
        for key in ("\ud800", "é", "a\nb"):
            with pytest.raises(Invalid, match="not printable ASCII"):
                world.hear(posting(path("jobs"), dict, {}, key=key))
        assert world.sent == []

    def test_sendable_body_is_encoded(self):
        body = {"a": (1, [2.5, None]), "at": datetime(2026, 1, 2, tzinfo=UTC), "ü": FunctionTarget(handler="x")}
        assert posting(path("jobs"), dict, body).body == msgspec.json.encode(body)


def test_unknown_response_fields_are_ignored_at_every_depth():
    told = {
        "items": [{**A_SUMMARY, "colour": "blue", "target": {"type": "function", "handler": "a", "region": "eu"}}],
        "next_page_token": None,
        "more": 1,
    }
    event = {**A_SUMMARY, "on_event": {"type": "sold", "source": None, "subject": "7"}}

    [found] = reader(JobList)(Reply(200, {}, msgspec.json.encode(told))).items
    assert found.target == TargetSummary(type="function", handler="a")
    assert reader(JobSummary)(Reply(200, {}, msgspec.json.encode(event))).on_event == EventMatch(type="sold")
    with pytest.raises(UnexpectedResponse, match="queue"):
        reader(JobSummary)(Reply(200, {}, msgspec.json.encode({**A_SUMMARY, "queue": 7, "colour": 1})))
