"""The registrar: what it says and how often, and that a worker has one."""

import asyncio
import logging

import pytest

from duly import App
from duly.clock import Rng
from duly.domain.jobs.declaration import REMOVED
from duly.log import Log
from duly.moves.cancel import cancel_job
from duly.store.connection.database import Database
from duly.store.tables import declared
from duly.worker.registrar import LOOK_AGAIN_SECONDS, LOOK_SECONDS, Registrar
from tests.builders import an_active_schedule, jobs_listed
from tests.clock import ManualClock
from tests.worker.stories import registry_of, until, working


def an_app(**when) -> App:
    app = App()
    app.handler(**when)(nightly)
    return app


def nightly() -> None: ...


NAME = f"{__name__}:nightly"


def registrar_of(app: App, database: Database) -> Registrar:
    return Registrar(database, app.declarations("app:app"), rng=Rng(1), log=Log("worker"))


@pytest.fixture
def said(caplog):
    """What was logged: each event with its level."""
    caplog.set_level(logging.INFO, "duly.worker")

    def events():
        found = [(record.levelname.lower(), record.getMessage()) for record in caplog.records]
        caplog.clear()
        return found

    return events


async def test_registrar_logs_each_change_and_does_not_repeat_a_lasting_state(database, said):
    theirs = await an_active_schedule(database, name=NAME)
    first = registrar_of(an_app(cron="0 2 * * *"), database)
    await first.look()
    await first.look()
    assert said() == [("warning", "schedule_name_taken")]

    await cancel_job(database, theirs.job_id)
    await first.look()
    assert said() == [("info", "schedule_created")]

    await registrar_of(an_app(), database).look()
    assert said() == [("warning", "schedule_removed")]

    await registrar_of(an_app(cron="0 3 * * *", calendars=["none"]), database).look()
    assert said() == [("error", "schedule_refused")]


class Hours(ManualClock):
    """A clock on which sleeping takes its time at once, and is noted."""

    def __init__(self) -> None:
        super().__init__()
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        if len(self.slept) == 3:
            raise asyncio.CancelledError
        await asyncio.sleep(0)


async def test_registrar_looks_immediately_and_then_every_half_minute(database_url):
    clock = Hours()
    async with Database(database_url, clock=clock) as database:
        with pytest.raises(asyncio.CancelledError):
            await registrar_of(an_app(cron="0 2 * * *"), database).run()

    assert clock.slept == [LOOK_SECONDS] * 3 == [30.0] * 3


async def test_a_look_that_fails_is_repeated_soon(database_url, said):
    clock = Hours()
    database = Database(database_url, clock=clock)
    with pytest.raises(asyncio.CancelledError):
        await registrar_of(an_app(cron="0 2 * * *"), database).run()

    assert clock.slept == [LOOK_AGAIN_SECONDS] * 3
    assert said()[0] == ("warning", "schedules_not_registered")


async def test_worker_registers_and_shows_the_jobs_that_its_program_declares(url, store):
    declarations = an_app(cron="0 2 * * *").declarations("app:app")

    async with working(url, registry_of(nightly), declarations=declarations):
        found = await until(lambda: jobs_listed(store))
        assert await declared.live(store, 1) == {NAME: {declarations.jobs[0].digest()}}

    [job] = found
    assert (job["name"], job["owner"], job["source"], job["state"]) == (NAME, "code", "app:app", "active")


async def test_a_worker_of_a_program_that_declares_it_no_longer_pauses_it(url, store):
    for app, state in ((an_app(cron="0 2 * * *"), "active"), (an_app(), "paused")):
        async with working(url, registry_of(nightly), declarations=app.declarations("app:app")):
            await until(lambda state=state: jobs_listed(store, f"state:{state}"))

    [job] = await jobs_listed(store)
    assert (job["state"], job["pause_reason"]) == ("paused", REMOVED)
