"""Channels, rules and notifications over HTTP."""

import pytest

from duly.domain.runs.outcome import Failed
from duly.log import Log
from duly.moves.admin.notifications import step
from tests.api.working import work

HOOK = {"kind": "webhook", "url": "https://hooks.example/in?token=hush", "headers": {"Authorization": "hush"}}
MAIL = {
    "kind": "email",
    "host": "smtp.example.com",
    "sender": "duly@example.com",
    "recipients": ["ops@example.com"],
    "user": "duly",
    "password": "hush",
}
RULE = {"events": ["dead", "recovered"], "channels": ["ops"], "filter": "queue:default"}


@pytest.fixture
async def ops(api):
    assert (await api.put("/v1/channels/ops", json=HOOK)).status_code == 200


async def test_channel_is_stored_read_listed_changed_and_deleted_without_its_secrets(api):
    put = await api.put("/v1/channels/ops", json=HOOK)
    assert put.status_code == 200
    assert put.json()["configuration"] == {
        "url": "https://hooks.example/in?token=***",
        "headers": {"Authorization": "***"},
    }
    changed = await api.put("/v1/channels/ops", json=MAIL)
    assert (changed.json()["kind"], changed.json()["configuration"]["password"]) == ("email", "***")
    [listed] = (await api.get("/v1/channels")).json()["items"]
    assert listed == (await api.get("/v1/channels/ops")).json() == changed.json()
    assert (await api.delete("/v1/channels/ops")).status_code == 204
    assert (await api.delete("/v1/channels/ops")).status_code == 404
    assert (await api.get("/v1/channels/ops")).status_code == 404


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "webhook", "url": "ftp://hooks.example/in"},
        {"kind": "webhook", "url": "https://hooks.example/in", "headers": {"Authorization": "***"}},
        {**MAIL, "recipients": ["ops"]},
        {**MAIL, "recipients": ["ops@example.com\r\nBcc: all@example.com"]},
        {**MAIL, "security": "none"},
        {**MAIL, "password": None},
        {**MAIL, "host": "smtp example"},
        {"kind": "apprise", "url": "syslog://"},
        {"kind": "apprise", "url": "json://127.0.0.1"},
        {"kind": "apprise", "url": "nothing"},
    ],
)
async def test_invalid_channel_is_refused(api, wrong):
    answer = await api.put("/v1/channels/ops", json=wrong)

    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_option")
    assert "hush" not in answer.text


async def test_rule_is_stored_read_listed_and_deleted(api, ops):
    put = await api.put("/v1/notification-rules/all", json=RULE)
    assert put.status_code == 200
    assert {name: put.json()["definition"][name] for name in RULE} == RULE
    [listed] = (await api.get("/v1/notification-rules")).json()["items"]
    assert listed == (await api.get("/v1/notification-rules/all")).json() == put.json()
    used = await api.delete("/v1/channels/ops")
    assert (used.status_code, used.json()["code"]) == (422, "invalid_option")
    assert (await api.delete("/v1/notification-rules/all")).status_code == 204
    assert (await api.delete("/v1/notification-rules/all")).status_code == 404


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({**RULE, "channels": ["nobody"]}, "invalid_option"),
        ({**RULE, "filter": "state:dead"}, "invalid_filter"),
        ({**RULE, "events": ["queue_age"], "filter": "tag:billing"}, "invalid_option"),
        ({**RULE, "events": ["circuit_open"]}, "invalid_option"),
        ({**RULE, "events": ["recovered"]}, "invalid_option"),
        ({**RULE, "events": ["dead", "dead"]}, "invalid_option"),
        ({**RULE, "late_after": "PT0S"}, "invalid_option"),
        ({**RULE, "quiet": {"start": "22:00", "end": "22:00"}}, "invalid_option"),
        ({**RULE, "quiet": {"start": "22:00", "end": "07:00", "tz": "Mars/Olympus"}}, "invalid_option"),
    ],
)
async def test_invalid_rule_is_refused(api, ops, wrong, code):
    answer = await api.put("/v1/notification-rules/all", json=wrong)

    assert (answer.status_code, answer.json()["code"]) == (422, code)


async def test_notification_is_listed_with_its_delivery(api, ops, database, clock):
    await api.put("/v1/notification-rules/all", json=RULE)
    job = await api.a_job()
    await work(database, Failed("broken", retryable=False))
    await clock.advance(1)
    await step(database, Log("test"))

    [one] = (await api.get("/v1/notifications?rule=all")).json()["items"]

    assert (one["event"], one["job_id"], one["reason"]) == ("dead", job["job_id"], "broken")
    [delivery] = one["deliveries"]
    assert (delivery["channel"], delivery["state"]) == ("ops", "ready")
    [channel] = (await api.get("/v1/channels")).json()["items"]
    assert channel["latest"]["run_id"] == delivery["run_id"]
    assert (await api.get("/v1/notifications?rule=other")).json()["items"] == []


async def test_notifications_are_read_page_by_page(api, ops, database, clock):
    await api.put("/v1/notification-rules/all", json=RULE)
    for _ in range(3):
        await api.a_job()
    await work(database, Failed("broken", retryable=False))
    await clock.advance(1)
    await step(database, Log("test"))

    first = (await api.get("/v1/notifications?page_size=2")).json()
    rest = (await api.get(f"/v1/notifications?page_size=2&page_token={first['next_page_token']}")).json()

    numbers = [one["notification_id"] for one in [*first["items"], *rest["items"]]]
    assert numbers == sorted(numbers, reverse=True)
    assert len(numbers) == 3


async def test_test_of_a_channel_is_a_run(api, ops):
    sent = await api.post("/v1/channels/ops/test")

    assert sent.status_code == 202
    run = (await api.get(f"/v1/runs/{sent.json()['run_id']}")).json()
    assert (run["state"], run["queue"], run["handler"]) == ("ready", "@notifications", "@notification")
    assert (await api.post("/v1/channels/nobody/test")).status_code == 404
