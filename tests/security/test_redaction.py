"""Redaction: values that rules name reach the handler, and nothing else: no history, log, notification, answer or export.

A whole `duly up` with a rule of each kind: of the job, of its tenant and of the installation. Its handler repeats the
values wherever it can. Then every table, every answer, what was sent out and what was printed is searched for them.
"""

import asyncio
import hashlib
import json
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import psycopg
import pytest

from duly.clock import Rng
from duly.domain.archive import ArchiveError, ArchivePlace
from duly.log import Log
from duly.moves.archive.export import Exporter
from duly.outbound.archive_files import ArchiveFiles
from duly.store.connection.database import Database
from tests.cli.processes import Up, duly, running, wait_for
from tests.end_to_end.collecting import Collector, collecting
from tests.moves.test_archive import archived_rows, files_in

APP = """
import hashlib, logging
from duly import App, Run, RunLogHandler

app = App()
logging.getLogger("shop").addHandler(RunLogHandler())
logging.getLogger("shop").propagate = False

def digest(*values):
    return hashlib.sha256(" ".join(values).encode()).hexdigest()

async def tell(run, card, pin, password):
    run.log.info(f"charging {card}", card=card, nested={"pins": [pin], "password": "other"})
    logging.getLogger("shop").warning("password %s", password)
    print("printed", card, pin, password)
    await run.progress(1, 2, f"card {card}")
    await run.checkpoint({"card": card, "said": pin})

@app.handler
async def charge(run: Run, customer: dict, pin: str, password: str, fails: bool = False, text: str = "") -> dict:
    await tell(run, customer["card"], pin, password)
    if fails and run.attempt == 1:
        raise ValueError(f"declined {customer} {pin} {password}")
    found = {"digest": digest(customer["card"], pin, password), "said": [f"{pin} and {password}"]}
    return {**found, "customer": {"card": customer["card"]}}

@app.handler
async def book(run: Run, said: list, pin: str) -> dict:
    return {"said": said, "customer": run.parents["pay"]["customer"], "digest": digest(pin)}

@app.handler(queue="default")
def charge_in_thread(run: Run, customer: dict, pin: str, password: str) -> dict:
    print("printed", customer, pin, password)
    return {"digest": digest(customer["card"], pin, password), "password": password}
"""
RULES = {"card": "$.customer.card", "pin": "$.pin", "password": "$..password"}
OVER = ("succeeded", "dead", "cancelled", "expired")
# A definition is whole, because its next runs need it; so is a dead letter, because it can be replayed.
OF_DEFINITIONS = {"jobs", "job_versions", "timers", "payloads", "workflow_nodes"}
OF_DEAD_LETTERS = {"dead", "checkpoints", "payloads"}


class Sink:
    """An HTTP server that keeps what it receives."""

    def __init__(self) -> None:
        self.bodies: list[str] = []
        sink = self

        class Keeping(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                sink.bodies.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Print nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Keeping)
        self.origin = f"http://127.0.0.1:{self.server.server_port}"

    @contextmanager
    def serving(self) -> Iterator["Sink"]:
        thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self.server.shutdown()
            self.server.server_close()
            thread.join(10)


class Shop:
    """An installation with rules, and values that they hide."""

    def __init__(self, up: Up, database_url: str, sink: Sink, alerts: Sink, collector: Collector) -> None:
        self.up = up
        self.sink = sink
        self.alerts = alerts
        self.collector = collector
        self.database_url = database_url
        self.values = {name: f"canary-{name}-{secrets.token_hex(8)}" for name in RULES}
        self.digest = hashlib.sha256(" ".join(self.values.values()).encode()).hexdigest()
        self.answers: list[str] = []
        create = ("keys", "create", "--scope", "admin", "--json")
        self.key = json.loads(duly(*create, cwd=up.folder, DULY_DATABASE_URL=database_url).stdout)["key"]
        self._client = httpx.Client(base_url=up.address, headers={"Authorization": f"Bearer {self.key}"}, timeout=20)

    def payload(self, **more: Any) -> dict[str, Any]:
        """The arguments of the handler, with each value at its place."""
        given = {name: self.values[name] for name in ("pin", "password")}
        return {"customer": {"card": self.values["card"], "name": "Ada"}, **given, **more}

    def ask(self, method: str, path: str, **request: Any) -> Any:
        """Ask, keep the answer, and return it decoded."""
        answer = self._client.request(method, path, **request)
        self.answers.append(f"{method} {path}: {answer.text}")
        assert not answer.is_error, answer.text
        return answer.json() if answer.content else None

    def submit(self, handler: str = "charge", **fields: Any) -> dict[str, Any]:
        """Create a job with a rule of its own."""
        job = {"target": {"type": "function", "handler": handler}, "payload": self.payload(), "redact": [RULES["pin"]]}
        created: dict[str, Any] = self.ask("POST", "/v1/jobs", json={**job, **fields})
        return created

    def ended(self, run_id: str) -> dict[str, Any]:
        """Wait for the end of a run, and return it."""

        def look() -> Any:
            run = self._client.get(f"/v1/runs/{run_id}").json()
            return run if run["state"] in OVER else None

        wait_for(look)
        run: dict[str, Any] = self.ask("GET", f"/v1/runs/{run_id}")
        return run

    def found_in(self, *texts: str) -> set[str]:
        """Name the values that stand in a text."""
        return {name for name, value in self.values.items() if any(value in text for text in texts)}

    def tables(self) -> set[str]:
        """Name the tables in which any of the values stands."""
        with psycopg.connect(self.database_url, autocommit=True) as connection:
            names = connection.execute(
                "select relname from pg_class where relnamespace = 'duly'::regnamespace and relkind = 'r'"
            ).fetchall()
            texts = " or ".join(f"t::text like '%{value}%'" for value in self.values.values())
            look = f"select 1 from duly.{{}} as t where {texts} limit 1"
            return {name for (name,) in names if connection.execute(look.format(name).encode()).fetchone()}


@pytest.fixture(scope="module")
def shop(postgres, tmp_path_factory) -> Iterator[Shop]:
    folder, url = tmp_path_factory.mktemp("redaction"), postgres.url(postgres.create())
    (folder / "shop.py").write_text(APP)
    (folder / "duly.toml").write_text(f'redact = ["{RULES["password"]}"]\n')
    (folder / "secrets").write_text(duly("secrets", "new-key", cwd=folder).stdout)
    (folder / "secrets").chmod(0o600)
    settings = {"DULY_DATABASE_URL": url, "DULY_LOG_LEVEL": "debug", "DULY_LOG_FORMAT": "json"}
    settings["DULY_SECRETS_KEY"] = str(folder / "secrets")
    up = ("up", "--app", "shop:app", "--port", "0", "--no-demo", "--egress-loopback")
    with Sink().serving() as sink, Sink().serving() as alerts, collecting() as collector:
        settings["DULY_OTEL_ENDPOINT"] = collector.endpoint
        with running(*up, cwd=folder, **settings) as process:
            opened = Shop(Up(process, folder), url, sink, alerts, collector)
            opened.ask("PATCH", "/v1/tenants/1", json={"redact": [RULES["card"]]})
            opened.ask("PUT", "/v1/channels/ops", json={"kind": "webhook", "url": f"{alerts.origin}/alerts"})
            rule = {"events": ["failed", "dead", "recovered"], "channels": ["ops"], "deliveries_max": 100}
            opened.ask("PUT", "/v1/notification-rules/everything", json=rule)
            yield opened


def archive(shop: Shop, files: ArchiveFiles) -> list[dict[str, Any]]:
    """Archive all history, and return the rows of the files."""

    async def export() -> None:
        async with Database(shop.database_url) as database:
            after = (await database.read_clock()).date() + timedelta(days=1)
            exporter = Exporter(database, files, rng=Rng(1), log=Log("test"))
            for kind in ("succeeded", "failed"):
                for _ in range(20):
                    try:  # A delivery that ends meanwhile is one row more, and the day is exported anew.
                        await exporter.export_before(kind, after)
                        break
                    except ArchiveError:
                        await asyncio.sleep(0.2)

    asyncio.run(export())
    root = files.place.root
    return [row for file in files_in(files) for row in archived_rows(files, str(file.relative_to(root)))]


def shown(shop: Shop, run: dict[str, Any]) -> None:
    """Check that a run is shown with the marks of its rules."""
    assert run["payload"]["pin"] == "*** ($.pin)"
    assert run["payload"]["customer"] == {"card": "*** ($.customer.card)", "name": "Ada"}
    assert run["payload"]["password"] == "*** ($..password)"


class TestRedaction:
    def test_a_success_leaves_no_value_in_any_table_or_answer(self, shop):
        assert shop.tables() == set()
        waiting = shop.submit(
            on_end={"url": f"{shop.sink.origin}/end"}, schedule={"trigger": {"type": "at", "delay": "PT2S"}}
        )
        shown(shop, shop.ask("GET", f"/v1/runs/{waiting['run_id']}"))
        small, large = shop.submit(), shop.submit(payload=shop.payload(text="x" * 3_000))
        in_thread = shop.submit("charge_in_thread")

        for created in (waiting, small, large, in_thread):
            run = shop.ended(created["run_id"])
            assert (run["state"], run["result"]["digest"]) == ("succeeded", shop.digest), "the handler had the values"
            shown(shop, run)
        assert shop.ended(in_thread["run_id"])["result"]["password"] == "*** ($..password)"
        assert shop.ask("GET", f"/v1/runs/{small['run_id']}")["result"]["customer"] == {"card": "*** ($.customer.card)"}
        logs = shop.ask("GET", f"/v1/runs/{small['run_id']}/logs")["items"]
        assert {"charging *** ($.customer.card)", "password *** ($..password)"} <= {line["message"] for line in logs}
        wait_for(lambda: len(shop.sink.bodies) == 1)
        assert json.loads(shop.sink.bodies[0])["data"]["result"]["said"] == ["*** ($.pin) and *** ($..password)"]
        assert shop.tables() == set()

    def test_a_dead_letter_is_whole_where_it_is_kept_and_can_be_replayed_and_edited(self, shop):
        once = {"retry": {"max_attempts": 1}, "on_failure": {"url": f"{shop.sink.origin}/dead"}}
        dead, sent = shop.submit(payload=shop.payload(fails=True), **once)["run_id"], len(shop.sink.bodies)
        run = shop.ended(dead)
        assert run["state"] == "dead"
        shown(shop, run)
        assert (
            "declined {'card': '*** ($.customer.card)', 'name': 'Ada'} *** ($.pin) *** ($..password)" in run["reason"]
        )
        assert "*** ($.pin)" in run["attempts"][0]["detail"]["traceback"]
        assert shop.ask("GET", f"/v1/runs/{dead}/checkpoint")["value"]["card"] == "*** ($.customer.card)"
        for path in ("/v1/dead", "/v1/dead?group=error", f"/v1/runs/{dead}/explain", f"/v1/runs/{dead}/attempts"):
            shop.ask("GET", path)
        wait_for(lambda: len(shop.sink.bodies) > sent)
        wait_for(lambda: any(dead in body for body in shop.alerts.bodies))
        [noticed] = [one for one in shop.ask("GET", "/v1/notifications")["items"] if one["run_id"] == dead]
        assert "*** ($.pin)" in noticed["text"]
        assert shop.tables() <= OF_DEAD_LETTERS

        shop.ask("PATCH", f"/v1/dead/{dead}", json={"payload": {**run["payload"], "text": "edited"}})
        shop.ask("POST", f"/v1/dead/{dead}/replay")
        again = shop.ended(dead)
        assert (again["state"], again["result"]["digest"]) == ("succeeded", shop.digest)
        assert again["payload"]["text"] == "edited"
        assert shop.tables() == set()

    def test_a_run_that_never_started_leaves_no_value_either(self, shop):
        later = {"schedule": {"trigger": {"type": "at", "delay": "PT1H"}}}
        for large in ("", "x" * 3_000):
            created = shop.submit(payload=shop.payload(text=large), **later)
            shop.ask("POST", f"/v1/runs/{created['run_id']}/cancel", json={})
            run = shop.ended(created["run_id"])
            assert run["state"] == "cancelled"
            shown(shop, run)
        assert shop.tables() == set()

    def test_an_ended_run_is_not_run_again_with_marks_for_values(self, shop):
        run_id = shop.ended(shop.submit()["run_id"])["run_id"]
        refused = shop._client.post(f"/v1/runs/{run_id}/rerun", json={})
        assert (refused.status_code, refused.json()["code"]) == (422, "invalid_option")
        marked = shop._client.post(
            f"/v1/runs/{run_id}/rerun", json={"payload": shop.ask("GET", f"/v1/runs/{run_id}")["payload"]}
        )
        assert (marked.status_code, marked.json()["code"]) == (422, "invalid_payload")
        again = shop.ask("POST", f"/v1/runs/{run_id}/rerun", json={"payload": shop.payload()})
        assert shop.ended(again["run_id"])["result"]["digest"] == shop.digest

    def test_a_definition_is_shown_redacted_and_put_back_whole(self, shop):
        schedule = {"trigger": {"type": "cron", "expr": "0 4 1 1 *"}}
        job = shop.submit(name="nightly", schedule=schedule)["job_id"]
        read = shop.ask("GET", f"/v1/jobs/{job}")
        shown(shop, read)
        assert read["redact"] == ["$.pin"], "the rules of others are not its own"
        unchanged = shop.ask("PUT", f"/v1/jobs/{job}", json=read, headers={"If-Match": "*"})
        assert unchanged["version"] == 1
        changed = shop.ask(
            "PATCH",
            f"/v1/jobs/{job}",
            content=json.dumps({"payload": {"text": "b", "customer": {"name": "Eve"}}}),
            headers={"If-Match": "*", "Content-Type": "application/merge-patch+json"},
        )
        assert (changed["version"], changed["payload"]["customer"]["name"]) == (2, "Eve")
        triggered = shop.ask("POST", f"/v1/jobs/{job}/trigger", json={})
        assert shop.ended(triggered["run_id"])["result"]["digest"] == shop.digest
        own = shop.ask("POST", f"/v1/jobs/{job}/trigger", json={"payload": {**changed["payload"], "text": "c"}})
        assert shop.ended(own["run_id"])["result"]["digest"] == shop.digest
        shop.ask("GET", f"/v1/jobs/{job}/versions")
        assert shop.tables() <= OF_DEFINITIONS
        copy = {name: read[name] for name in ("target", "payload", "redact")}
        refused = shop._client.post("/v1/jobs", json=copy)
        assert (refused.status_code, refused.json()["code"]) == (422, "invalid_payload"), "it would store the mark"

    def test_a_file_with_marks_keeps_the_values(self, shop):
        yearly = {"trigger": {"type": "cron", "expr": "0 4 1 1 *"}}
        of_file: dict[str, Any] = {
            "target": "charge",
            "payload": shop.payload(),
            "redact": ["$.pin"],
            "schedule": yearly,
        }
        file: dict[str, Any] = {"source": "shop", "jobs": {"of-file": of_file}}
        shop.ask("POST", "/v1/jobs:apply", json=file)
        exported = shop.ask("GET", "/v1/jobs:export?source=shop")
        shown(shop, exported["jobs"]["of-file"])
        assert shop.ask("POST", "/v1/jobs:apply?dry_run=true", json=exported)["steps"] == []
        of_file["payload"]["pin"] = another = f"canary-{secrets.token_hex(8)}"
        [step] = shop.ask("POST", "/v1/jobs:apply?dry_run=true", json=file)["steps"]
        assert another not in json.dumps(step)
        assert step["differences"][0]["after"]["pin"] == "*** ($.pin), another value"

    def test_a_node_receives_results_redacted_and_its_own_payload_whole(self, shop):
        """Without its parent's rules it would write the values to history, as results, errors and logs of its own."""
        pay = {"target": {"type": "function", "handler": "charge"}, "payload": shop.payload(), "redact": ["$.pin"]}
        book = {
            "target": {"type": "function", "handler": "book"},
            "depends_on": ["pay"],
            "payload": {"said": {"$result": "pay", "path": ["said"]}, "pin": shop.values["pin"]},
            "redact": ["$.pin"],
        }
        made = shop.ask("POST", "/v1/workflows", json={"name": "pay-and-book", "nodes": {"pay": pay, "book": book}})
        nodes = {node["name"]: node for node in shop.ask("GET", f"/v1/workflows/{made['workflow_id']}")["nodes"]}

        assert shop.ended(nodes["book"]["run_id"])["result"] == {
            "said": ["*** ($.pin) and *** ($..password)"],
            "customer": {"card": "*** ($.customer.card)"},
            "digest": hashlib.sha256(shop.values["pin"].encode()).hexdigest(),
        }
        assert shop.ended(nodes["pay"]["run_id"])["result"]["digest"] == shop.digest
        assert shop.tables() <= OF_DEFINITIONS

    def test_nothing_that_was_answered_sent_or_printed_has_a_value(self, shop):
        run_id, job = shop.ended(shop.submit()["run_id"])["run_id"], "nightly"
        for path in ("runs", "jobs", "audit", "dead", "workers", "tenants/1"):
            shop.ask("GET", f"/v1/{path}")
        settings = {"DULY_URL": shop.up.address, "DULY_API_KEY": shop.key}
        commands = (
            f"runs show {run_id}",
            f"logs {run_id}",
            f"jobs show {job}",
            f"explain {run_id}",
            "runs",
            "dead",
        )
        printed = [duly(*command.split(), cwd=shop.up.folder, **settings) for command in commands]
        assert [one.stderr for one in printed if one.returncode] == []
        assert any("*** ($.pin)" in one.stdout for one in printed)

        assert {place for place in shop.answers if shop.found_in(place)} == set()
        assert shop.found_in(*shop.sink.bodies) == set()
        assert shop.found_in(*(one.stdout + one.stderr for one in printed)) == set()
        own = [line for line in shop.up.process.lines if line.startswith("{")]
        assert own, "with debug on, it says much"
        assert shop.found_in(*own) == set()

    def test_traces_and_notifications_name_runs_and_no_value(self, shop):
        retry = {"max_attempts": 2, "policy": "list", "delays": ["PT1S"]}
        run_id = shop.submit(payload=shop.payload(fails=True), retry=retry)["run_id"]
        assert shop.ended(run_id)["state"] == "succeeded"
        shop.collector.wait_for(run_id, "submit", "claim", "attempt")
        wait_for(lambda: any(run_id in body for body in shop.alerts.bodies))

        assert any("*** ($.pin)" in body for body in shop.alerts.bodies)
        assert shop.found_in(*shop.alerts.bodies) == set()
        assert shop.found_in(json.dumps(shop.collector.spans)) == set()

    def test_the_archive_has_marks_for_values(self, shop, tmp_path):
        run_id = shop.ended(shop.submit()["run_id"])["run_id"]
        shop.ended(shop.submit(payload=shop.payload(fails=True), retry={"max_attempts": 1})["run_id"])
        rows = archive(shop, ArchiveFiles(ArchivePlace(False, str(tmp_path / "archive"))))

        texts = {str(row["run_id"]): str(row) for row in rows}
        assert {row["outcome"] for row in rows} >= {"succeeded", "failed"}
        assert all(mark in texts[run_id] for mark in ("*** ($.pin)", "*** ($.customer.card)", "*** ($..password)"))
        assert shop.found_in(*map(str, rows)) == set()
