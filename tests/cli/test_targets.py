"""Webhooks, commands and containers on the command line, at both desks."""

import json
from typing import Any

import click
import pytest

from duly.cli.flags.submission import read
from duly.domain.errors import InvalidOption
from duly.domain.targets.target import Command, Container, Webhook
from tests.cli.processes import inside
from tests.cli.test_remote import a_name, remote

__all__ = ["remote"]
URL = "https://receiver.example/orders?token=1"


@pytest.fixture
def duly(database_url, tmp_path):
    """Run one command on a database that holds nothing, with a keyring."""
    keyring = tmp_path / "secrets-key"
    keyring.write_text(inside("secrets", "new-key", cwd=tmp_path).stdout)

    def run(*arguments):
        head, mark, rest = _parted(arguments)
        whole = (*head, "--database-url", database_url, *mark, *rest)
        return inside(*whole, cwd=tmp_path, DULY_SECRETS_KEY=str(keyring))

    return run


def _parted(arguments):
    """Cut words where `--` says that no flag follows."""
    place = arguments.index("--") if "--" in arguments else len(arguments)
    return arguments[:place], arguments[place : place + 1], arguments[place + 1 :]


def typed(*words, **more):
    return read(dict(words=words, json_text=more.pop("json_text", None), **more), None)


def test_target_options_become_a_target():
    webhook = typed("order=7", webhook=URL, method="put", headers=("Authorization: Bearer x", "A:b"))
    command = typed("/usr/bin/rsync", "-a", command=True, environment=("LANG=C", "EMPTY="), json_text='{"a": 1}')
    container = typed("echo", "a=b", image="busybox", network=True)

    assert (webhook.handler, webhook.payload) == ("@webhook", '{"order":7}')
    assert webhook.options.policy.target == Webhook(URL, "PUT", {"Authorization": "Bearer x", "A": "b"})
    assert (command.handler, command.payload) == ("@command:/usr/bin/rsync", '{"a":1}')
    assert command.options.policy.target == Command(("/usr/bin/rsync", "-a"), {"LANG": "C", "EMPTY": ""})
    assert (container.handler, container.payload) == ("@container:busybox", "{}")
    assert container.options.policy.target == Container("busybox", ("echo", "a=b"), network=True)


def test_program_limits_and_exit_codes_are_set_with_options(duly):
    more = {"memory_bytes": 10_000_000, "processes": 3, "ok_exits": (0, 1), "retry_exits": (4,)}
    command = typed("/bin/true", command=True, cpu_seconds=2.5, **more)
    container = typed("true", image="busybox", **more)
    webhook = typed(webhook=URL, callback_within="PT1H")

    kept: dict[str, Any] = {"memory_bytes": 10_000_000, "processes": 3, "ok": (0, 1), "retry": (4,)}
    assert command.options.policy.target == Command(("/bin/true",), cpu_seconds=2.5, **kept)
    assert container.options.policy.target == Container("busybox", ("true",), **kept)
    assert webhook.options.policy.target == Webhook(URL, callback_within_seconds=3600.0)
    flags = (
        "--memory-bytes",
        "10000000",
        "--cpu-seconds",
        "2",
        "--processes",
        "3",
        "--ok-exit",
        "1",
        "--retry-exit",
        "4",
    )
    assert duly("submit", "--command", *flags, "--", "/bin/true").returncode == 0


@pytest.mark.parametrize(
    ("words", "more", "said"),
    [
        ((), {}, "name a HANDLER, or give --webhook"),
        ((), {"webhook": URL, "image": "busybox"}, "give --webhook or --image, not both"),
        (("greet",), {"method": "PUT"}, "--method is for --webhook"),
        (("greet",), {"callback_within": "PT1H"}, "--callback-within is for --webhook"),
        (("true",), {"image": "busybox", "cpu_seconds": 1.0}, "--cpu-seconds is for --command"),
        (("greet",), {"processes": 2}, "--processes is for --command and --image"),
        (("greet",), {"network": True}, "--network is for --command and --image"),
        ((), {"webhook": URL, "environment": ("A=b",)}, "--env is for --command and --image"),
        ((), {"webhook": URL, "headers": ("secret",)}, "--header reads 'Name: value'"),
        (("/a",), {"command": True, "environment": ("A=1", "A=2")}, "--env 'A' is given twice"),
    ],
)
def test_flags_that_do_not_go_together_are_wrong_usage(words, more, said):
    with pytest.raises(click.UsageError) as caught:
        typed(*words, **more)

    assert said in caught.value.message


def test_a_target_that_cannot_be_is_refused():
    with pytest.raises(InvalidOption, match="needs argv"):
        typed(command=True)
    with pytest.raises(InvalidOption, match="begins with @"):
        typed("@webhook")


def test_a_webhook_is_submitted_shown_listed_edited_and_exported_without_its_secret(duly):
    said = duly("submit", "--webhook", URL, "--header", "Authorization: Bearer x", "order=7", "--name", "order",
                "--cron", "0 2 * * *")  # fmt: skip
    assert said.returncode == 0, said.stderr
    assert "webhook https://receiver.example/orders?… on queue default" in said.stdout

    edited = duly("jobs", "edit", "order", "--priority", "2", "--timeout", "PT20S")
    shown, listed = duly("jobs", "show", "order"), duly("jobs", "list", "--json")
    exported = duly("export", "--by-hand")
    assert edited.returncode == 0, edited.stderr
    assert '"Authorization":"***"' in shown.stdout
    assert "timeout PT20S" in shown.stdout
    [row] = json.loads(listed.stdout)
    assert row["target"] == {"type": "webhook", "handler": "@webhook", "url": "https://receiver.example/orders?…"}
    assert json.loads(duly("jobs", "show", "order", "--json").stdout)["target"]["headers"] == {"Authorization": "***"}
    assert "type: webhook" in exported.stdout
    for answer in (said, edited, shown, listed, exported):
        assert "Bearer" not in answer.stdout + answer.stderr


def test_command_and_container_take_trailing_arguments_verbatim(duly):
    said = duly("submit", "--command", "--", "/usr/bin/rsync", "-a", "--delete", "/a", "/b")
    image = duly("submit", "--image", "busybox", "--env", "TOKEN=s3cret", "--", "echo", "hello")
    run_id = said.stdout.split()[1]
    shown = duly("runs", "show", run_id)

    assert "Once, now: command /usr/bin/rsync on queue default" in said.stdout
    assert "no worker serves queue default, so it waits" in said.stdout
    assert "DULY_COMMANDS=/usr/bin/rsync duly worker\n" in said.stdout
    assert "Once, now: container busybox on queue default" in image.stdout
    assert "@command:/usr/bin/rsync on queue default" in shown.stdout
    told = duly("runs", "show", image.stdout.split()[1], "--json").stdout
    assert '"TOKEN": "***"' in told
    assert "s3cret" not in told


def test_a_file_names_targets(duly, tmp_path):
    (tmp_path / "duly.yaml").write_text(
        "source: s\n"
        "jobs:\n"
        "  order:\n"
        "    target: {type: webhook, url: https://receiver.example/orders, headers: {X-Api-Key: k1}}\n"
        "    schedule: every day at 3am\n"
    )
    planned, applied = duly("plan"), duly("apply", "--yes")
    exported = duly("export")
    (tmp_path / "duly.yaml").write_text(exported.stdout)
    again = duly("plan", "--check")

    assert applied.returncode == 0, applied.stderr
    assert "X-Api-Key: '***'" in exported.stdout or 'X-Api-Key: "***"' in exported.stdout
    assert again.returncode == 0, again.stdout
    assert "k1" not in planned.stdout + applied.stdout + exported.stdout + again.stdout


def test_over_http_the_same(remote, up):
    name = a_name()
    remote.says("submit", "--webhook", URL, "--header", "Authorization: Bearer x", "order=7", "--name", name,
                "--when", "every day at 9am", "--queue", "nobody")  # fmt: skip
    remote.says("jobs", "edit", name, "--priority", "2")

    there, here = remote.says("jobs", "show", name), up.duly("jobs", "show", name).stdout
    assert "webhook https://receiver.example/orders?… on queue nobody, priority 2" in there
    assert next(line for line in there.splitlines() if line.startswith("target")) in here
    assert "Bearer" not in there + here
    assert remote.reads("jobs", "--filter", 'handler:"@webhook"')[0]["target"]["type"] == "webhook"
    refused = remote.duly("submit", "--command", "--", "/bin/true")
    assert refused.returncode == 1
    assert "command '/bin/true' is not allowed" in refused.stderr


def test_an_address_that_no_worker_would_call_is_refused_where_it_is_typed(duly, tmp_path):
    for words in (
        ("submit", "--webhook", "http://169.254.169.254/latest"),
        ("submit", "work", "--on-end", "http://169.254.169.254/latest"),
    ):
        done = duly(*words)
        assert done.returncode == 1
        assert "address 169.254.169.254 is not an allowed address" in done.stderr
        assert "egress_allow" in done.stderr
    file = tmp_path / "jobs.json"
    target = {"type": "webhook", "url": "https://receiver.example:22/"}
    file.write_text(json.dumps({"source": "calls", "jobs": {"a": {"target": target, "schedule": {"every": "PT1H"}}}}))
    done = duly("apply", "--yes", "-f", str(file))
    assert (done.returncode, "port 22 is not an allowed port" in done.stderr) == (1, True), done.stderr
