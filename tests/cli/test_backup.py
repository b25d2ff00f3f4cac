"""`duly backup` and `duly restore`: a backup is whole or none, and a restored system waits for a person."""

import asyncio
import io
import json
import shutil
import signal
import subprocess
from datetime import timedelta

import psutil
import psycopg
import pytest

from duly.clock import Rng
from duly.domain.runs.outcome import Succeeded
from duly.log import Log
from duly.postgres import backup_folder
from duly.postgres.clients import find_clients
from duly.postgres.errors import BinariesMissing
from duly.scheduler.service import Scheduler
from duly.store.connection.database import Database
from tests.builders import a_leased_run, a_ready_run, a_worker, settled
from tests.cli.processes import DULY, environment, inside, wait_for
from tests.clock import ManualClock
from tests.schedules.stories import a_cron

KEYRING = "one:" + "A" * 43 + "=\n"
OTHER_KEYRING = "one:" + "B" * 43 + "=\n"
TABLES = ("jobs", "timers", "ready", "leased", "attempts_succeeded_default", "api_keys", "functions")
# A program of a large database takes its time.
SLOW = '#!/bin/sh\ncase "$1" in --version) echo "pg_dump (PostgreSQL) 18.4" ;; *) exec sleep 60 ;; esac\n'


@pytest.fixture
def duly(tmp_path):
    return lambda *arguments, **more: inside(*map(str, arguments), cwd=tmp_path, **more)


@pytest.fixture
def empty(postgres):
    """The address of a database without anything."""
    name = postgres.create()
    yield postgres.url(name)
    postgres.drop_database(name)


@pytest.fixture
def used(database_url, tmp_path):
    """The address of a database with schedules, runs and history, in which no process is alive."""
    on(database_url, a_story)
    return database_url


@pytest.fixture(scope="module")
def kept(postgres, template, tmp_path_factory):
    """A backup, made once."""
    folder, name = tmp_path_factory.mktemp("kept"), postgres.create(template)
    on(postgres.url(name), a_story)
    written = inside("backup", "first", "--database-url", postgres.url(name), cwd=folder)
    assert written.returncode == 0, written.stderr
    postgres.drop_database(name)
    return folder / "first"


@pytest.fixture
def first(kept, tmp_path):
    """A copy of it, called `first`."""
    return shutil.copytree(kept, tmp_path / "first")


async def a_story(database, clock):
    await a_cron(database, "30 * * * *", name="hourly")
    worker_id, done = await a_leased_run(database)
    await settled(database, worker_id, done, Succeeded())
    await a_leased_run(database, worker_id)
    await a_ready_run(database)
    await clock.advance(60)


async def three_hours_later(database, clock):
    await clock.advance(timedelta(hours=3))
    scheduler = Scheduler(database, name="new", rng=Rng(1), log=Log("test"))
    await scheduler.renew()
    await scheduler.step()
    await scheduler._release_shards()


def on(url, story):
    async def told():
        clock = ManualClock()
        async with Database(url, clock=clock) as database:
            clock.at = await database.fetchval("select duly.clock_now()")
            clock.moves(database)
            return await story(database, clock)

    return asyncio.run(told())


def ask(url, query):
    with psycopg.connect(url, autocommit=True) as connection:
        return connection.execute(query.encode()).fetchall()


def rows(url):
    return {table: ask(url, f"select count(*) from duly.{table}")[0][0] for table in TABLES}


def test_restored_database_holds_what_the_backup_held_and_waits_for_approval(duly, used, empty, tmp_path):
    before = rows(used)
    written = duly("backup", "first", "--database-url", used)
    assert written.returncode == 0, written.stderr
    assert "keep a copy" in written.stdout
    assert duly("backup", "--verify", "first").returncode == 0

    restored = duly("restore", "first", "--database-url", empty)

    assert restored.returncode == 0, restored.stderr
    assert "1 run in flight" in restored.stdout
    assert "everything is paused" in restored.stdout
    assert rows(empty) == before
    assert ask(empty, "select paused_by from duly.pauses") == [("duly restore",)]
    assert ask(empty, "select count(*) from duly.workers") == [(0,)]
    on(empty, three_hours_later)
    shown = json.loads(duly("recover", "--json", "--database-url", empty).stdout)
    assert (shown["recovery"]["state"], len(shown["in_flight"]), shown["due"]) == ("open", 1, 1)
    assert [item["missed"] for item in shown["items"]] == [3]

    explained = duly("explain", shown["in_flight"][0]["run_id"], "--database-url", empty)
    assert "the backup that was restored" in explained.stdout

    approved = duly("recover", "approve", "--yes", "--database-url", empty)

    assert approved.returncode == 0, approved.stderr
    assert ask(empty, "select count(*) from duly.pauses") == [(0,)]
    assert duly("verify", "--database-url", empty).returncode == 0


def test_backup_is_never_overwritten_and_leaves_nothing_when_refused(duly, used, tmp_path):
    (tmp_path / "taken").mkdir()

    for refused in (
        duly("backup", "taken", "--database-url", used),
        duly("backup", "new", "--with-keyring", "--database-url", used),
        duly("backup", "new", "--database-url", "postgresql:///nothing?host=/nonexistent"),
        duly("backup", "new"),
    ):
        assert refused.returncode in (1, 3), refused.stderr

    assert [path.name for path in tmp_path.iterdir()] == ["taken"]
    assert list((tmp_path / "taken").iterdir()) == []


def test_restore_refuses_a_database_that_is_not_empty_unless_it_may_replace_it(
    duly, first, own_database_url, monkeypatch
):
    before = rows(own_database_url)

    refused = duly("restore", "first", "--database-url", own_database_url)
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    declined = duly("restore", "first", "--replace", "--database-url", own_database_url)

    assert "--replace" in refused.stderr
    assert (refused.returncode, declined.returncode) == (1, 1)
    assert rows(own_database_url) == before
    replaced = duly("restore", "first", "--replace", "--yes", "--database-url", own_database_url)
    assert replaced.returncode == 0, replaced.stderr
    assert rows(own_database_url)["jobs"] == before["jobs"] + 1


def test_restore_refuses_a_database_in_use(duly, first, own_database_url):
    async def somebody(database, clock):
        await a_worker(database)

    on(own_database_url, somebody)
    for how in (["first", "--replace", "--yes"], ["--in-place"]):
        refused = duly("restore", *how, "--database-url", own_database_url)
        assert refused.returncode == 1
        assert "is in use: worker worker" in refused.stderr
    with psycopg.connect(own_database_url, application_name="duly worker"):
        ask(own_database_url, "delete from duly.workers returning 1")
        assert (
            "is in use: duly worker, process"
            in duly("restore", "--in-place", "--database-url", own_database_url).stderr
        )


def cut(folder):
    dump = folder / "database.dump"
    dump.write_bytes(dump.read_bytes()[:-1])


def flip(folder):
    dump = folder / "database.dump"
    whole = bytearray(dump.read_bytes())
    whole[len(whole) // 2] ^= 1
    dump.write_bytes(whole)


def edit(folder):
    manifest = folder / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"jobs":1', '"jobs":2'))


@pytest.mark.parametrize(
    "damage",
    [cut, flip, edit, lambda folder: (folder / "manifest.json").unlink(), lambda folder: (folder / "database.dump").unlink()],
    ids=["cut", "flipped", "edited", "no manifest", "no dump"],
)  # fmt: skip
def test_damaged_or_unfinished_backup_is_refused_before_anything_is_touched(damage, duly, used, first):
    before = rows(used)
    damage(first)

    checked = duly("backup", "--verify", "first")
    refused = duly("restore", "first", "--replace", "--yes", "--database-url", used)

    assert (checked.returncode, refused.returncode) == (1, 1)
    assert "first is" in refused.stderr
    assert rows(used) == before


def test_verify_counts_the_rows_of_the_dump(duly, first):
    manifest = backup_folder.read_backup(first)
    (first / "manifest.json").unlink()
    wrong = {**manifest.rows, "jobs": manifest.rows["jobs"] + 1}
    backup_folder.write_manifest(first, type(manifest)(**{**as_dict(manifest), "rows": wrong}))

    checked = duly("backup", "--verify", "first")

    assert checked.returncode == 1
    assert "table jobs" in checked.stderr


def as_dict(manifest):
    return {name: getattr(manifest, name) for name in manifest.__struct_fields__}


@pytest.mark.parametrize("request_", [signal.SIGTERM, signal.SIGINT])
def test_interrupted_backup_leaves_neither_a_folder_nor_a_program(request_, used, tmp_path):
    programs, place = tmp_path / "bin", tmp_path / "place"
    for folder in (programs, place):
        folder.mkdir()
    for name in ("pg_dump", "pg_restore", "psql"):
        (programs / name).write_text(SLOW)
        (programs / name).chmod(0o755)
    path = f"{programs}:{environment()['PATH']}"
    with start("backup", "first", "--database-url", used, cwd=place, PATH=path) as process:
        pg_dump = wait_for(lambda: child_of(process, "sleep"))
        assert [folder.name[:17] for folder in place.iterdir()] == ["first.unfinished-"]
        process.send_signal(request_)
        assert process.wait(30) == 130

    assert list(place.iterdir()) == []
    assert not pg_dump.is_running()


def test_killed_restore_leaves_the_old_state(duly, first, own_database_url, tmp_path):
    before = rows(own_database_url)
    with psycopg.connect(own_database_url) as blocking:
        blocking.execute("select from duly.jobs")
        arguments = ("restore", "first", "--replace", "--yes", "--database-url", own_database_url)
        with start(*arguments, cwd=tmp_path) as process:
            psql = wait_for(lambda: child_of(process, "psql"))
            wait_for(lambda: ask(own_database_url, "select 1 from pg_locks where not granted"))
            process.kill()
    psutil.wait_procs([psql], timeout=10)

    assert not psql.is_running()
    assert rows(own_database_url) == before
    assert duly(*arguments).returncode == 0


def start(*arguments, cwd, **more) -> subprocess.Popen[bytes]:
    return subprocess.Popen([*DULY, *arguments], cwd=cwd, env=environment(**more), stderr=subprocess.DEVNULL)


def child_of(process, name):
    children = psutil.Process(process.pid).children(recursive=True)
    return next((child for child in children if child.name() == name), None)


def test_keyring_is_in_the_backup_only_on_request_and_restore_says_whether_one_fits(
    duly, used, empty, postgres, tmp_path
):
    for name, text in (("keyring", KEYRING), ("other", OTHER_KEYRING)):
        (tmp_path / name).write_text(text)
    duly("backup", "without", "--database-url", used, "--secrets-key", "keyring")
    duly("backup", "with", "--with-keyring", "--database-url", used, "--secrets-key", "keyring")

    assert not (tmp_path / "without" / "secrets-key").exists()
    held = tmp_path / "with" / "secrets-key"
    assert held.read_text() == KEYRING
    assert held.stat().st_mode & 0o077 == 0
    assert KEYRING.split(":")[1].strip() not in (tmp_path / "without" / "manifest.json").read_text()
    fits = duly("restore", "without", "--database-url", empty, "--secrets-key", "keyring")
    other = duly("restore", "with", "--replace", "--yes", "--database-url", empty, "--secrets-key", "other")
    assert "the keyring fits" in fits.stdout
    assert "the keyring does not fit: secrets sealed with key one" in other.stdout, "the id is the same, the key is not"
    assert str(held) in other.stdout.replace("with/", f"{tmp_path}/with/") or "with/secrets-key" in other.stdout


def test_restore_in_place_holds_a_database_that_postgresql_has_restored(duly, used):
    ask(used, "delete from duly.workers returning 1")

    held = duly("restore", "--in-place", "--database-url", used)

    assert held.returncode == 0, held.stderr
    assert "1 run in flight" in held.stdout
    assert ask(used, "select paused_by from duly.pauses") == [("duly restore",)]


def test_backup_of_an_older_server_is_restored_there_and_on_a_newer_one_but_not_the_other_way(
    duly, used, empty, postgres_15, template_15, tmp_path
):
    source, target = postgres_15.create(template_15), postgres_15.create()
    old, fresh = postgres_15.url(source), postgres_15.url(target)
    on(old, a_story)
    assert duly("backup", "old", "--database-url", old).returncode == 0
    assert duly("backup", "new", "--database-url", used).returncode == 0

    refused = duly("restore", "new", "--database-url", fresh)
    assert "restore it on version 18 or newer" in refused.stderr
    for url in (fresh, empty):
        restored = duly("restore", "old", "--database-url", url)
        assert restored.returncode == 0, restored.stderr
        assert rows(url) == rows(old)


def test_missing_client_programs_are_named():
    with pytest.raises(BinariesMissing, match="PostgreSQL 99 or newer"):
        find_clients(99)


def test_wrong_use_is_refused(duly, tmp_path):
    for arguments in (["restore"], ["restore", "first", "--in-place"], ["backup", "--verify"]):
        assert duly(*arguments).returncode == 2
