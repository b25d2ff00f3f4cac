"""A database that goes away while a command follows a run."""

import asyncio
from typing import Any
from unittest.mock import AsyncMock
from uuid import UUID

import pytest

from duly.api.problems import found_in
from duly.cli.commands import workflows
from duly.cli.commands.runs import patience
from duly.cli.failures import REFUSED
from duly.client.errors import Unavailable as NoAnswer
from duly.moves.cancel import cancel_run
from duly.store.connection.database import Database, DiskFull, ReadOnly, Unavailable
from tests.builders import a_ready_run
from tests.cli.processes import running
from tests.outage import a_server, away
from tests.worker.stories import until

SILENT = "the database did not respond"
# Whether so many commands have asked about their runs: each ends what it asked with a commit.
LOOKS = """select count(*) >= $1 from pg_stat_activity where application_name = 'duly' and query ilike 'commit%'"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with a_server(tmp_path_factory.mktemp("restart")) as started:
        yield started


@pytest.fixture
async def store(server):
    async with Database(server.url, application="the test") as database:
        yield database


async def test_commands_that_follow_a_run_survive_a_database_restart(server, store, tmp_path):
    run_id = await a_ready_run(store)
    where = ("--database-url", server.url)
    with (
        running("run", "greet", "--wait", *where, cwd=tmp_path) as waiting,
        running("logs", str(run_id), "-f", *where, cwd=tmp_path) as logs,
        running("runs", "show", str(run_id), "-f", *where, cwd=tmp_path) as shown,
    ):
        await asyncio.to_thread(waiting.wait_for_line, "job ")
        await until(lambda: store.fetchval(LOOKS, 3))
        async with away(server):
            for process in (waiting, logs, shown):
                await asyncio.to_thread(process.wait_for_line, SILENT)
        for row in await store.fetch("select run_id from duly.ready"):
            await cancel_run(store, row["run_id"])
        codes = [await asyncio.to_thread(process.process.wait, 20) for process in (waiting, logs, shown)]

    assert codes == [REFUSED, 0, 0]
    for process in (waiting, logs, shown):
        assert "cancelled" in process.text
        assert process.text.count(SILENT) == process.text.count("; waiting") == 1


@pytest.mark.parametrize("error", [Unavailable(SILENT), DiskFull("could not write"), ReadOnly("a standby")])
async def test_command_prints_the_reason_while_it_waits_for_the_database(monkeypatch, capsys, error):
    """A database without room answers, and so does one that takes no writes."""
    monkeypatch.setattr(patience, "_PAUSE_SECONDS", 0.01)
    told = found_in(error, is_local=True)
    assert told is not None
    refused = NoAnswer(told.detail)
    question = AsyncMock(side_effect=[refused, refused, "an answer"])

    assert await patience.about_run(UUID(int=7)).until_answered(question) == "an answer"
    assert capsys.readouterr().err == f"{error}; waiting\n"


async def test_command_ends_after_a_long_silence_and_reports_that_the_run_continues(monkeypatch, capsys):
    monkeypatch.setattr(patience, "_SILENCE_SECONDS_MAX", 0.6)
    run_id = UUID(int=7)

    async def nobody_answers():
        raise NoAnswer(SILENT)

    with pytest.raises(NoAnswer, match=rf"did not respond, for 1 s\. The run goes on .*: duly logs {run_id} -f"):
        await patience.about_run(run_id).until_answered(nobody_answers)
    assert capsys.readouterr().err == f"{SILENT}; waiting\n"


async def test_a_workflow_that_is_waited_for_may_outlast_its_database(monkeypatch, capsys):
    monkeypatch.setattr(patience, "_PAUSE_SECONDS", 0.01)
    answers = iter([{"state": "running"}, None, None, {"state": "succeeded"}])

    async def read(client, workflow_id):
        if (found := next(answers)) is None:
            raise NoAnswer(SILENT)
        return found

    monkeypatch.setattr(workflows, "read_workflow_row", read)
    client: Any = None
    assert await workflows._ended(client, UUID(int=7)) == {"state": "succeeded"}
    assert capsys.readouterr().err == f"{SILENT}; waiting\n"
