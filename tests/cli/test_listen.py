"""`duly listen`, as a real process: what it shows of a webhook, and what it answers."""

from __future__ import annotations

import json
import socket
import time
import urllib.error
import urllib.request
from contextlib import contextmanager

import pytest

from duly.domain.targets.webhook_secret import show_secret
from duly.outbound.signing import sign
from tests.cli.processes import Process, duly, wait_for

SECRET, OTHER = bytes(range(32)), bytes(range(32, 64))
BODY = b'{"customer": 7}'


@contextmanager
def listening(tmp_path, *arguments):
    process = Process("listen", "--port", "0", *arguments, cwd=tmp_path)
    try:
        line = wait_for(lambda: next((line for line in process.text.splitlines() if "http://" in line), None))
        yield process, line[line.index("http://") :].split()[0].rstrip('"}')
    finally:
        process.close()


def post(address, body=BODY, *, run="run-1", secret=SECRET, age=0, **headers):
    timestamp = int(time.time()) - age
    request = urllib.request.Request(f"{address}/hook?key=geheim", body, method="POST")
    for name, value in {
        "webhook-id": run,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": sign([secret], run, timestamp, body),
        "X-Run-Id": run,
        "X-Attempt": "1",
        **headers,
    }.items():
        request.add_header(name, value)
    try:
        with urllib.request.urlopen(request, timeout=20) as response:
            return response.status
    except urllib.error.HTTPError as error:
        return error.code


def shown(process, number):
    def lines():
        found = [json.loads(line) for line in process.text.splitlines() if '"method"' in line]
        return found if len(found) >= number else None

    return wait_for(lines)


def test_listen_shows_and_verifies_a_received_webhook(tmp_path):
    with listening(tmp_path, "--secret", show_secret(SECRET)) as (process, address):
        assert post(address) == 200
        wait_for(lambda: "verified" in process.text and '{"customer": 7}' in process.text)
        assert "POST /hook   verified   answered 200" in process.text
        assert "X-Run-Id: run-1   X-Attempt: 1" in process.text
        assert "geheim" not in process.text


def test_listen_flags_forged_expired_and_altered_webhooks(tmp_path):
    (tmp_path / "secrets").write_text(f"{show_secret(OTHER)}\n{show_secret(SECRET)}\n")
    with listening(tmp_path, "--json", "--secret-file", "secrets") as (process, address):
        for more in ({}, {"secret": OTHER}, {"secret": bytes(24)}, {"age": 301}, {"webhook-id": "run-2"}):
            assert post(address, **more) == 200
        seen = shown(process, 5)
    assert [one["verified"] for one in seen] == [True, True, False, False, False]
    assert "no signature fits" in seen[2]["why"]
    assert "301 s old" in seen[3]["why"]
    assert "no signature fits" in seen[4]["why"]


def test_listen_fails_the_first_n_deliveries_of_each_run(tmp_path):
    with listening(tmp_path, "--fail-first", "2", "--status", "204", "--json") as (process, address):
        assert [post(address, run=run) for run in ("a", "b", "a", "a", "b", "b")] == [500, 500, 500, 204, 500, 204]
        assert [one["verified"] for one in shown(process, 6)] == [None] * 6


def test_listen_responds_with_the_given_status_after_the_given_delay(tmp_path):
    with listening(tmp_path, "--status", "503", "--delay", "0.3") as (_, address):
        began = time.monotonic()
        assert post(address) == 503
        assert time.monotonic() - began >= 0.3


def test_listen_escapes_terminal_control_sequences(tmp_path):
    with listening(tmp_path) as (process, address):
        post(address, b"\x1b[2J\x1b]0;owned\x07\xff")
        wait_for(lambda: "owned" in process.text)
        assert "\x1b" not in process.text
        assert "\\x1b[2J" in process.text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--secret", "whsec_short"], "webhook secret: it"),
        (["--secret-file", "empty"], "secret file empty is empty"),
        (["--secret-file", "missing"], "does not exist"),
        (["--status", "42"], "42 is not in the range"),
    ],
)
def test_listen_refuses_invalid_options_with_a_message(tmp_path, arguments, words):
    (tmp_path / "empty").write_text("\n")
    done = duly("listen", *arguments, cwd=tmp_path)
    assert done.returncode in (1, 2)
    assert words in done.stderr
    assert "short" not in done.stderr


def test_listen_reports_a_taken_port_with_its_own_remedy(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        said = duly("listen", "--port", str(port), cwd=tmp_path)

    assert said.returncode == 1
    assert f"port {port} on 127.0.0.1 is taken by another process" in said.stderr
    assert f"duly listen --port {port + 1}" in said.stderr
