"""An app with a name: its handlers are called by it, so that each job reaches the app it is meant for."""

from duly import App
from duly.moves.claim import claim
from tests.builders import a_worker, claimed


def an_app(url: str, name: str | None) -> App:
    app = App(url, name=name)

    @app.handler
    async def shared(number: int) -> int:
        return number

    @app.handler(name="call", aliases=["telephone"])
    async def phone() -> None: ...

    return app


async def test_two_apps_with_one_handler_name_submit_each_to_itself(database_url, database):
    for name in ("shop", "bank"):
        async with an_app(database_url, name) as app:
            await app["shared"].submit(7)

    found = await database.fetch("select handler from duly.ready order by handler")

    assert found == [("bank:shared",), ("shop:shared",)]


async def test_a_worker_of_one_is_not_given_the_runs_of_the_other(database_url, database):
    async with an_app(database_url, "shop") as shop, an_app(database_url, "bank") as bank:
        await shop["shared"].submit(1)
        mine = await bank["shared"].submit(2)
        worker_id = await a_worker(database, handlers=bank.registry.names())

        assert await claimed(database, worker_id) == []
        found = await claim(database, worker_id, ["default"], bank.registry.names(), 10)

    assert [run.run_id for run in found] == [mine.run_id]


def test_its_handlers_are_found_with_its_name_and_without_and_aliases_stay_as_they_are():
    app = an_app("postgresql://nowhere", "shop")

    assert app.registry.names() == ["shop:shared", "shop:call", "telephone"]
    assert app["shared"] is app["shop:shared"]
    assert app["telephone"] is app["call"]


def test_an_app_without_a_name_calls_them_by_their_own():
    assert an_app("postgresql://nowhere", None).registry.names() == ["shared", "call", "telephone"]
