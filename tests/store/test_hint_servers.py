"""Hints on servers where a notification could make a submit fail: none does."""

import asyncio

import asyncpg
import pytest

from duly.moves.submit import submit
from duly.postgres import embedded
from duly.store.connection.database import Database
from tests.builders import a_key, a_submission, counts
from tests.clock import ManualClock
from tests.conftest import make_template
from tests.hints import listening

SETTINGS = {"two phases": {"max_prepared_transactions": "2"}, "short queue": {"max_notify_queue_pages": "64"}}
FULL_PAGES = 40


@pytest.fixture
async def served(request, tmp_path):
    """A database on a server with settings of its own."""
    with embedded.start(tmp_path, settings={"shared_buffers": "32MB", **SETTINGS[request.param]}) as started:
        await make_template(started.url)
        async with Database(started.url, size_max=4, clock=ManualClock()) as database:
            yield database


@pytest.mark.parametrize("served", ["two phases"], indirect=True)
async def test_a_transaction_with_a_submit_can_be_prepared(served):
    connection = await asyncpg.connect(served.url)
    async with listening(served.url) as heard:
        await connection.execute("begin; select duly.submit('send_mail'); prepare transaction 'first phase'")
        assert (await submit(served, a_submission(), key=a_key())).needs_hint
        await connection.execute("commit prepared 'first phase'")

        assert await counts(served) == {"ready": 2}
        assert await heard.all() == []
    await connection.close()


@pytest.mark.parametrize("served", ["short queue"], indirect=True)
async def test_behind_a_listener_that_does_not_read_a_submit_commits_without_a_hint(served):
    """Such as a session that listens and stays in a transaction: its server's queue of notifications fills."""
    deaf, other = await asyncpg.connect(served.url), await asyncpg.connect(served.url)
    assert not (await submit(served, a_submission(), key=a_key())).needs_hint
    await deaf.execute("listen anything")
    await deaf.execute("begin; select 1")
    for number in range(FULL_PAGES):
        await other.execute(f"select pg_notify('anything', '{number}' || repeat('x', 7000))")

    async with asyncio.timeout(5):
        assert (await submit(served, a_submission(), key=a_key())).needs_hint
    assert await counts(served) == {"ready": 2}

    await deaf.close()
    await other.close()
