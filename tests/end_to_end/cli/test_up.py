"""`duly up`: what it shows, what it survives, how it stops, and when it refuses to start."""

import json
import os
import signal
import socket
import ssl
import subprocess
import urllib.error
import urllib.request
from contextlib import suppress

import psutil
import pytest

from tests.cli.processes import Up, dies, duly, running, wait_for

STOP_SECONDS = 10
STUCK = """
import time
from pathlib import Path
from duly import App

app = App()


@app.handler
def stuck() -> None:
    Path("started").touch()
    time.sleep(60)
"""


def get(address):
    try:
        with urllib.request.urlopen(address, timeout=20) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as answer:
        return answer.code, answer.read().decode()


@pytest.fixture(scope="module")
def ran_before(tmp_path_factory):
    """A folder in which it has run, with its demo, and was stopped."""
    folder = tmp_path_factory.mktemp("up")
    with running("up", "--port", "0", cwd=folder) as process:
        Up(process, folder)
        assert process.interrupt() < STOP_SECONDS
    return folder


@pytest.fixture
def folder(ran_before, tmp_path):
    """A copy of that folder, for one test to do with as it likes."""
    subprocess.run(["cp", "-a", ran_before / ".duly", tmp_path], check=True)
    return tmp_path


def test_the_first_minutes(tmp_path):
    with running("up", "--port", "0", cwd=tmp_path) as process:
        up = Up(process, tmp_path)
        assert process.lines[0].startswith("duly 0.")
        lines = [line for line in process.lines if not line.startswith("  account ")]  # As root; tests/security has it.
        assert [line.split()[0] for line in lines[1:10]] == [
            "postgres",
            "schema",
            "scheduler",
            "demo",
            "dashboard",
            "database",
            "webhooks",
            "key",
            "try",
        ]
        assert "data in ./.duly/postgres" in lines[1]
        assert "64 of 64 shards       worker   1 process, queue default" in lines[3]
        assert "may be sent to this machine, too: development mode" in lines[7]
        assert lines[10].endswith("the data stays (--ephemeral throws it away).")

        assert " after due)" in process.wait_for_line("hello #1", 12)
        assert (
            get(f"{up.address}/livez")[0] == get(f"{up.address}/healthz")[0] == get(f"{up.address}/startupz")[0] == 200
        )
        status, body = get(up.asking("/readyz?verbose"))
        assert (status, json.loads(body)["failing"]) == (200, [])
        wait_for(lambda: 'duly_runs_total{queue="default",outcome="succeeded"} ' in get(up.asking("/metrics"))[1])

        refused = duly("up", "--port", "0", cwd=tmp_path)
        assert refused.returncode == 3
        assert f"is in use by process {process.process.pid}" in refused.stderr
        port = up.address.rpartition(":")[2]
        assert "is in use by process" in duly("up", "--port", port, cwd=tmp_path).stderr, (
            "the folder, not the port, is why"
        )

        family = process.family()
        assert process.interrupt() < STOP_SECONDS
        assert process.process.returncode == 0
        assert process.lines[-1] == "stopped"
        wait_for(lambda: all(dies(member) for member in family))


def test_the_data_stays_and_the_demo_is_not_doubled(folder):
    kept = (folder / ".duly/api-key").read_text().strip()
    with running("up", "--port", "0", cwd=folder) as process:
        up = Up(process, folder)
        assert "  key         in ./.duly/api-key" in process.lines
        shown = f'  try         curl -H "Authorization: Bearer $(cat ./.duly/api-key)" {up.address}/v1/jobs'
        assert shown in process.lines
        assert (folder / ".duly/api-key").stat().st_mode & 0o777 == 0o600
        [row] = json.loads(up.duly("keys", "--json").stdout)
        assert kept.startswith(f"duly_{row['key_id']}_")
        assert (row["tenant"], row["scopes"], row["name"]) == (1, ["admin"], "duly up")
        assert "ready" in process.wait_for_line("schema")
        assert [job["name"] for job in json.loads(up.duly("jobs", "--json").stdout)] == ["hello"]

        assert process.interrupt(signal.SIGTERM) < STOP_SECONDS


def test_without_the_demo_its_schedule_is_ended_and_with_it_there_is_a_new_one(folder):
    with running("up", "--port", "0", "--no-demo", "--workers", "0", cwd=folder) as process:
        up = Up(process, folder)
        assert [job["state"] for job in json.loads(up.duly("jobs", "--json").stdout)] == ["cancelled"]
        assert "demo" not in process.text
        assert "worker   none" in process.text


def test_without_an_app_and_the_demo_webhooks_are_sent_all_the_same(folder):
    with running("up", "--port", "0", "--no-demo", cwd=folder) as process:
        up = Up(process, folder)
        assert "1 process, queue default" in process.text
        with socket.create_server(("127.0.0.1", 0)) as receiver:
            said = up.duly("submit", "--webhook", f"http://127.0.0.1:{receiver.getsockname()[1]}/hook")
            assert said.returncode == 0, said
            receiver.settimeout(20)
            connection, _ = receiver.accept()
            with connection:
                assert connection.recv(4096).startswith(b"POST /hook HTTP/1.1")
                connection.sendall(b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")


def test_duly_up_replaces_a_revoked_api_key(folder):
    with running("up", "--port", "0", "--no-demo", "--workers", "0", cwd=folder) as process:
        up = Up(process, folder)
        [row] = json.loads(up.duly("keys", "--json").stdout)
        assert "is revoked" in up.duly("keys", "revoke", row["key_id"]).stdout
    with running("up", "--port", "0", "--no-demo", "--workers", "0", cwd=folder) as process:
        up = Up(process, folder)
        states = {row["key_id"]: row["state"] for row in json.loads(up.duly("keys", "--json").stdout)}
        assert sorted(states.values()) == ["active", "revoked"]
        assert states[(folder / ".duly/api-key").read_text().split("_")[1]] == "active"


def workers_of(process):
    """The workers below it; not what one of them is about to become, which for a moment looks the same."""
    found = []
    for member in process.family():
        with suppress(psutil.NoSuchProcess):  # It has died since.
            if "worker" in member.cmdline() and member.ppid() == process.process.pid:
                found.append(member)
    return found


def test_duly_up_restarts_a_killed_worker_and_a_killed_postgresql(folder):
    with running("up", "--port", "0", cwd=folder) as process:
        up = Up(process, folder)
        [worker] = workers_of(process)
        worker.kill()
        process.wait_for_line("child_died")
        wait_for(lambda: [member for member in workers_of(process) if member.pid != worker.pid])

        os.kill(int((folder / ".duly/postgres/postmaster.pid").read_text().split()[0]), signal.SIGKILL)
        process.wait_for_line("postgres_restarted")
        assert json.loads(up.duly("run", "hello", "--wait").stdout) == "Hello, world!"
        wait_for(lambda: get(f"{up.address}/readyz")[0] == 200)


def test_killing_it_leaves_nothing_behind(folder):
    with running("up", "--port", "0", cwd=folder) as process:
        Up(process, folder)
        family = process.family()
        process.process.kill()
        wait_for(lambda: all(dies(member) for member in family), STOP_SECONDS)


def test_ephemeral_data_is_removed_when_duly_up_ends(tmp_path):
    with running("up", "--port", "0", "--ephemeral", "--no-demo", cwd=tmp_path, TMPDIR=str(tmp_path)) as process:
        process.wait_for_line("the data goes with it")
        assert len(list(tmp_path.glob("duly-*"))) == 1
        process.interrupt()
    assert list(tmp_path.iterdir()) == []


def test_an_app_that_cannot_be_imported_stops_it_with_the_reason(tmp_path):
    (tmp_path / "broken.py").write_text("import nothing_of_that_name\n")

    said = duly("up", "--port", "0", "--app", "broken:app", "--ephemeral", cwd=tmp_path)

    assert said.returncode == 1
    assert "broken:app cannot be imported: ModuleNotFoundError" in said.stderr
    assert "broken.py, line 1" in said.stderr
    assert "Traceback" not in said.stderr


def test_a_taken_port_is_named_with_the_remedy(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        said = duly("up", "--port", str(port), cwd=tmp_path)

    assert said.returncode == 1
    assert f"port {port} on 127.0.0.1 is taken" in said.stderr
    assert "duly up --port" in said.stderr
    assert list(tmp_path.iterdir()) == [], "nothing was started"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.com"])
def test_duly_up_refuses_to_listen_beyond_loopback(tmp_path, host):
    said = duly("up", "--host", host, cwd=tmp_path)

    assert said.returncode == 2
    assert "use 127.0.0.1" in said.stderr
    assert list(tmp_path.iterdir()) == []


def test_duly_up_beyond_loopback_requires_an_api_key(tmp_path, database_url):
    arguments = ("up", "--host", "0.0.0.0", "--port", "0", "--plain-http", "--database-url", database_url)

    said = duly(*arguments, cwd=tmp_path)

    assert said.returncode == 1
    assert "there is no API key yet: make one with `duly keys create --scope admin`" in said.stderr
    assert "listening on 0.0.0.0 without TLS, for a proxy" in said.stdout


def test_with_a_certificate_it_speaks_tls(tmp_path):
    names = ["-keyout", "key.pem", "-out", "certificate.pem", "-days", "1", "-subj", "/CN=localhost"]
    alternative = ["-addext", "subjectAltName=IP:127.0.0.1"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *names, *alternative]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    (tmp_path / "duly.toml").write_text('tls_certificate = "certificate.pem"\ntls_key = "key.pem"\n')
    trusted = ssl.create_default_context(cafile=str(tmp_path / "certificate.pem"))

    with running("up", "--port", "0", "--host", "0.0.0.0", "--no-demo", "--workers", "0", cwd=tmp_path) as process:
        line = process.wait_for_line("/v1/jobs")
        port = line.rpartition(":")[2].split("/")[0]
        with urllib.request.urlopen(f"https://127.0.0.1:{port}/livez", timeout=20, context=trusted) as answer:
            assert answer.status == 200
        with pytest.raises(OSError):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/livez", timeout=20)
        assert process.lines[0].endswith("listening on 0.0.0.0 with TLS")


def test_reset_asks_first(folder):
    version = folder / ".duly/postgres/PG_VERSION"
    assert version.exists()

    assert duly("up", "--reset", "--port", "0", cwd=folder, stdin="n\n").returncode == 1
    assert duly("up", "--reset", "--port", "0", cwd=folder).returncode == 1
    assert version.exists()
    with running("up", "--reset", "--yes", "--port", "0", "--no-demo", cwd=folder) as process:
        up = Up(process, folder)
        assert "ready" in process.wait_for_line("schema")
        assert json.loads(up.duly("jobs", "--json").stdout) == []
        assert "is in use by process" in duly("up", "--reset", "--yes", "--port", "0", cwd=folder).stderr


def test_reset_leaves_a_folder_that_is_not_ours(tmp_path):
    theirs = tmp_path / "precious/postgres/thesis.txt"
    theirs.parent.mkdir(parents=True)
    theirs.write_text("thesis")

    said = duly("up", "--reset", "--port", "0", "--data", "precious", cwd=tmp_path, stdin="y\n")

    assert said.returncode == 3
    assert f"{theirs.parent} is not a PostgreSQL data folder made by Duly" in said.stderr
    assert "Remove" not in said.stderr, "nobody is asked about what is not done anyway"
    assert theirs.read_text() == "thesis"
    assert [path.name for path in (tmp_path / "precious").iterdir()] == ["postgres"]


def test_reset_never_touches_another_database(tmp_path, database_url):
    said = duly("up", "--reset", "--yes", "--port", "0", cwd=tmp_path, DULY_DATABASE_URL=database_url)

    assert said.returncode == 1
    assert "DULY_DATABASE_URL" in said.stderr


def test_duly_up_reports_a_bad_duration_before_it_starts_anything(tmp_path):
    for lease, words in (("soon", "not a duration"), ("PT0.1S", "lease PT0.1S is shorter than 1 s")):
        said = duly("up", "--port", "0", cwd=tmp_path, DULY_LEASE=lease)

        assert said.returncode == 2
        assert "DULY_LEASE: " in said.stderr
        assert words in said.stderr
        assert list(tmp_path.iterdir()) == []


def test_duly_up_runs_on_an_external_database(tmp_path, postgres):
    name = postgres.create()
    url = postgres.url(name)
    with running("up", "--port", "0", cwd=tmp_path, DULY_DATABASE_URL=url) as process:
        Up(process, tmp_path)
        assert "postgres    at postgresql:///" in process.text
        process.wait_for_line("hello #1", 12)
        assert not any("postgres" in member.name() for member in process.family())
        process.interrupt()
    postgres.drop_database(name)


def test_a_handler_that_does_not_end_is_not_waited_for_too_long(tmp_path):
    (tmp_path / "stuck.py").write_text(STUCK)
    with running("up", "--port", "0", "--no-demo", "--ephemeral", "--app", "stuck:app", cwd=tmp_path) as process:
        Up(process, tmp_path)
        worker = workers_of(process)[0]
        data = worker.cmdline()[worker.cmdline().index("--data") + 1]
        assert duly("submit", "stuck", "--data", data, cwd=tmp_path).returncode == 0
        wait_for((tmp_path / "started").exists)

        assert process.interrupt() < STOP_SECONDS
