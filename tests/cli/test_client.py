"""The way of a command to a Duly: the socket of the `duly up` of its folder, or the API in its own process."""

import asyncio
import json
import os
import signal
import socket

import httpx2
import pytest

from duly.cli.client import connected
from duly.cli.in_process import InProcessTransport
from duly.cli.up import local_socket
from duly.client.errors import Unauthorized
from duly.domain.errors import Refused
from duly.settings import load
from duly.store.connection.local import this_account
from tests.cli.processes import Up, duly, inside, running

ME = this_account().id


def audited(said):
    return [entry["actor"] for entry in json.loads(said.stdout)]


def test_a_command_on_a_database_acts_as_the_operator_under_its_account(local):
    local("pause", "--queue", "mail")

    [actor] = audited(local("audit", "--action", "pause.created", "--json"))

    assert (actor["kind"], actor["name"], actor["key_id"]) == ("local", ME, None)


def test_command_beside_duly_up_uses_its_os_account_and_needs_no_api_key(up):
    up.duly("queues", "set", "socket", "--age-limit", "PT9S")

    actor = audited(up.duly("audit", "--action", "queue.changed", "--subject", "socket", "--json"))[0]

    assert (actor["kind"], actor["name"]) == ("local", ME)


async def test_network_request_cannot_claim_to_be_local(up):
    """A header cannot say that a request is local."""
    async with httpx2.AsyncClient() as client:
        for header in ({}, {"duly.local": ME}, {"Authorization": f"Bearer {ME}"}):
            assert (await client.get(f"{up.address}/v1/jobs", headers=header)).status_code == 401


def test_the_socket_of_a_duly_up_is_its_owners_alone(up):
    mode = (up.folder / ".duly" / local_socket.FILE).lstat().st_mode

    assert mode & 0o777 == 0o600


def test_a_socket_that_others_can_open_is_refused(tmp_path):
    listener = local_socket.listen_locally(tmp_path)
    assert local_socket.answering(tmp_path) == tmp_path / local_socket.FILE

    (tmp_path / local_socket.FILE).chmod(0o660)
    with pytest.raises(Refused, match=r"other accounts can open .*: chmod 600"):
        local_socket.answering(tmp_path)
    local_socket.close_locally(listener)
    assert local_socket.answering(tmp_path) is None


def test_unusable_local_socket_is_ignored(tmp_path):
    path = tmp_path / local_socket.FILE
    path.write_text("not a socket")
    assert local_socket.answering(tmp_path) is None

    path.unlink()
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(str(path))
    path.chmod(0o600)
    assert local_socket.answering(tmp_path) is None

    deep = tmp_path / ("d" * 120)
    deep.mkdir()
    assert local_socket.listen_locally(deep) is None
    assert local_socket.answering(deep) is None


def test_a_killed_duly_up_leaves_nothing_that_misleads_a_command(tmp_path):
    with running("up", "--port", "0", "--no-demo", "--workers", "0", cwd=tmp_path) as process:
        up = Up(process, tmp_path)
        assert up.duly("jobs").returncode == 0
        os.kill(process.process.pid, signal.SIGKILL)
        process.process.wait(20)

    assert (tmp_path / ".duly" / local_socket.FILE).exists()
    said = duly("jobs", cwd=tmp_path)
    assert said.returncode in (0, 3), "its PostgreSQL may live on for a moment"
    with running("up", "--port", "0", "--no-demo", "--workers", "0", cwd=tmp_path) as process:
        assert Up(process, tmp_path).duly("jobs").returncode == 0
        process.interrupt()
    assert not (tmp_path / ".duly" / local_socket.FILE).exists()


async def test_in_process_response_streams_and_ends_when_the_reader_stops():
    ended = asyncio.Event()

    async def app(scope, receive, send):
        assert (scope["path"], scope["query_string"]) == ("/v1/a b", b"x=1")
        assert (await receive())["body"] == b"asked"
        await send({"type": "http.response.start", "status": 200, "headers": [(b"a", b"b")]})
        try:
            for number in range(1_000):
                await send({"type": "http.response.body", "body": b"%d\n" % number, "more_body": True})
                await asyncio.sleep(0)
            await receive()
        finally:
            ended.set()

    async with (
        httpx2.AsyncClient(transport=InProcessTransport(app), base_url="http://in-process") as client,
        client.stream("POST", "/v1/a%20b", params={"x": "1"}, content=b"asked") as response,
    ):
        lines = response.aiter_lines()
        assert [await anext(lines), await anext(lines)] == ["0", "1"]
    await asyncio.wait_for(ended.wait(), 5)


async def test_application_error_reaches_the_in_process_caller():
    async def app(scope, receive, send):
        raise RuntimeError("broken")

    async with httpx2.AsyncClient(transport=InProcessTransport(app), base_url="http://in-process") as client:
        with pytest.raises(RuntimeError, match="broken"):
            await client.get("/")


async def test_typed_address_takes_precedence_over_a_configured_database(up, database_url):
    settings = load({"url": up.address, "database_url": None, "data": None})

    async with connected(settings) as client:
        with pytest.raises(Unauthorized):
            await anext(client.jobs.list())


def test_submit_accepts_commands_that_only_workers_allow_unless_over_http(up, tmp_path, database_url):
    command = ("submit", "--command", "--", "/bin/nothing")
    for said in (inside(*command, cwd=tmp_path, DULY_DATABASE_URL=database_url), up.duly(*command)):
        assert said.returncode == 0, said.stderr
        assert "so it waits; allow /bin/nothing" in said.stdout
        assert "DULY_COMMANDS=/bin/nothing duly worker" in said.stdout
    key = (up.folder / ".duly" / "api-key").read_text().strip()
    refused = inside(*command, cwd=up.folder, DULY_URL=up.address, DULY_API_KEY=key)
    assert "is not allowed" in refused.stderr


def test_socket_with_a_full_accept_queue_does_not_block_a_command(tmp_path):
    listener = local_socket.listen_locally(tmp_path)
    assert listener is not None
    waiting = []
    try:
        while True:
            caller = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            waiting.append(caller)
            caller.setblocking(False)
            caller.connect(listener.getsockname())
    except BlockingIOError:
        assert local_socket.answering(tmp_path) is None
    finally:
        for one in waiting:
            one.close()
        local_socket.close_locally(listener)
