"""What a server may do to us: nothing that lasts longer than the deadline, or takes more than what is kept."""

from __future__ import annotations

import asyncio
import gzip
import resource
import time

import pytest

from duly.outbound.calling import DeadlinePassed
from duly.outbound.errors import BadAnswer, NoAnswer, NotAllowed, OutboundError
from duly.outbound.transport import BODY_BYTES_MAX, Request
from tests.outbound.servers import POST, TENANT, Names, a_caller, answer, answering, read_request, serving

OK = answer(200, b'{"ok":true}', "Content-Type: application/json")
LATE_SECONDS = 0.5


async def call(caller, port, *, request=POST, seconds=10.0, path="/", host="127.0.0.1"):
    return await caller.call(f"http://{host}:{port}{path}", request, tenant=TENANT, seconds=seconds)


async def ends_at_the_deadline(behave, request=POST):
    async with serving(behave) as port, a_caller(f"127.0.0.1:{port}") as caller:
        began = time.monotonic()
        with pytest.raises(DeadlinePassed, match=r"no complete response within 0\.7 s"):
            await call(caller, port, request=request, seconds=0.7)
        assert time.monotonic() - began == pytest.approx(0.7, abs=LATE_SECONDS)


async def test_response_is_read_whole():
    async with answering(OK) as (port, asked), a_caller(f"127.0.0.1:{port}") as caller:
        answered = await call(caller, port, path="/hook?x=%41")

    assert (answered.status, answered.body, answered.is_whole) == (200, b'{"ok":true}', True)
    assert answered.headers["content-type"] == "application/json"
    [request] = asked.requests
    assert request.startswith(b"POST /hook?x=%41 HTTP/1.1\r\n")
    assert f"Host: 127.0.0.1:{port}\r\n".encode() in request
    assert request.endswith(b'\r\n\r\n{"a":1}')
    assert b"Accept-Encoding" not in request


async def test_a_byte_a_second_ends_at_the_deadline():
    async def drip(reader, writer):
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.2)

    await ends_at_the_deadline(drip)


async def test_headers_that_drip_end_at_the_deadline():
    async def drip(reader, writer):
        writer.write(b"HTTP/1.1 200 OK\r\nX-Long: ")
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.2)

    await ends_at_the_deadline(drip)


async def test_a_server_that_never_answers_ends_at_the_deadline():
    async def stay_silent(reader, writer):
        await reader.read()
        await asyncio.sleep(60)

    await ends_at_the_deadline(stay_silent)


async def test_a_server_that_never_reads_ends_at_the_deadline():
    async def sleep(reader, writer):
        writer.transport.pause_reading()
        await asyncio.sleep(60)

    await ends_at_the_deadline(sleep, Request("POST", {}, b"x" * (32 << 20)))


async def test_endless_interim_answers_end_at_the_deadline():
    async def go_on(reader, writer):
        while True:
            writer.write(b"HTTP/1.1 103 Early Hints\r\n\r\n")
            await writer.drain()
            await asyncio.sleep(0.01)

    await ends_at_the_deadline(go_on)


async def test_calls_to_two_hundred_slow_servers_end_in_time_and_delay_no_other():
    async def drip(reader, writer):
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.5)

    async with (
        serving(drip) as slow,
        answering(OK) as (port, asked),
        a_caller(f"127.0.0.1:{slow}", f"127.0.0.1:{port}") as caller,
    ):

        async def wait_in_vain():
            began = time.monotonic()
            with pytest.raises(DeadlinePassed):
                await call(caller, slow, seconds=2.0)
            return time.monotonic() - began

        waiting = [asyncio.create_task(wait_in_vain()) for _ in range(200)]
        await asyncio.sleep(1.0)
        for _ in range(20):
            assert (await call(caller, port, seconds=0.5)).status == 200
        assert all(span == pytest.approx(2.0, abs=LATE_SECONDS) for span in await asyncio.gather(*waiting))
    assert len(asked.requests) == 20


async def test_tls_handshake_without_a_reply_ends_at_the_deadline():
    async def stay_silent(reader, writer):
        await asyncio.sleep(60)

    async with serving(stay_silent) as port, a_caller(f"127.0.0.1:{port}") as caller:
        began = time.monotonic()
        with pytest.raises(DeadlinePassed):
            await caller.call(f"https://127.0.0.1:{port}/", POST, tenant=TENANT, seconds=0.7)
        assert time.monotonic() - began == pytest.approx(0.7, abs=LATE_SECONDS)


async def test_a_name_server_that_never_answers_ends_at_the_deadline():
    class Silence:
        async def addresses_of(self, host, tenant):
            await asyncio.sleep(60)
            return ["127.0.0.1"]

    async with a_caller("127.0.0.1", names=Silence()) as caller:
        with pytest.raises(DeadlinePassed):
            await caller.call("http://slow.example/", POST, tenant=TENANT, seconds=0.3)


async def test_endless_headers_are_no_answer():
    written = 0

    async def go_on(reader, writer):
        nonlocal written
        writer.write(b"HTTP/1.1 200 OK\r\n")
        while True:
            writer.write(b"X-Header: " + b"x" * 1_000 + b"\r\n")
            written += 1_012
            await writer.drain()

    async with serving(go_on) as port, a_caller(f"127.0.0.1:{port}") as caller:
        with pytest.raises(BadAnswer):
            await call(caller, port)
    assert written < 32 << 20


async def test_endless_header_is_a_bad_response():
    async def go_on(reader, writer):
        writer.write(b"HTTP/1.1 200 OK\r\nX-Header: ")
        while True:
            writer.write(b"x" * 10_000)
            await writer.drain()

    async with serving(go_on) as port, a_caller(f"127.0.0.1:{port}") as caller:
        with pytest.raises(BadAnswer):
            await call(caller, port)


@pytest.mark.parametrize(("size", "is_taken"), [(32_000, True), (33_000, False)])
async def test_headers_are_taken_up_to_32_kib(size, is_taken):
    headers = [f"X-{number}: {'x' * 990}" for number in range(size // 1_000)]
    async with answering(answer(200, b"", *headers)) as (port, _), a_caller(f"127.0.0.1:{port}") as caller:
        if is_taken:
            assert (await call(caller, port)).status == 200
        else:
            with pytest.raises(BadAnswer, match="bytes of headers"):
                await call(caller, port)


@pytest.mark.parametrize("size", [BODY_BYTES_MAX, BODY_BYTES_MAX + 1])
async def test_a_body_is_kept_up_to_its_limit(size):
    async with answering(answer(200, b"x" * size)) as (port, _), a_caller(f"127.0.0.1:{port}") as caller:
        answered = await call(caller, port)

    assert len(answered.body) == BODY_BYTES_MAX
    assert answered.is_whole == (size == BODY_BYTES_MAX)


async def test_an_endless_body_is_hung_up_on():
    hung_up = asyncio.Event()

    async def go_on(reader, writer):
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        try:
            while True:
                writer.write(b"2710\r\n" + b"x" * 10_000 + b"\r\n")
                await writer.drain()
        finally:
            hung_up.set()

    async with serving(go_on) as port, a_caller(f"127.0.0.1:{port}") as caller:
        answered = await call(caller, port)
        await asyncio.wait_for(hung_up.wait(), 5)

    assert (len(answered.body), answered.is_whole) == (BODY_BYTES_MAX, False)


async def test_a_gzip_bomb_stays_packed():
    bomb = gzip.compress(bytes(64 << 20), 9)
    assert len(bomb) <= BODY_BYTES_MAX + 1_000
    packed = answer(200, bomb[:BODY_BYTES_MAX], "Content-Encoding: gzip", "Content-Type: application/json")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    async with answering(packed) as (port, _), a_caller(f"127.0.0.1:{port}") as caller:
        answered = await call(caller, port)

    assert answered.body == bomb[:BODY_BYTES_MAX]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20 << 10  # KiB


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_no_redirect_is_followed(status):
    async with answering(OK) as (inner, inner_asked):
        moved = answer(status, b"", f"Location: http://127.0.0.1:{inner}/secret")
        async with answering(moved) as (port, _), a_caller(f"127.0.0.1:{port}", f"127.0.0.1:{inner}") as caller:
            assert (await call(caller, port)).status == status
    assert inner_asked.requests == []


async def test_no_proxy_is_taken_from_the_environment(monkeypatch):
    async with answering(answer(500)) as (proxy, proxied), answering(OK) as (port, asked):
        for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy}")
        monkeypatch.delenv("no_proxy", raising=False)
        async with a_caller(f"127.0.0.1:{port}") as caller:
            assert (await call(caller, port)).status == 200
    assert (len(asked.requests), proxied.requests) == (1, [])


async def test_no_cookie_is_kept():
    cookie = answer(200, b"", "Set-Cookie: a=b; Path=/")
    async with answering(cookie) as (port, asked), a_caller(f"127.0.0.1:{port}") as caller:
        await call(caller, port)
        await call(caller, port)
    assert b"Cookie" not in asked.requests[1]


async def test_a_connection_is_kept_for_the_next_call():
    async with answering(OK) as (port, asked), a_caller(f"127.0.0.1:{port}") as caller:
        for _ in range(3):
            await call(caller, port)
    assert (len(asked.requests), asked.connections) == (3, 1)


async def test_a_kept_connection_does_not_outlive_a_change_of_address():
    """The name leads to one address and then to another: the second call goes to the second one."""
    names = Names(moving_example=[["127.0.0.1"], ["127.0.0.2"]])
    async with answering(OK, host="127.0.0.1") as (port, first):
        other = await asyncio.start_server(lambda reader, writer: _note(reader, writer, second), "127.0.0.2", port)
        second: list[bytes] = []
        async with other, a_caller(f"127.0.0.0/8:{port}", names=names) as caller:
            for _ in range(2):
                await call(caller, port, host="moving.example")
    assert (len(first.requests), len(second)) == (1, 1)
    assert f"Host: moving.example:{port}".encode() in second[0]


async def _note(reader, writer, requests):
    requests.append(await read_request(reader))
    writer.write(OK)
    await writer.drain()
    writer.close()


async def test_two_names_of_one_address_share_no_connection():
    names = Names(one_example=[["127.0.0.1"]], other_example=[["127.0.0.1"]])
    async with answering(OK) as (port, asked), a_caller(f"127.0.0.1:{port}", names=names) as caller:
        await call(caller, port, host="one.example")
        await call(caller, port, host="other.example")
    assert asked.connections == 2


async def test_the_next_address_is_tried_when_the_first_takes_no_connection():
    names = Names(two_example=[["127.0.0.9", "127.0.0.1"]])
    async with answering(OK) as (port, asked), a_caller(f"127.0.0.0/8:{port}", names=names) as caller:
        assert (await call(caller, port, host="two.example")).status == 200
    assert len(asked.requests) == 1


async def test_network_failure_is_reported_in_one_sentence_without_addresses():
    async def hang_up(reader, writer):
        await reader.read(1)

    async def break_off(reader, writer):
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
        await writer.drain()

    said = set()
    async with (
        serving(hang_up) as one,
        serving(break_off) as two,
        a_caller("127.0.0.0/8:1", f"127.0.0.1:{one}", f"127.0.0.1:{two}") as caller,
    ):
        for place in (
            f"http://127.0.0.1:{one}",
            f"http://127.0.0.1:{two}",
            f"https://127.0.0.1:{one}",
            "http://127.0.0.1:1",
        ):
            with pytest.raises(NoAnswer) as error:
                await caller.call(place, POST, tenant=TENANT, seconds=5)
            assert error.value.detail
            said.add(str(error.value))
    assert said == {"no response: the connection failed, or closed before the response was complete"}


@pytest.mark.parametrize("garbage", [b"SSH-2.0-OpenSSH_9.2\r\n", b"\x16\x03\x01\x02\r\n\r\n", b"HTTP/9.9 x y\r\n\r\n"])
async def test_response_that_is_not_http_is_an_error(garbage):
    async def speak(reader, writer):
        await read_request(reader)
        writer.write(garbage)
        await writer.drain()

    async with serving(speak) as port, a_caller(f"127.0.0.1:{port}") as caller:
        with pytest.raises(OutboundError):
            await call(caller, port)


async def test_switching_protocols_is_no_answer():
    switching = b"HTTP/1.1 101 Sure\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"
    async with answering(switching) as (port, _), a_caller(f"127.0.0.1:{port}") as caller:
        with pytest.raises(BadAnswer, match="101"):
            await call(caller, port)


async def test_nothing_is_sent_where_the_guard_refuses():
    async with answering(OK) as (port, asked), a_caller() as caller:
        with pytest.raises(NotAllowed):
            await call(caller, port)
    assert (asked.requests, asked.connections) == ([], 0)


async def test_a_cancelled_call_hangs_up():
    hung_up = asyncio.Event()
    began = asyncio.Event()

    async def wait(reader, writer):
        await read_request(reader)
        began.set()
        assert await reader.read() == b""
        hung_up.set()

    async with serving(wait) as port, a_caller(f"127.0.0.1:{port}") as caller:
        task = asyncio.create_task(call(caller, port))
        await began.wait()
        task.cancel()
        await asyncio.wait_for(hung_up.wait(), 5)
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_a_connection_that_leads_elsewhere_is_not_spoken_to(monkeypatch):
    """Whatever made it so, the network or the loop: what was checked is the address, so it is looked at last."""
    async with answering(OK) as (port, asked), a_caller(f"127.0.0.0/8:{port}") as caller:
        loop = asyncio.get_running_loop()
        connect = loop.create_connection

        async def lead_astray(protocol, host, port, **options):
            return await connect(protocol, "127.0.0.1", port, **options)

        monkeypatch.setattr(loop, "create_connection", lead_astray)
        with pytest.raises(NoAnswer) as error:
            await call(caller, port, host="127.0.0.2")
    assert "not to 127.0.0.2" in error.value.detail
    assert asked.requests == []
