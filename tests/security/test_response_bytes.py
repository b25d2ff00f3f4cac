"""What comes on a connection: the shapes that would make two readers of one answer disagree are none, and end it."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import Any

import pytest

from duly.domain.targets.webhook_url import read_url
from duly.outbound import transport
from duly.outbound.connection import BODY_BYTES_MAX
from duly.outbound.errors import BadAnswer, NoAnswer
from duly.outbound.transport import Request, write_head
from tests.outbound.servers import POST, TENANT, a_caller, answer, read_request, serving

OK = answer(200, b"ok")
HEAD = b"HTTP/1.1 200 OK\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
PATIENCE_SECONDS = 20.0


class Asking:
    """Asks a server that answers in pieces, the same again and again over kept connections; counts the connections."""

    def __init__(self, pieces, *, then_close):
        self._pieces, self._then_close = pieces, then_close
        self.connections = 0
        self.caller: Any = None
        self.port = 0

    async def behave(self, reader, writer):
        self.connections += 1
        while True:
            await read_request(reader)
            for piece in self._pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0)
            if self._then_close:
                return

    async def __call__(self, request=POST):
        url = f"http://127.0.0.1:{self.port}/"
        return await self.caller.call(url, request, tenant=TENANT, seconds=PATIENCE_SECONDS)


@asynccontextmanager
async def answered_with(*pieces, then_close=False):
    ask = Asking(pieces, then_close=then_close)
    async with serving(ask.behave) as ask.port, a_caller(f"127.0.0.1:{ask.port}") as ask.caller:
        yield ask


@pytest.mark.parametrize(
    "shape",
    [
        pytest.param(b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", id="both lengths"),
        pytest.param(
            b"Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n2\r\nok\r\n0\r\n\r\n", id="both, reversed"
        ),
        pytest.param(b"Content-Length: 2\r\nContent-Length: 3\r\n\r\nok!", id="two lengths"),
        pytest.param(b"Content-Length: 2\r\nContent-Length: 2\r\n\r\nok", id="one length twice"),
        pytest.param(b"Content-Length: 2, 2\r\n\r\nok", id="a list of lengths"),
        pytest.param(b"Content-Length: +2\r\n\r\nok", id="a length with a sign"),
        pytest.param(b"Content-Length: 0x2\r\n\r\nok", id="a length in another base"),
        pytest.param(b"Content-Length: 99999999999999999999\r\n\r\nok", id="a length beyond all numbers"),
        pytest.param(b"Content-Length : 2\r\n\r\nok", id="a blank before the colon"),
        pytest.param(b"Transfer-Encoding: gzip\r\n\r\nok", id="a coding that nobody asked for"),
        pytest.param(b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", id="a coding in chunks"),
        pytest.param(b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n", id="chunks in a coding"),
        pytest.param(b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", id="almost chunked"),
        pytest.param(b"Transfer-Encoding: chunked\r\n\r\nzz\r\nok\r\n0\r\n\r\n", id="a chunk size that is none"),
        pytest.param(b"Transfer-Encoding: chunked\r\n\r\n1\r\nok\r\n0\r\n\r\n", id="a chunk longer than it says"),
        pytest.param(b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\nok", id="a chunk beyond all numbers"),
        pytest.param(b"X-Folded: a\r\n b\r\nContent-Length: 0\r\n\r\n", id="a folded header"),
        pytest.param(b"X: a\rY: b\r\nContent-Length: 0\r\n\r\n", id="half a line break"),
        pytest.param(b"X: a\x00b\r\nContent-Length: 0\r\n\r\n", id="a zero byte"),
        pytest.param(b"X: " + b"x" * 8_191 + b"\r\nContent-Length: 0\r\n\r\n", id="a long header"),
        pytest.param(b"".join(b"X-%d: y\r\n" % n for n in range(129)) + b"\r\n", id="many headers"),
    ],
)
async def test_an_answer_that_can_be_read_in_two_ways_is_none(shape):
    async with answered_with(HEAD + shape) as ask:
        for _ in range(2):
            with pytest.raises(BadAnswer):
                await ask()
    assert ask.connections == 2  # Nothing is asked where such an answer came from.


@pytest.mark.parametrize("line", [b"HTTP/2.0 200 OK\r\n", b"HTTP/1.1 099 Odd\r\n", b"HTTP/1.1 200 OK\n"])
async def test_a_first_line_that_is_none_of_ours_is_no_answer(line):
    async with answered_with(line + b"Content-Length: 0\r\n\r\n") as ask:
        with pytest.raises(BadAnswer):
            await ask()


async def test_an_answer_without_a_length_ends_with_its_connection():
    async with answered_with(HEAD + b"\r\nhal", b"f", then_close=True) as ask:
        for _ in range(2):
            answered = await ask()
            assert (answered.body, answered.is_whole) == (b"half", True)
    assert ask.connections == 2


@pytest.mark.parametrize("pieces", [(HEAD + b"Content-Length: 9\r\n\r\nhalf",), (CHUNKED + b"4\r\nhalf\r\n",), (HEAD,)])
async def test_an_answer_that_is_broken_off_is_none(pieces):
    async with answered_with(*pieces, then_close=True) as ask:
        with pytest.raises(NoAnswer):
            await ask()


async def test_chunked_response_is_read_whole_and_its_connection_is_reused():
    chunks = (CHUNKED, b"2;a=b\r", b"\nab\r\n1\r\nc\r\n", b"0\r\nX-Trailer: 1\r\n", b"\r\n")
    async with answered_with(*chunks) as ask:
        for _ in range(2):
            answered = await ask()
            assert (answered.body, answered.is_whole) == (b"abc", True)
            assert "x-trailer" not in answered.headers
    assert ask.connections == 1


@pytest.mark.parametrize("status", [204, 304])
async def test_response_without_a_body_ignores_its_content_length(status):
    async with answered_with(b"HTTP/1.1 %d Without\r\nContent-Length: 5\r\n\r\n" % status) as ask:
        for _ in range(2):
            answered = await ask()
            assert (answered.status, answered.body, answered.is_whole) == (status, b"", True)
    assert ask.connections == 1


async def test_a_head_request_waits_for_no_body():
    async with answered_with(HEAD + b"Content-Length: 5\r\n\r\n") as ask:
        for _ in range(2):
            answered = await ask(Request("HEAD", {}))
            assert (answered.status, answered.body, answered.is_whole) == (200, b"", True)
    assert ask.connections == 2


async def test_interim_answers_make_way_for_the_answer():
    interim = b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\nX: y\r\n\r\n"
    async with answered_with(*interim, OK) as ask:
        for _ in range(2):
            answered = await ask()
            assert (answered.status, answered.body) == (200, b"ok")
            assert "x" not in answered.headers
    assert ask.connections == 1


@pytest.mark.parametrize("rest", [OK, b"junk", b"\x00", answer(500, b"smuggled")])
async def test_data_after_a_response_ends_the_connection(rest):
    async with answered_with(OK + rest) as ask:
        for _ in range(3):
            assert (await ask()).status == 200
    assert ask.connections == 3


async def test_unsolicited_response_ends_the_connection(monkeypatch):
    # One that merely rested must not be ended while we wait, or that would pass for this.
    monkeypatch.setattr(transport, "_KEPT_SECONDS", 100 * PATIENCE_SECONDS)
    spoke, ended = asyncio.Event(), asyncio.Event()

    async def speak_out_of_turn(reader, writer):
        await read_request(reader)
        writer.write(OK)
        await writer.drain()
        await spoke.wait()
        writer.write(answer(500, b"smuggled"))
        assert await reader.read() == b""
        ended.set()

    async with serving(speak_out_of_turn) as port, a_caller(f"127.0.0.1:{port}") as caller:
        await caller.call(f"http://127.0.0.1:{port}/", POST, tenant=TENANT, seconds=PATIENCE_SECONDS)
        spoke.set()
        await asyncio.wait_for(ended.wait(), PATIENCE_SECONDS)


async def test_connection_is_not_reused_after_connection_close():
    async with answered_with(answer(200, b"ok", "Connection: close")) as ask:
        for _ in range(2):
            assert (await ask()).body == b"ok"
    assert ask.connections == 2


async def test_connection_to_an_http_1_0_server_is_not_reused():
    async with answered_with(b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok") as ask:
        for _ in range(2):
            assert (await ask()).body == b"ok"
    assert ask.connections == 2


async def test_an_answer_before_the_whole_request_was_read_counts_and_ends_the_connection():
    connections = 0

    async def refuse(reader, writer):
        nonlocal connections
        connections += 1
        await reader.readuntil(b"\r\n\r\n")
        writer.transport.pause_reading()
        writer.write(answer(413, b"too much"))
        await writer.drain()
        await asyncio.sleep(PATIENCE_SECONDS)

    large = Request("POST", {}, b"x" * (32 << 20))
    async with serving(refuse) as port, a_caller(f"127.0.0.1:{port}") as caller:
        for _ in range(2):
            answered = await caller.call(f"http://127.0.0.1:{port}/", large, tenant=TENANT, seconds=PATIENCE_SECONDS)
            assert (answered.status, answered.body) == (413, b"too much")
    assert connections == 2


async def test_an_answer_that_came_before_the_request_counts():
    """One that has no time for anybody says so to whoever connects."""

    async def reject(reader, writer):
        writer.write(answer(503, b"busy", "Connection: close"))
        await writer.drain()
        await read_request(reader)

    async with serving(reject) as port, a_caller(f"127.0.0.1:{port}") as caller:
        answered = await caller.call(f"http://127.0.0.1:{port}/", POST, tenant=TENANT, seconds=PATIENCE_SECONDS)
    assert (answered.status, answered.body) == (503, b"busy")


@pytest.mark.parametrize(("method", "is_repeated"), [("GET", True), ("POST", False)])
async def test_request_is_repeated_only_if_safe_when_a_kept_connection_has_ended(method, is_repeated):
    requests = []

    async def answer_once(reader, writer):
        requests.append(await read_request(reader))
        writer.write(OK)
        await writer.drain()
        requests.append(await read_request(reader))  # And hangs up, as if its patience had just been over.

    async with serving(answer_once) as port, a_caller(f"127.0.0.1:{port}") as caller:
        url, request = f"http://127.0.0.1:{port}/", Request(method, {}, b"")
        await caller.call(url, request, tenant=TENANT, seconds=PATIENCE_SECONDS)
        if is_repeated:
            assert (await caller.call(url, request, tenant=TENANT, seconds=PATIENCE_SECONDS)).status == 200
        else:
            with pytest.raises(NoAnswer):
                await caller.call(url, request, tenant=TENANT, seconds=PATIENCE_SECONDS)
    assert len(requests) == (3 if is_repeated else 2)


async def test_endless_trailers_and_chunk_extensions_are_no_answer():
    for line in (b"0\r\n" + b"X-Trailer: x\r\n" * 100_000, b"1;" + b"x" * (2 << 20)):
        async with answered_with(CHUNKED + line) as ask:
            with pytest.raises(BadAnswer):
                await ask()


async def test_a_connection_that_rests_is_ended():
    ended = asyncio.Event()

    async def wait(reader, writer):
        await read_request(reader)
        writer.write(OK)
        assert await reader.read() == b""
        ended.set()

    async with serving(wait) as port, a_caller(f"127.0.0.1:{port}") as caller:
        await caller.call(f"http://127.0.0.1:{port}/", POST, tenant=TENANT, seconds=PATIENCE_SECONDS)
        await asyncio.wait_for(ended.wait(), PATIENCE_SECONDS)


async def test_a_body_of_two_halves_is_kept_to_its_limit():
    half = b"x" * (BODY_BYTES_MAX // 2)
    async with answered_with(CHUNKED, *(b"%x\r\n%s\r\n" % (len(half), half) for _ in range(3))) as ask:
        answered = await ask()
    assert (len(answered.body), answered.is_whole) == (BODY_BYTES_MAX, False)


@pytest.mark.parametrize("value", ["a\r\nX-Injected: 1", "a\nb", "a\rb", "a\0b"])
def test_a_header_of_two_lines_is_not_written(value):
    with pytest.raises(ValueError, match="line break") as error:
        write_head(read_url("http://example.com/"), Request("POST", {"X": value}, b""))
    assert value not in str(error.value)


def test_request_head_states_the_length_of_its_body():
    url = read_url("https://example.com:8443/hook?a=b")
    assert write_head(url, Request("POST", {"X": "y"}, b"12")) == (
        b"POST /hook?a=b HTTP/1.1\r\nHost: example.com:8443\r\nAccept: */*\r\nX: y\r\nContent-Length: 2\r\n\r\n"
    )
    assert b"Content-Length: 0\r\n" in write_head(url, Request("POST", {}))
    assert b"Content-Length" not in write_head(url, Request("GET", {}))
