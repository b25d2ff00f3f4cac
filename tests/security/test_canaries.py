"""Canaries: a secret in each place that takes one, with every log on, and none in a log, an answer or on a command line.

A whole `duly up` at its most talkative level sends, runs, fails and refuses; then what its processes and its PostgreSQL wrote,
what each `GET` of the API answers, and what commands print is searched for the text of every secret.
"""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import psutil
import pytest

from tests.api.contract.described import DOCUMENT
from tests.api.contract.yard import UNKNOWN_ID
from tests.cli.processes import Up, duly, running, wait_for
from tests.end_to_end.receiver import Receiver

OVER = ("succeeded", "dead", "cancelled")
ONCE = {"retry": {"max_attempts": 1}}
NIGHTLY = {"trigger": {"type": "cron", "expr": "0 4 1 1 *"}}
# Nothing of these is made here. Of the other two, one is there to show a secret, and one never ends.
NOTHING_THERE = {
    *(
        "/v1/backfills/{backfill_id}",
        "/v1/calendars/{name}",
        "/v1/channels/{name}",
        "/v1/concurrency-keys/{name}",
        "/v1/notification-rules/{name}",
        "/v1/runs/{run_id}/checkpoint",
    ),
}
NOT_READ = {"/v1/destinations/{destination_id}/secrets", "/v1/events"}
# Whoever may read a job may read where it sends; lists and logs leave the query out.
SHOWN_TO_READERS_OF_JOBS = {"query of a webhook", "query of a webhook that fails", "query in a file"}


class Installation:
    """A `duly up` with secrets in it, and all that was read of it."""

    def __init__(self, up: Up) -> None:
        self.up = up
        self.canaries: dict[str, str] = {}
        self.answers: dict[str, str] = {}
        self.command_lines: set[str] = set()
        self.known: dict[str, str] = {"tenant": "1", "node": "call"}
        key = (up.folder / ".duly" / "api-key").read_text().strip()
        self._client = httpx.Client(base_url=up.address, headers={"Authorization": f"Bearer {key}"}, timeout=20)

    def new(self, place: str) -> str:
        """Make a secret for a place."""
        return self.keep(place, f"canary{secrets.token_hex(12)}")

    def keep(self, place: str, text: str) -> str:
        """Search for a secret that Duly has made, too."""
        self.canaries[place] = text
        return text

    def places_in(self, text: str) -> set[str]:
        """Name the places whose secret stands in a text."""
        return {place for place, canary in self.canaries.items() if canary in text}

    def ask(self, method: str, path: str, *, shows: bool = False, **request: Any) -> httpx.Response:
        """Ask, and keep the answer unless it is there to show a secret."""
        answer = self._client.request(method, path, **request)
        if not shows:
            self.answers[f"{method} {path} {len(self.answers)}"] = f"{answer.headers} {answer.text}"
        return answer

    def run(self, job: dict[str, Any]) -> str:
        """Let a job run once, and give the state in which it ended."""
        made = self.ask("POST", "/v1/jobs", json={**ONCE, **job}).json()
        self.known |= {"job_id": made["job_id"], "run_id": made["run_id"]}
        return str(wait_for(lambda: self._state_if_over(made["run_id"])))

    def _state_if_over(self, run_id: str) -> str | None:
        self.look_at_processes()
        state = self._client.get(f"/v1/runs/{run_id}").json()["state"]
        return state if state in OVER else None

    def look_at_processes(self) -> None:
        """Note what everybody on this machine can see of our processes."""
        for process in self.up.process.family():
            try:
                self.command_lines.add(" ".join(process.cmdline()))
            except psutil.Error:
                continue

    def read_everything(self) -> list[str]:
        """Ask every `GET` that is described, with ids of what is there; give those of which there is nothing."""
        self.known["worker_id"] = self.ask("GET", "/v1/workers").json()["items"][0]["worker_id"]
        templates = [path for path, of in DOCUMENT["paths"].items() if "get" in of and path not in NOT_READ]
        return [path for path in templates if self.ask("GET", path.format(**self._ids_for(path))).is_error]

    def _ids_for(self, template: str) -> dict[str, str]:
        name = {"/v1/files": "nightly", "/v1/jobs": "of-canaries"}.get(template[: template.find("/", 4)], "none")
        return {"name": name, "backfill_id": UNKNOWN_ID, **self.known}

    def logs(self) -> str:
        """Give what its processes wrote, and its PostgreSQL."""
        return self.up.process.text + (self.up.folder / ".duly" / "postgres.log").read_text()


@contextmanager
def an_installation(folder) -> Iterator[Installation]:
    settings = {"DULY_LOG_LEVEL": "debug", "DULY_COMMANDS": "/bin/true=TOKEN"}
    settings |= {"DULY_COMMAND_SANDBOX": "none", "DULY_COMMAND_CGROUP": "optional"}
    with running("up", "--port", "0", "--no-demo", cwd=folder, **settings) as process:
        yield Installation(Up(process, folder))


@pytest.fixture(scope="module")
def installation(tmp_path_factory) -> Iterator[Installation]:
    """An installation in which each secret was used once."""
    with an_installation(tmp_path_factory.mktemp("canaries")) as opened, Receiver() as receiver:
        use_keys(opened)
        send_webhooks(opened, receiver)
        run_programs(opened)
        keep_definitions(opened, receiver)
        be_refused(opened)
        yield opened


def use_keys(here: Installation) -> None:
    """Make a key, open a session with it, and use both."""
    key = here.ask("POST", "/v1/keys", json={"name": "canary", "scopes": ["admin"]}, shows=True).json()["key"]
    here.keep("secret of a key", key.rpartition("_")[2])
    opened = here.ask("POST", "/v1/session", json={"key": key}, headers={"Origin": here.up.address}, shows=True)
    cookie = here.keep("cookie of a session", opened.cookies["duly_session"])
    for headers in ({"Authorization": f"Bearer {key}"}, {"Authorization": "", "Cookie": f"duly_session={cookie}"}):
        assert here.ask("GET", "/v1/keys", headers=headers).status_code in (200, 401)


def send_webhooks(here: Installation, receiver: Receiver) -> None:
    """Send one that is taken, one that is refused, and one that finds nobody."""

    def webhook(origin: str, what: str) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {here.new(f'header of {what}')}"}
        return {
            "target": {"type": "webhook", "url": f"{origin}/?token={here.new(f'query of {what}')}", "headers": headers}
        }

    assert here.run(webhook(receiver.origin, "a webhook")) == "succeeded"
    receiver.status = 410
    assert here.run(webhook(receiver.origin, "a webhook that fails")) == "dead"
    receiver.go_down()
    assert here.run(webhook(receiver.origin, "a webhook that fails")) == "dead"
    receiver.come_back()
    [destination] = here.ask("GET", "/v1/destinations").json()["items"]
    here.known["destination_id"] = destination["destination_id"]
    where = f"/v1/destinations/{destination['destination_id']}"
    [signing] = here.ask("GET", f"{where}/secrets", shows=True).json()["items"]
    here.keep("signing secret", signing["secret"].removeprefix("whsec_"))
    rotated = here.ask("POST", f"{where}/rotate", shows=True).json()
    here.keep("rotated signing secret", rotated["secret"].removeprefix("whsec_"))


def run_programs(here: Installation) -> None:
    """Run a command with a secret among its variables."""
    variables = {"TOKEN": here.new("variable of a command")}
    assert here.run({"target": {"type": "command", "argv": ["/bin/true"], "environment": variables}}) == "succeeded"


def keep_definitions(here: Installation, receiver: Receiver) -> None:
    """Keep secrets in a schedule and its versions, in a workflow, and in a file."""

    def target(what: str) -> dict[str, Any]:
        return {"type": "webhook", "url": receiver.origin, "headers": {"X-Api-Key": here.new(f"header in {what}")}}

    job = here.ask("POST", "/v1/jobs", json={"name": "of-canaries", "target": target("a job"), "schedule": NIGHTLY})
    here.known["job_id"] = job.json()["job_id"]
    headers = {"If-Match": "*", "Content-Type": "application/merge-patch+json"}
    where, patch = f"/v1/jobs/{here.known['job_id']}", {"target": target("a version")}
    changed = here.ask("PATCH", where, json=patch, headers=headers)
    assert changed.status_code == httpx.codes.OK, changed.text
    flow = {"name": "canaries", "nodes": {"call": {"target": target("a node")}}}
    here.known["workflow_id"] = here.ask("POST", "/v1/workflows", json=flow).json()["workflow_id"]
    jobs = {"in-a-file": {"target": target("a file"), "schedule": "every day at 3am"}}
    jobs["in-a-file"]["target"]["url"] += f"/?token={here.new('query in a file')}"  # type: ignore[index]
    for query in ({"dry_run": "true"}, {}):
        assert here.ask("POST", "/v1/jobs:apply", json={"source": "nightly", "jobs": jobs}, params=query).is_success


def be_refused(here: Installation) -> None:
    """Ask for what is refused, with a secret where the fault is."""
    wrong = here.new("key that is none")
    for headers in (
        {"Authorization": f"Bearer {wrong}"},
        {"Authorization": f"Basic {wrong}"},
        {"Cookie": f"duly_session={wrong}"},
    ):
        assert here.ask("GET", "/v1/jobs", headers={"Authorization": "", **headers}).status_code == 401
    assert here.ask("POST", "/v1/session", json={"key": f"duly_aaaaaaaaaa_{wrong}"}).status_code == 401
    assert here.ask("GET", "/v1/jobs", params={"api_key": here.new("key in a query")}).status_code == 400
    hidden = here.new("secret in a refused target")
    for target in (
        {"url": f"http://me:{hidden}@127.0.0.1/"},
        {"url": f"ftp://127.0.0.1/?token={hidden}"},
        {"url": f"http://10.0.0.1/?token={hidden}"},
        {"url": "http://127.0.0.1/", "headers": {"Authorization": [hidden]}},
        {"url": "http://127.0.0.1/", "headers": {"Authorization": f"{hidden}\r\nX: y"}},
    ):
        assert here.ask("POST", "/v1/jobs", json={"target": {"type": "webhook", **target}}).status_code in (400, 422)


def test_no_answer_of_the_api_has_one(installation):
    missing = installation.read_everything()
    told = {asked: installation.places_in(text) for asked, text in installation.answers.items()}

    assert set(missing) == NOTHING_THERE
    assert {
        asked: found - SHOWN_TO_READERS_OF_JOBS for asked, found in told.items() if found - SHOWN_TO_READERS_OF_JOBS
    } == {}


def test_no_log_has_one(installation):
    assert installation.places_in(installation.logs()) == set()


def test_no_command_line_has_one(installation):
    assert any("duly" in line for line in installation.command_lines)
    assert installation.places_in("\n".join(installation.command_lines)) == set()


@pytest.mark.parametrize(
    "command",
    ["config", "doctor", "jobs show of-canaries", "runs", "dead", "keys list", "destinations", "export", "audit"],
)
def test_no_command_prints_one(installation, command):
    said = duly(*command.split(), cwd=installation.up.folder)

    assert installation.places_in(said.stdout + said.stderr) - SHOWN_TO_READERS_OF_JOBS == set()
    assert said.returncode in (0, 1), said.stderr


def test_the_search_would_find_them(installation):
    """The secrets did go where they were meant to: the database knows those that it has to use."""
    told = installation.ask("GET", f"/v1/destinations/{installation.known['destination_id']}/secrets", shows=True).text

    assert installation.places_in(told) == {"signing secret", "rotated signing secret"}
    assert len(installation.canaries) > 15
