"""Rules of notifications: when their deliveries leave; and messages: what they say, in one line where it must be one."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import msgspec
import pytest

from duly.domain.errors import InvalidOption
from duly.domain.notifications.channel import (
    AppriseChannel,
    EmailChannel,
    WebhookChannel,
    check_channel,
    packed,
    shown_channel,
    unpacked,
)
from duly.domain.notifications.message import SHOWN_MAX, Message, Notification
from duly.domain.notifications.rule import Quiet, RuleSpec, after_quiet, read_rule, sends_at

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "notifications.md"

AT = datetime(2026, 11, 2, 9, 0, tzinfo=UTC)
ID = UUID(int=7)
MAIL = EmailChannel(host="smtp.example.com", sender="duly@example.com", recipients=["ops@example.com"])


def a_rule(**more):
    return read_rule(RuleSpec(events=["dead"], channels=["ops"], **more))


def a_notification(event="dead", reason="broken"):
    return Notification(1, "all", event, "nightly", None, ID, 1, "default", reason, AT, AT)


def minutes(number):
    return timedelta(minutes=number)


def test_every_event_is_sent_at_once_and_a_digest_after_its_span():
    assert sends_at(a_rule(), AT, []) == AT
    assert sends_at(a_rule(mode="digest", digest="PT30M"), AT, []) == AT + minutes(30)


def test_rate_limit_waits_for_the_oldest_delivery_that_counts():
    rule = a_rule(deliveries_max=2, per="PT10M")
    sent = [AT - minutes(9), AT - minutes(5), AT - minutes(1)]

    assert sends_at(rule, AT, sent) == AT + minutes(5)
    assert sends_at(rule, AT, sent[:1]) == AT
    assert sends_at(rule, AT, [AT - minutes(30), AT - minutes(20)]) == AT


@pytest.mark.parametrize(
    ("at", "end"),
    [
        ("2026-11-02T21:59:59+00:00", "2026-11-02T21:59:59+00:00"),
        ("2026-11-02T22:00:00+00:00", "2026-11-03T07:00:00+00:00"),
        ("2026-11-03T06:59:59+00:00", "2026-11-03T07:00:00+00:00"),
        ("2026-11-03T07:00:00+00:00", "2026-11-03T07:00:00+00:00"),
    ],
)
def test_quiet_hours_over_midnight(at, end):
    quiet = Quiet(start="22:00", end="07:00")

    assert after_quiet(quiet, datetime.fromisoformat(at)) == datetime.fromisoformat(end)


def test_quiet_hours_end_by_the_clock_on_the_wall():
    quiet = Quiet(start="22:00", end="07:00", tz="Europe/Berlin")
    before_the_change = datetime(
        2026, 10, 24, 20, 30, tzinfo=UTC
    )  # 22:30 in summer time; the clocks go back in that night

    assert after_quiet(quiet, before_the_change) == datetime(2026, 10, 25, 6, 0, tzinfo=UTC)


def test_quiet_hours_and_a_digest_go_together():
    rule = a_rule(mode="digest", digest="PT1H", quiet=Quiet(start="09:30", end="12:00"))

    assert sends_at(rule, AT, []) == datetime(2026, 11, 2, 12, 0, tzinfo=UTC)


def test_message_of_one_says_what_happened():
    message = Message(ID, "all", "ops", 1, [a_notification(reason="line one\r\nBcc: all@example.com")], AT)

    assert message.title == "Duly: job nightly gave up: its run is a dead letter: line one Bcc: all@example.com"
    assert str(ID) in message.body


def test_message_of_many_is_bounded_and_says_how_many_it_leaves_out():
    shown = [a_notification(reason="x" * 5_000)] * SHOWN_MAX
    message = Message(ID, "all", "ops", 100_000, shown, AT)

    assert message.title == "Duly: 100000 notifications of rule all"
    assert "and 99,980 more" in message.body
    assert len(message.body) < 20_000
    assert (message.event["data"]["count"], message.event["data"]["left_out"]) == (100_000, 99_980)


@pytest.mark.parametrize(
    "event", ["failed", "dead", "recovered", "late", "absent", "paused", "queue_age", "circuit_open"]
)
def test_each_event_has_a_sentence(event):
    assert "nightly" in a_notification(event=event).sentence


@pytest.mark.parametrize(
    "channel",
    [
        WebhookChannel(url="https://hooks.example/in", headers={"Authorization": "hush"}),
        msgspec.structs.replace(MAIL, user="duly", password="hush"),
        AppriseChannel(url="slack://hush/hush/hush"),
    ],
)
def test_channel_is_packed_whole_and_shown_without_secrets(channel):
    assert unpacked(packed(check_channel(channel))) == channel
    assert "hush" not in str(shown_channel(channel))
    assert "hush" not in repr(packed(channel))


def test_shown_secret_is_no_secret():
    with pytest.raises(InvalidOption, match="send the value itself"):
        check_channel(AppriseChannel(url="slack://***"))


def test_body_of_a_webhook_is_as_the_documentation_shows_it():
    job_id, run_id, delivery_id = (UUID(f"01a1c5de-7c00-7000-8000-{number:012x}") for number in (1, 2, 10))
    second = AT + timedelta(seconds=1)
    reason = "ConnectionError: refused"
    one = Notification(812, "billing", "dead", "invoice-export", job_id, run_id, 3, "default", reason, AT, second)
    page = PAGE.read_text(encoding="utf-8")
    [shown] = re.findall(r'```json title="The body of a delivery"\n(.*?)```', page, re.S)

    sent = msgspec.json.encode(Message(delivery_id, "billing", "ops", 1, [one], second).event)

    assert msgspec.json.decode(sent) == msgspec.json.decode(shown)
    fields = {
        field for row in re.findall(r"^\| (`.*?) \|", page, re.M) for field in re.findall(r"`(?:data\.)?(\w+)`", row)
    }
    assert set(msgspec.json.decode(sent)["data"]["notifications"][0]) - {"rule"} <= fields
