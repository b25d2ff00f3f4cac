"""The address of the database, and the errors when it cannot be used."""

import asyncio
import gc
import re

import pytest

from duly import App, DatabaseUnusable
from duly.postgres import embedded
from duly.store.connection.database import Database
from tests.builders import counts


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """A folder of its own, without settings."""
    monkeypatch.chdir(tmp_path)
    for name in ("DULY_DATABASE_URL", "DULY_DATA", "DULY_URL"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def ticking(url: str | None = None):
    app = App(url)

    @app.handler
    def tick() -> None: ...

    return app, tick


def test_app_url_takes_precedence_over_the_environment(elsewhere, monkeypatch):
    monkeypatch.setenv("DULY_DATABASE_URL", "postgresql:///from_environment")

    assert App("postgresql:///given").locate() == "postgresql:///given"


def test_a_worker_tells_an_app_without_an_address_where_it_runs(elsewhere):
    told, given = App(), App("postgresql:///given")
    told.suggest("postgresql:///of_the_worker")
    given.suggest("postgresql:///of_the_worker")

    assert told.locate() == "postgresql:///of_the_worker"
    assert given.locate() == "postgresql:///given"


def test_app_url_falls_back_to_the_environment(elsewhere, monkeypatch):
    monkeypatch.setenv("DULY_DATABASE_URL", "postgresql:///from_environment")

    assert App().locate() == "postgresql:///from_environment"


def test_app_url_falls_back_to_the_settings_file(elsewhere):
    (elsewhere / "duly.toml").write_text('database_url = "postgresql:///from_file"')

    assert App().locate() == "postgresql:///from_file"


def test_app_url_falls_back_to_a_running_duly_up(elsewhere, monkeypatch):
    monkeypatch.setattr(embedded, "attach", {elsewhere / ".duly": "postgresql:///attached"}.get)

    assert App().locate() == "postgresql:///attached"


def test_without_any_the_remedies_are_named(elsewhere):
    with pytest.raises(DatabaseUnusable, match=r"nothing runs on .*\.duly.*`duly up`.*DULY_DATABASE_URL.*App\(url\)"):
        App().locate()


def test_a_duly_over_http_is_no_database_and_its_client_is_named(elsewhere, monkeypatch):
    remedy = r" names a Duly over HTTP, .*duly\.example.*`duly\.Client`.*docs/how-to/client\.md.*DULY_DATABASE_URL"
    with pytest.raises(DatabaseUnusable, match=rf"App\(url\){remedy}") as refused:
        App("https://somebody:secret@duly.example").locate()
    assert "secret" not in str(refused.value)

    monkeypatch.setenv("DULY_URL", "https://duly.example")
    with pytest.raises(DatabaseUnusable, match=f"DULY_URL{remedy}"):
        App().locate()
    monkeypatch.setenv("DULY_DATABASE_URL", "postgresql:///from_environment")
    assert App().locate() == "postgresql:///from_environment"


def test_duly_url_takes_precedence_over_a_local_duly_up(elsewhere, monkeypatch):
    monkeypatch.setattr(embedded, "attach", lambda folder: f"postgresql:///{folder.name}")
    monkeypatch.setenv("DULY_URL", "https://duly.example")
    with pytest.raises(DatabaseUnusable, match="DULY_URL names a Duly over HTTP"):
        App().locate()

    monkeypatch.setenv("DULY_DATA", str(elsewhere / "chosen"))
    assert App().locate() == "postgresql:///chosen"


def test_a_misspelt_setting_is_named(elsewhere, monkeypatch):
    monkeypatch.setenv("DULY_DATABASE_ULR", "postgresql:///x")

    with pytest.raises(DatabaseUnusable, match="DULY_DATABASE_URL"):
        App().locate()


async def test_submit_to_an_unreachable_database_reports_a_remedy(tmp_path):
    app, tick = ticking(f"postgresql:///duly?host={tmp_path}")

    with pytest.raises(
        DatabaseUnusable, match=rf"no database responds at .*{re.escape(str(tmp_path))}.* Check the address"
    ):
        await tick.submit()
    await app.close()


@pytest.fixture
def refused(own_database_url, own_database):
    """Submit to a database that cannot be used: gives the sentence, after checking that nothing was written."""

    async def submit(addition: str = "") -> str:
        app, tick = ticking(own_database_url + addition)
        with pytest.raises(DatabaseUnusable) as error:
            await tick.submit()
        await app.close()
        assert await counts(own_database) == {}
        return str(error.value)

    return submit


async def test_a_database_that_is_too_old_is_refused(refused, monkeypatch):
    monkeypatch.setattr("duly.store.connection.database.VERSION_MIN", 990_000)

    assert "is too old; Duly needs 99 or newer" in await refused()


async def test_a_database_that_is_read_only_is_refused(refused):
    sentence = await refused("&default_transaction_read_only=on")

    assert "read-only" in sentence
    assert "point DULY_DATABASE_URL at the primary" in sentence


async def test_a_role_that_does_not_exist_is_refused(refused):
    assert "Check DULY_DATABASE_URL" in await refused("&user=nobody_of_that_name")


async def test_data_of_a_newer_duly_is_refused(refused, own_database):
    await own_database.execute(
        "insert into duly.migrations (version, name, finished_at) values (9999, 'future', now())"
    )

    sentence = await refused()

    assert "newer Duly (schema 9999" in sentence
    assert "pip install --upgrade duly" in sentence


async def test_a_database_without_the_schema_is_refused(refused, own_database):
    await own_database.execute("delete from duly.migrations where version = 1")

    assert "Run `duly migrate`" in await refused()


async def test_database_is_used_again_when_it_becomes_usable(database_url, database, monkeypatch):
    app, tick = ticking(database_url)
    monkeypatch.setattr("duly.store.connection.database.VERSION_MIN", 990_000)
    with pytest.raises(DatabaseUnusable):
        await tick.submit()

    monkeypatch.undo()
    await tick.submit()
    await app.close()
    assert await counts(database) == {"ready": 1}


@pytest.mark.filterwarnings("error")
def test_each_loop_has_connections_of_its_own_and_takes_them_along(database_url):
    _, tick = ticking(database_url)

    async def submit_both() -> None:
        await asyncio.gather(tick.submit(), tick.submit())

    for _ in range(3):
        asyncio.run(submit_both())
        gc.collect()


async def test_many_first_uses_at_once_open_one_pool(database_url, monkeypatch):
    opened = []
    open_database = Database.open

    async def counted(self):
        opened.append(self)
        return await open_database(self)

    monkeypatch.setattr(Database, "open", counted)
    app, tick = ticking(database_url)
    await asyncio.gather(*(tick.submit() for _ in range(20)))
    await app.close()
    assert len(opened) == 1
