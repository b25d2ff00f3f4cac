"""Apprise in its child process: it calls what is allowed, and nothing else, whatever its URL asks."""

import pytest

from duly.outbound.apprise import Apprise
from duly.outbound.calling import DeadlinePassed
from duly.outbound.egress import Egress, read_allowance
from duly.outbound.errors import BadAnswer, NotAllowed
from tests.outbound.servers import answer, answering, serving

SCHEMES = ("json", "syslog")


async def delivered(url, *allow, seconds=15.0, schemes=SCHEMES):
    apprise = Apprise(schemes, Egress(allowances=tuple(map(read_allowance, allow))))
    await apprise.deliver(url.partition("://")[0], url, "title", "body", seconds=seconds)


async def test_service_is_called_at_an_allowed_address():
    async with answering(answer(200)) as (port, asked):
        await delivered(f"json://127.0.0.1:{port}/in", f"127.0.0.1:{port}")

    assert b'"title": "title"' in asked.requests[0]


async def test_address_that_is_not_allowed_is_not_called():
    async with answering(answer(200)) as (port, asked):
        with pytest.raises(NotAllowed) as refused:
            await delivered(f"json://127.0.0.1:{port}/hush")

    assert (asked.connections, "hush" in str(refused.value)) == (0, False)


async def test_scheme_that_is_not_named_is_not_allowed():
    with pytest.raises(NotAllowed, match="apprise_schemes"):
        await delivered("json://127.0.0.1/in", schemes=("slack",))


async def test_url_that_apprise_cannot_read_is_an_error():
    with pytest.raises(BadAnswer, match="cannot read"):
        await delivered("json://")


async def test_service_that_hangs_is_killed_at_the_deadline():
    async def hang(reader, writer):
        await reader.read()

    async with serving(hang) as port:
        with pytest.raises(DeadlinePassed):
            await delivered(f"json://127.0.0.1:{port}/in", f"127.0.0.1:{port}", seconds=2.0)


async def test_service_that_does_not_call_out_is_refused_even_if_its_scheme_is_allowed():
    with pytest.raises(NotAllowed):
        await delivered("syslog://")
