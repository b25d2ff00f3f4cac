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
    made = duly("notify", "channel", "ops", "--webhook", "https://hooks.example/in?token=hush")
    assert made.stdout == "channel ops is stored; try it: duly notify test ops\n"
    mail = ("--smtp", "smtp.example.com:25", "--from", "duly@example.com", "--to", "ops@example.com")
    duly("notify", "channel", "mail", *mail, "--user", "duly", "--password-file", "password")
    rule = ("--on", "dead", "--on", "late", "--channel", "ops", "--late-after", "PT1M", "--quiet", "22:00-07:00")
    assert (
        duly("notify", "rule", "all", *rule, "--tz", "Europe/Berlin").stdout
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
    duly("notify", "channel", "ops", "--webhook", "https://hooks.example/in")

    tested = duly("notify", "test", "ops", "--wait", "0")

    assert (tested.returncode, tested.stdout) == (1, "test of channel ops: ready\n")


@pytest.mark.parametrize(
    "wrong",
    [
        ("channel", "ops"),
        ("channel", "ops", "--webhook", "https://hooks.example/", "--apprise", "slack://x"),
        ("channel", "ops", "--smtp", "smtp.example.com"),
        ("channel", "ops", "--smtp", "smtp.example.com:x", "--from", "a@example.com", "--to", "b@example.com"),
        ("rule", "all", "--on", "burnt", "--channel", "ops"),
        ("rule", "all", "--on", "dead", "--channel", "ops", "--quiet", "22:00"),
    ],
)
def test_misuse_is_refused_before_anything_is_sent(duly, wrong):
    assert duly("notify", *wrong).returncode == 2
