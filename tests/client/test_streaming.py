"""The stream of events, over a real server that cuts it again and again."""

import asyncio
import json
import socket
from contextlib import asynccontextmanager

import pytest

from duly.api.server.server import Server
from duly.client import AsyncClient, Client, Unauthorized, Unavailable
from duly.client.requests import NoReply
from duly.client.retry import Manners, Patience
from duly.client.streaming import Listening, read_event
from duly.clock import Rng

EVENTS = 5
AT_ONCE = 2
CUT = NoReply("cut", may_have_arrived=True)


def an_event(number: int) -> bytes:
    event = {
        "specversion": "1.0",
        "id": f"run/{number}",
        "source": "/v1/runs",
        "type": "duly.run.started.v1",
        "time": "2026-11-01T00:00:00Z",
        "data": {"queue": "mail"},
    }
    return f": a comment\nid: {number}\nevent: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()


class Stream:
    """Sends a few events from the place that is asked for, and half of the next; then the connection is cut."""

    def __init__(self) -> None:
        self.asked: list[str | None] = []

    async def __call__(self, scope, receive, send) -> None:
        headers = dict(scope["headers"])
        if headers[b"authorization"] != b"Bearer duly_a_b":
            await send({"type": "http.response.start", "status": 401, "headers": []})
            await send({"type": "http.response.body", "body": b""})
            return
        place = headers.get(b"last-event-id", b"").decode()
        self.asked.append(place or None)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        first = int(place or 0) + 1
        for number in range(first, min(first + AT_ONCE, EVENTS + 1)):
            await send({"type": "http.response.body", "body": an_event(number), "more_body": True})
        await send({"type": "http.response.body", "body": an_event(first + AT_ONCE)[:40], "more_body": True})
        raise ConnectionError("cut")


@asynccontextmanager
async def served(app):
    listener = socket.create_server(("127.0.0.1", 0))
    server = Server(app, listener)
    serving = asyncio.create_task(server.run())
    while not server.started:
        await asyncio.sleep(0.01)
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    server.stop()
    await serving


async def test_cut_event_stream_resumes_without_gaps_or_duplicates():
    stream, found = Stream(), []
    async with served(stream) as url, AsyncClient(url, "duly_a_b") as client:
        async for event in client.events(queue="mail", types=["duly.run.started.v1"]):
            found.append(event)
            if len(found) == EVENTS:
                break

    assert [event.id for event in found] == [f"run/{number}" for number in range(1, EVENTS + 1)]
    assert (found[-1].cursor, found[0].data) == ("5", {"queue": "mail"})
    assert stream.asked == [None, "2", "4"]


async def test_blocking_client_streams_events_from_a_position():
    stream = Stream()

    def hear(url: str) -> list[str]:
        with Client(url, "duly_a_b") as client:
            events = client.events(since="3")
            return [next(events).cursor, next(events).cursor]

    async with served(stream) as url:
        assert await asyncio.to_thread(hear, url) == ["4", "5"]

    assert stream.asked == ["3"]


async def test_a_refusal_is_raised():
    async with served(Stream()) as url, AsyncClient(url, "duly_other_key") as client:
        with pytest.raises(Unauthorized):
            await anext(client.events())


def test_when_nothing_was_heard_for_too_long_it_is_given_up():
    now = [0.0]
    listening = Listening(None, Manners(Patience(deadline=10.0), lambda: now[0], Rng(1)), read_event)

    def wait_and_lose() -> None:
        while True:
            now[0] += listening.pause(CUT)

    with pytest.raises(Unavailable, match="given up"):
        wait_and_lose()
    heard_until = now[0]
    listening.hear(": still here")

    assert heard_until <= 55.0
    assert listening.pause(CUT) < 0.2


class Log:
    """A log of five lines that is cut after every second of them, and then ends."""

    def __init__(self) -> None:
        self.asked: list[str | None] = []

    async def __call__(self, scope, receive, send) -> None:
        headers = dict(scope["headers"])
        assert headers[b"accept"] == b"text/event-stream"
        place = headers.get(b"last-event-id", b"").decode()
        self.asked.append(place or None)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        first = int(place.rpartition("/")[2] or 0) + 1
        for number in range(first, min(first + AT_ONCE, EVENTS + 1)):
            await send({"type": "http.response.body", "body": a_line(number), "more_body": True})
        if first + AT_ONCE <= EVENTS:
            raise ConnectionError("cut")
        end = b'event: end\ndata: {"state": "succeeded"}\n\n'
        await send({"type": "http.response.body", "body": b": alive\n\n" + end})


def a_line(number: int) -> bytes:
    line = {"attempt": 1, "number": number, "logged_at": "2026-11-01T00:00:00Z", "level": "info", "fields": None}
    return f"id: 1/{number}\nevent: line\ndata: {json.dumps({**line, 'message': str(number)})}\n\n".encode()


async def test_cut_log_stream_resumes_until_its_end():
    log = Log()
    async with served(log) as url, AsyncClient(url, "duly_a_b") as client:
        found = [line async for line in client.runs.follow_logs("r")]

    assert [(line.message, line.cursor) for line in found] == [(str(n), f"1/{n}") for n in range(1, EVENTS + 1)]
    assert log.asked == [None, "1/2", "1/4"]


async def test_blocking_client_streams_logs_from_a_position():
    log = Log()

    def hear(url: str) -> list[str]:
        with Client(url, "duly_a_b") as client:
            return [line.message for line in client.runs.follow_logs("r", since="1/3")]

    async with served(log) as url:
        assert await asyncio.to_thread(hear, url) == ["4", "5"]
