"""A receiver that takes its time, and workers that are killed meanwhile: the run stays open, ends once, and is told of."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress

import httpx
import msgspec
import pytest

from duly.clock import Rng
from duly.domain.tenancy.sealing import new_key_line
from duly.store.boxes import history
from duly.store.connection.database import Database
from tests.end_to_end.house import PYTHONPATH, ROOT, House, a_house, wait_until
from tests.end_to_end.receiver import HEAD_END, Receiver

LONG = 60.0
LEASE_SECONDS = "2"


class SlowReceiver(Receiver):
    """Answers 202 to what comes to /later, and repeats the token; keeps what it got."""

    def __init__(self) -> None:
        super().__init__()
        self.got: list[tuple[str, dict[str, str], bytes]] = []

    def tokens(self) -> list[str]:
        """Give the tokens that came, in order."""
        return [fields["x-callback-token"] for path, fields, _ in self.got if path == "/later"]

    def told(self) -> list[dict]:
        """Give what was told at /done."""
        return [msgspec.json.decode(body) for path, _, body in self.got if path == "/done"]

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while True:
                first, *lines = (await reader.readuntil(HEAD_END)).decode().split("\r\n")
                pairs = [line.split(": ", 1) for line in lines if ": " in line]
                fields = {name.lower(): value for name, value in pairs}
                path = first.split(" ")[1]
                self.got.append((path, fields, await reader.readexactly(int(fields.get("content-length", 0)))))
                head = f"202 x\r\nX-Callback-Token: {fields['x-callback-token']}" if path == "/later" else "200 x"
                writer.write(f"HTTP/1.1 {head}\r\nContent-Length: 0\r\n\r\n".encode())
                await writer.drain()
        writer.close()


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    file = tmp_path_factory.mktemp("keys") / "keys"
    file.write_text(new_key_line(Rng().secret).reveal() + "\n")
    return file


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    with a_house(tmp_path_factory.mktemp("callbacks")) as opened:
        opened.start_scheduler("scheduler0")
        yield opened


@pytest.fixture(scope="module")
def api(house, keys):
    """The address of an API process."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    start(house, "api", "api", "--port", str(port), "--secrets-key", str(keys))
    url = f"http://127.0.0.1:{port}"
    wait_until(lambda: answers(url), LONG, what="the API")
    return url


@pytest.fixture
def receiver():
    with SlowReceiver() as opened:
        yield opened


def answers(url: str) -> bool:
    with suppress(httpx.HTTPError):
        return httpx.get(f"{url}/livez").is_success
    return False


def start(house: House, name: str, role: str, *arguments: str) -> None:
    """Start a process of Duly."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DULY_")}
    with (house.folder / f"{name}.log").open("ab") as log:
        house.processes[name] = subprocess.Popen(
            [sys.executable, "-m", "duly", role, "--database-url", house.url, *arguments],
            cwd=ROOT,
            env={**environment, "PYTHONPATH": PYTHONPATH},
            stdout=log,
            stderr=log,
        )


def start_worker(house: House, name: str, keys) -> None:
    """Start a worker that sends webhooks, and runs no app."""
    more = ("--webhooks", "10", "--secrets-key", str(keys), "--egress-loopback", "--lease", LEASE_SECONDS)
    start(house, name, "worker", "--name", name, *more)
    wait_until(lambda: house.ask("select count(*) from duly.workers")[0][0] == 1, LONG, what="a worker")


def kill(house: House, name: str) -> None:
    """Kill a worker, and wait until its lease has been taken away."""
    house.processes[name].send_signal(signal.SIGKILL)
    house.processes.pop(name).wait()
    wait_until(lambda: house.ask("select count(*) from duly.workers")[0][0] == 0, LONG, what="the reaper")


def submitted(house: House, receiver: SlowReceiver, **target: float) -> str:
    """Submit a webhook to a receiver that takes its time. Gives its run."""
    options = {
        "target": {"type": "webhook", "url": f"{receiver.origin}/later", **target},
        "retry": {"max_attempts": 2, "base_seconds": 0.1, "cap_seconds": 0.1},
        "callbacks": {"end": {"url": f"{receiver.origin}/done"}},
    }
    text = msgspec.json.encode(options).decode()
    return str(house.ask("select duly.submit('@webhook', '{}', options => %s::text::jsonb)", text)[0][0])


def open_runs(house: House) -> int:
    return int(house.ask("select count(*) from duly.awaited")[0][0])


def records(house: House, run_id: str) -> list[tuple[int, str, str]]:
    return house.ask(
        "select attempt, outcome::text, became::text from duly.attempts where run_id = %s order by attempt", run_id
    )


def broken(house: House) -> list:
    async def look() -> list:
        async with Database(house.url) as database:
            return await history.verify(database)

    return asyncio.run(look())


@pytest.mark.timeout(180)
def test_a_run_survives_the_worker_that_sent_it_and_is_settled_by_its_receiver(house, api, receiver, keys):
    start_worker(house, "first", keys)
    run_id = submitted(house, receiver)
    wait_until(lambda: open_runs(house) == 1, LONG, what="the 202")

    kill(house, "first")

    assert house.ask("select state::text from duly.live_runs where run_id = %s", run_id) == [("running",)]
    assert broken(house) == []
    answer = httpx.post(f"{api}/v1/callbacks/{receiver.tokens()[0]}", json={"outcome": "succeeded", "result": 7})
    assert (answer.status_code, answer.json()["state"]) == (200, "succeeded"), answer.text
    assert records(house, run_id) == [(1, "succeeded", "succeeded")]

    start_worker(house, "second", keys)
    wait_until(lambda: len(receiver.told()) == 1, LONG, what="the word of its end")
    [event] = receiver.told()
    assert (event["type"], event["subject"], event["data"]["result"]) == ("duly.run.succeeded.v1", run_id, 7)
    assert len(receiver.tokens()) == 1, "it was sent once"
    kill(house, "second")


@pytest.mark.timeout(180)
def test_silent_receiver_gets_a_second_attempt_and_its_old_token_is_void(house, api, receiver, keys):
    start_worker(house, "third", keys)
    run_id = submitted(house, receiver, callback_within_seconds=1.0)
    wait_until(lambda: len(receiver.tokens()) == 2, LONG, what="the second attempt")
    wait_until(lambda: open_runs(house) == 1, LONG, what="the second 202")

    first, second = receiver.tokens()
    late = httpx.post(f"{api}/v1/callbacks/{first}", json={"outcome": "succeeded"})
    assert (late.status_code, late.json()["code"]) == (409, "attempt_over")
    longer = httpx.post(f"{api}/v1/callbacks/{second}/extend", json={"within": "PT1M"})
    assert longer.is_success, longer.text
    answer = httpx.post(f"{api}/v1/callbacks/{second}", json={"outcome": "failed", "reason": "full"})

    assert answer.json()["state"] == "dead", answer.text
    assert records(house, run_id) == [(1, "timed_out", "retrying"), (2, "failed", "dead")]
    wait_until(lambda: len(receiver.told()) == 1, LONG, what="the word of its end")
    assert receiver.told()[0]["data"]["reason"] == "full"
    assert broken(house) == []
    kill(house, "third")
