"""Notifications from the command line."""

import json

import pytest

from tests.cli.processes import inside


@pytest.fixture
def duly(database_url, tmp_path):
    """Run one command on a database that holds nothing."""
    (tmp_path / "keys").write_text(inside("secrets", "new-key", cwd=tmp_path).stdout)
    (tmp_path / "password").write_text("hush\n")
    keys = {"DULY_SECRETS_KEY": str(tmp_path / "keys")}
    return lambda *arguments: inside(*arguments, "--database-url", database_url, cwd=tmp_path, **keys)


def test_channels_and_rules_are_made_listed_and_deleted(duly):
    made = duly("notify", "put-channel", "ops", "--webhook", "https://hooks.example/in?token=hush")
    assert made.stdout == "channel ops is stored; try it: duly notify test ops\n"
    mail = ("--smtp", "smtp.example.com:25", "--from", "duly@example.com", "--to", "ops@example.com")
    duly("notify", "put-channel", "mail", *mail, "--user", "duly", "--password-file", "password")
    rule = ("--on", "dead", "--on", "late", "--channel", "ops", "--late-after", "PT1M", "--quiet", "22:00-07:00")
    assert (
        duly("notify", "put-rule", "all", *rule, "--tz", "Europe/Berlin").stdout
        == "rule all is stored: dead, late to ops\n"
    )

    channels = json.loads(duly("notify", "channels", "--json").stdout)
    rules = json.loads(duly("notify", "rules", "--json").stdout)

    assert [one["name"] for one in channels] == ["mail", "ops"]
    assert (channels[0]["configuration"]["port"], channels[1]["rules"]) == (25, ["all"])
    assert "hush" not in str(channels)
    assert rules[0]["definition"]["quiet"] == {"start": "22:00", "end": "07:00", "tz": "Europe/Berlin"}
    assert "dead" in duly("notify", "rules").stdout
    assert duly("notify").stdout == "no notifications\n"
    refused = duly("notify", "delete-channel", "ops")
    assert refused.returncode != 0
    assert "used by all" in refused.stderr
    duly("notify", "delete-rule", "all")
    assert duly("notify", "delete-channel", "ops").stdout == "channel ops is deleted\n"


def test_test_waits_and_fails_when_nothing_is_delivered(duly):
    duly("notify", "put-channel", "ops", "--webhook", "https://hooks.example/in")

    tested = duly("notify", "test", "ops", "--wait", "0")

    assert (tested.returncode, tested.stdout) == (1, "test of channel ops: ready\n")


@pytest.mark.parametrize(
    "wrong",
    [
        ("put-channel", "ops"),
        ("put-channel", "ops", "--webhook", "https://hooks.example/", "--apprise", "slack://x"),
        ("put-channel", "ops", "--smtp", "smtp.example.com"),
        ("put-channel", "ops", "--smtp", "smtp.example.com:x", "--from", "a@example.com", "--to", "b@example.com"),
        ("put-rule", "all", "--on", "burnt", "--channel", "ops"),
        ("put-rule", "all", "--on", "dead", "--channel", "ops", "--quiet", "22:00"),
        ("put-rule", "all", "--on", "dead", "--channel", "ops", "--quiet", "late-early"),
    ],
)
def test_misuse_is_refused_before_anything_is_sent(duly, wrong):
    assert duly("notify", *wrong).returncode == 2


RULE = ("put-rule", "all", "--on", "dead", "--channel", "ops")
MAIL = ("put-channel", "mail", "--smtp", "smtp.example.com", "--from", "duly@example.com")


@pytest.mark.parametrize(
    ("wrong", "remedy"),
    [
        ((*MAIL, *("--to", "ops@example.com") * 51), "51 times; the limit is 50: write to a mailing list"),
        ((*MAIL, "--to", "o" * 400), "recipients"),
        ((*MAIL, "--to", "ops@example.com", "--password-file", "latin-1"), "latin-1 is not UTF-8 text: byte 1"),
        (("put-rule", "all", "--on", "dead", *("--channel", "ops") * 11), "11 times; the limit is 10: put the rest"),
        (
            (*RULE, "--quiet", "25:00-07:00"),
            "'25:00-07:00' is not two times of day from 00:00 to 23:59; write 22:00-07:00",
        ),
        ((*RULE, "--tz", "Mars/X"), "--tz is the zone of quiet hours; give --quiet too"),
    ],
)
def test_too_much_and_what_cannot_be_read_is_wrong_usage_with_its_remedy(duly, tmp_path, wrong, remedy):
    (tmp_path / "latin-1").write_bytes(b"p\xe4ss")

    refused = duly("notify", *wrong)

    assert (refused.returncode, remedy in refused.stderr) == (2, True), refused.stderr
