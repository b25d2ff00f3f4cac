"""Destinations, schedules as code, tenants and keys, audit, system: by clicks in a real browser, and checked through the API."""

import json
import re
import socket

import pytest
from playwright.async_api import expect

from tests.dashboard.conftest import eventually, visiting
from tests.dashboard.test_manners import serious, settled
from tests.dashboard.test_screens import a_name

HEADINGS = {
    "t": "Destinations",
    "n": "Notifications",
    "f": "Schedules as code",
    "k": "Tenants and API keys",
    "a": "Audit log",
    "s": "System",
}
MORNING = {"cron": "0 4 * * *"}


async def a_destination(house):
    return await house.ask("POST", "/v1/destinations", {"url": f"https://{a_name('hooks')}.example/in"})


async def a_file(house, **jobs):
    source = a_name("file")
    wanted = {f"{source}-{name}": {"target": "greet", "schedule": MORNING, **more} for name, more in jobs.items()}
    told = await house.ask("POST", "/v1/jobs:apply", {"source": source, "jobs": wanted})
    return source, {done["name"].removeprefix(f"{source}-"): done["job_id"] for done in told["done"]}


async def change(house, job_id, **patch):
    job = await house.ask("GET", f"/v1/jobs/{job_id}")
    headers = {"If-Match": f'"{job["version"]}"', "Content-Type": "application/merge-patch+json"}
    answer = await house._client.request("PATCH", f"/v1/jobs/{job_id}", content=json.dumps(patch), headers=headers)
    assert answer.is_success, answer.text


def unused_port():
    """Give a port that nobody listens on."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


async def a_reader(house):
    return (await house.ask("POST", "/v1/keys", {"name": a_name("reader"), "scopes": ["jobs:read"]}))["key"]


@pytest.fixture(scope="module")
async def places(house):
    """The path of each screen, each with something to see."""
    one = await a_destination(house)
    source, made = await a_file(house, report={}, clean={})
    await change(house, made["report"], priority=1)
    await house.ask("PUT", "/v1/limits", {"queue": "reports", "slots": 7})
    await house.ask("PUT", "/v1/concurrency-keys/looked-at", {"limit": 3})
    listed = ["/destinations", f"/destinations/{one['destination_id']}", "/files", f"/files/{source}"]
    await house.ask("PUT", "/v1/channels/looked-at", {"kind": "webhook", "url": "https://hooks.example/in"})
    rule = {"events": ["dead"], "channels": ["looked-at"]}
    await house.ask("PUT", "/v1/notification-rules/looked-at", rule)
    return [*listed, "/notifications", "/keys", "/tenants/1", "/audit", "/system"]


async def choose_channel(page, name):
    """Leave this channel alone checked."""
    channels = page.get_by_role("dialog").get_by_role("group", name="Channels").get_by_role("checkbox")
    for number in range(await channels.count()):
        await channels.nth(number).uncheck()
    await page.get_by_role("dialog").get_by_label(name, exact=True).check()


class TestNotifications:
    async def test_channel_and_rule_are_created_tested_and_deleted(self, visitor, house):
        page, name = visitor.page, a_name("ops")
        await visitor.go("/notifications")
        await page.get_by_role("button", name="Create channel").click()
        await page.get_by_role("dialog").get_by_label("Name", exact=True).fill(name)
        await page.get_by_role("dialog").get_by_label("URL").fill(f"http://127.0.0.1:{unused_port()}/in")
        await page.get_by_role("dialog").get_by_role("button", name="Create channel").click()
        channel = page.locator(f"[data-channel='{name}']")
        await expect(channel).to_be_visible()

        await page.get_by_role("button", name=f"Send test to {name}").click()
        await expect(channel.locator("[data-state=dead]")).to_be_visible(timeout=15_000)
        assert (await house.ask("GET", f"/v1/channels/{name}"))["latest"]["state"] == "dead"

        await page.get_by_role("button", name="Create rule").click()
        await page.get_by_role("dialog").get_by_label("Name", exact=True).fill(name)
        await page.get_by_role("dialog").get_by_label("late", exact=True).check()
        await page.get_by_role("dialog").get_by_label("Late after").fill("PT10M")
        await choose_channel(page, name)
        await page.get_by_role("dialog").get_by_role("button", name="Create rule").click()
        await expect(page.locator(f"[data-rule='{name}']")).to_be_visible()
        made = (await house.ask("GET", f"/v1/notification-rules/{name}"))["definition"]
        assert (made["events"], made["channels"], made["late_after"]) == (["dead", "late"], [name], "PT10M")

        for what in ("rule", "channel"):
            await page.get_by_role("button", name=f"Delete {what} {name}").click()
            await page.get_by_role("dialog").get_by_role("button", name=f"Delete {what}").click()
            await expect(page.locator(f"[data-{what}='{name}']")).to_be_hidden()
        assert name not in str(await house.ask("GET", "/v1/channels"))

    async def test_name_that_is_taken_is_refused_and_nothing_is_overwritten(self, visitor, house):
        page, name = visitor.page, a_name("ops")
        await house.ask("PUT", f"/v1/channels/{name}", {"kind": "webhook", "url": "https://hooks.example/in"})
        kept = {"events": ["absent"], "channels": [name], "mode": "digest"}
        await house.ask("PUT", f"/v1/notification-rules/{name}", kept)
        await visitor.go("/notifications")

        for what in ("channel", "rule"):
            await page.get_by_role("button", name=f"Create {what}").click()
            dialog = page.get_by_role("dialog")
            await dialog.get_by_label("Name", exact=True).fill(name)
            await expect(dialog.get_by_role("alert")).to_contain_text(f"A {what} named {name} exists")
            await expect(dialog.get_by_role("button", name=f"Create {what}")).to_be_disabled()
            await dialog.get_by_role("button", name="Cancel").click()

        assert (await house.ask("GET", f"/v1/notification-rules/{name}"))["definition"]["mode"] == "digest"

    async def test_rule_that_was_created_in_the_meantime_is_not_overwritten(self, visitor, house):
        page, name, new = visitor.page, a_name("ops"), a_name("new")
        await house.ask("PUT", f"/v1/channels/{name}", {"kind": "webhook", "url": "https://hooks.example/in"})
        await visitor.go("/notifications")
        await page.get_by_role("button", name="Create rule").click()
        dialog = page.get_by_role("dialog")
        await dialog.get_by_label("Name", exact=True).fill(new)
        await expect(dialog.get_by_role("button", name="Create rule")).to_be_enabled()
        await house.ask("PUT", f"/v1/notification-rules/{new}", {"events": ["absent"], "channels": [name]})

        await dialog.get_by_role("button", name="Create rule").click()

        await expect(dialog.get_by_role("alert")).to_contain_text(f"A rule named {new} exists")
        assert (await house.ask("GET", f"/v1/notification-rules/{new}"))["definition"]["events"] == ["absent"]

    async def test_every_field_of_a_rule_is_edited(self, visitor, house):
        page, name = visitor.page, a_name("ops")
        for channel in (name, f"{name}-2"):
            await house.ask("PUT", f"/v1/channels/{channel}", {"kind": "webhook", "url": "https://hooks.example/in"})
        await house.ask("PUT", f"/v1/notification-rules/{name}", {"events": ["dead"], "channels": [name]})
        await visitor.go("/notifications")
        await page.get_by_role("button", name=f"Edit rule {name}").click()
        dialog = page.get_by_role("dialog")
        for event in ("late", "absent", "queue age"):
            await dialog.get_by_label(event, exact=True).check()
        await dialog.get_by_label(f"{name}-2", exact=True).check()
        await dialog.get_by_label("Mode").select_option("digest")
        fields = {
            "Late after": "PT1M", "Absent after": "PT2M", "Maximum queue age": "PT3M", "Filter": "queue:mail",
            "Digest span": "PT4H", "Maximum deliveries": "5", "Within": "PT30M", "Quiet from": "22:00",
            "Quiet until": "07:00", "Time zone of the quiet hours": "Europe/Berlin",
        }  # fmt: skip
        for label, value in fields.items():
            await dialog.get_by_label(label).fill(value)
        await dialog.get_by_role("button", name="Save rule").click()
        await expect(dialog).to_be_hidden()

        assert (await house.ask("GET", f"/v1/notification-rules/{name}"))["definition"] == {
            "events": ["dead", "late", "absent", "queue_age"], "channels": [name, f"{name}-2"],
            "filter": "queue:mail", "mode": "digest", "digest": "PT4H", "late_after": "PT1M", "absent_after": "PT2M",
            "queue_age": "PT3M", "deliveries_max": 5, "per": "PT30M",
            "quiet": {"start": "22:00", "end": "07:00", "tz": "Europe/Berlin"},
        }  # fmt: skip

    async def test_mail_channel_has_its_encryption_and_is_edited(self, visitor, house):
        page, name = visitor.page, a_name("mail")
        await visitor.go("/notifications")
        await page.get_by_role("button", name="Create channel").click()
        dialog = page.get_by_role("dialog")
        await dialog.get_by_label("Name", exact=True).fill(name)
        await dialog.get_by_label("Kind").select_option("email")
        fields = {
            "SMTP server": "smtp.example.com",
            "Port": "465",
            "Sender": "duly@example.com",
            "Recipients": "a@b.example",
        }
        for label, value in fields.items():
            await dialog.get_by_label(label).fill(value)
        await dialog.get_by_label("Encryption").select_option("tls")
        await dialog.get_by_role("button", name="Create channel").click()
        await expect(page.locator(f"[data-channel='{name}']")).to_be_visible()
        stored = (await house.ask("GET", f"/v1/channels/{name}"))["configuration"]
        assert (stored["host"], stored["port"], stored["security"]) == ("smtp.example.com", 465, "tls")

        await page.get_by_role("button", name=f"Edit channel {name}").click()
        await expect(dialog.get_by_label("Encryption")).to_have_value("tls")
        await dialog.get_by_label("Encryption").select_option("none")
        await dialog.get_by_label("Port").fill("25")
        await dialog.get_by_role("button", name="Save channel").click()
        await expect(dialog).to_be_hidden()
        stored = (await house.ask("GET", f"/v1/channels/{name}"))["configuration"]
        assert (stored["port"], stored["security"], stored["recipients"]) == (25, "none", ["a@b.example"])


class TestDestinations:
    async def test_destination_is_created_and_its_circuit_is_opened_and_closed(self, visitor, house):
        page, host = visitor.page, f"{a_name('made')}.example"
        await visitor.go("/destinations")
        await page.get_by_role("button", name="Create destination").click()
        await page.get_by_role("dialog").get_by_label("URL").fill(f"https://{host}/in")
        await page.get_by_role("dialog").get_by_role("button", name="Create destination").click()
        await expect(page.get_by_role("heading", name=f"https://{host}")).to_be_visible()
        path = f"/v1/destinations/{page.url.rpartition('/')[2]}"

        await page.get_by_role("button", name="Open circuit").click()
        await page.get_by_label("Duration, in minutes").fill("30")
        await page.get_by_role("dialog").get_by_role("button", name="Open circuit").click()
        await expect(page.locator(".head [data-state=open]")).to_be_visible()
        assert (await house.ask("GET", path))["state"] == "open"
        await visitor.go("/destinations")
        await expect(page.get_by_role("row", name=re.compile(host)).locator("[data-state=open]")).to_be_visible()
        await page.get_by_role("link", name=host).click()
        await page.get_by_role("button", name="Close circuit").click()
        await expect(page.get_by_role("dialog")).to_contain_text("0 waiting runs")
        await page.get_by_role("dialog").get_by_role("button", name="Close circuit").click()
        await expect(page.locator(".head [data-state=closed]")).to_be_visible()
        assert (await house.ask("GET", path))["state"] == "closed"

    async def test_its_rate_and_its_budget_are_edited(self, visitor, house):
        one = await a_destination(house)
        page = visitor.page
        await visitor.go(f"/destinations/{one['destination_id']}")
        await page.get_by_label("Limits", exact=True).get_by_role("button", name="Edit").click()
        await page.get_by_label("Concurrent requests").fill("7")
        await page.get_by_label("Requests per second").fill("2.5")
        await page.get_by_label(re.compile("^Retry budget")).fill("50")
        await page.get_by_role("button", name="Set limits").click()
        sent = page.get_by_label("Limits", exact=True)
        await expect(sent).to_contain_text("2.5 per second")
        told = await house.ask("GET", f"/v1/destinations/{one['destination_id']}")
        assert (told["slots"], told["rate_per_second"], told["retry_share"]) == (7, 2.5, 0.5)

        await sent.get_by_role("button", name="Edit").click()
        await page.get_by_label("Requests per second").fill("")
        await page.get_by_role("button", name="Set limits").click()
        await expect(sent).to_contain_text("no limit")
        assert (await house.ask("GET", f"/v1/destinations/{one['destination_id']}"))["rate_per_second"] is None

    async def test_its_secret_is_masked_and_a_new_one_is_shown_once(self, visitor, house):
        one = await a_destination(house)
        path, page = f"/v1/destinations/{one['destination_id']}/secrets", visitor.page
        [first] = (await house.ask("GET", path))["items"]
        await visitor.go(f"/destinations/{one['destination_id']}")
        await expect(page.get_by_label("Signing secret")).to_contain_text("whsec_••••")
        assert first["secret"] not in await page.content()

        await page.get_by_role("button", name="Rotate").click()
        await page.get_by_role("button", name="Rotate secret").click()
        fresh = await page.get_by_label("the new secret", exact=True).inner_text()
        newest, before = (await house.ask("GET", path))["items"]
        assert (newest["secret"], before["secret"]) == (fresh, first["secret"])
        await page.get_by_role("button", name="Done").click()
        await expect(page.get_by_text(fresh)).to_be_hidden()

    async def test_the_runs_that_wait_for_it_are_linked(self, visitor, house):
        one = await house.ask("POST", "/v1/destinations", {"url": "http://127.0.0.1:9"})
        path = f"/v1/destinations/{one['destination_id']}"
        await house.ask("POST", f"{path}/open", {"duration": "PT1H"})
        job = {"target": {"type": "webhook", "url": "http://127.0.0.1:9/in"}}
        run_id = (await house.ask("POST", "/v1/jobs", job))["job_id"]
        await house.until(run_id, "blocked")
        await visitor.go(f"/destinations/{one['destination_id']}")

        await visitor.page.get_by_label("Waiting runs").get_by_role("link", name=run_id[-8:]).click()
        await expect(visitor.page.locator(".head [data-state=blocked]")).to_be_visible()
        await house.ask("POST", f"/v1/runs/{run_id}/cancel")

    async def test_destination_screen_lists_recent_failures_with_their_runs(self, visitor, house):
        url = f"http://127.0.0.1:{unused_port()}/in"
        job = {"target": {"type": "webhook", "url": url}, "retry": {"max_attempts": 1}}
        run_id = (await house.ask("POST", "/v1/jobs", job))["job_id"]
        await house.until(run_id, "dead")
        listed = (await house.ask("GET", "/v1/destinations", page_size=200))["items"]
        [one] = [found for found in listed if found["origin"] == url.removesuffix("/in")]
        [told] = (await house.ask("GET", f"/v1/destinations/{one['destination_id']}/failures"))["items"]
        await visitor.go(f"/destinations/{one['destination_id']}")

        row = visitor.page.get_by_label("Recent failures").locator("tbody tr")
        await expect(row).to_have_count(1)
        await expect(row).to_contain_text(told["reason"])
        await expect(row).to_contain_text("no response")
        await row.get_by_role("link", name=run_id[-8:]).click()
        await expect(visitor.page.locator(".head [data-state=dead]")).to_be_visible()


class TestFiles:
    async def test_file_screen_shows_jobs_that_drifted_from_the_applied_file(self, visitor, house):
        source, made = await a_file(house, report={}, clean={}, gone={})
        await change(house, made["report"], priority=1)
        await house.ask("DELETE", f"/v1/jobs/{made['gone']}")
        page = visitor.page
        await visitor.go("/files")
        row = page.get_by_role("row", name=re.compile(source))
        await expect(row).to_contain_text("2 drifted")
        await row.get_by_role("link", name=source, exact=True).click()

        await expect(page.get_by_role("heading", name=source)).to_be_visible()
        report = page.get_by_role("row", name=re.compile(f"{source}-report"))
        await expect(report.locator(".before")).to_have_text("5")
        await expect(report.locator(".after")).to_have_text("1")
        await expect(page.get_by_role("row", name=re.compile(f"{source}-gone"))).to_contain_text("Deleted")
        await expect(page.locator("tbody tr")).to_have_count(3)
        await page.get_by_label("Only drifted jobs").check()
        await expect(page.locator("tbody tr")).to_have_count(2)
        assert "drifted=true" in page.url

    async def test_downloaded_file_applies_without_changes(self, visitor, house):
        source, _ = await a_file(house, report={"priority": 3})
        await visitor.go(f"/files/{source}")
        async with visitor.page.expect_download() as downloading:
            await visitor.page.get_by_role("link", name="Download").click()
        download = await downloading.value
        assert download.suggested_filename == f"{source}.json"
        document = json.loads((await download.path()).read_text())

        plan = await house.ask("POST", "/v1/jobs:apply", document, dry_run="true")
        assert (plan["source"], plan["steps"], plan["unchanged"]) == (source, [], 1)


class TestTenantsAndKeys:
    async def test_api_key_is_created_shown_a_single_time_used_and_revoked(self, visitor, browser, house):
        page, name = visitor.page, a_name("key")
        await visitor.go("/keys")
        await page.get_by_role("button", name="Create API key").click()
        await page.get_by_role("dialog").get_by_label("Name").fill(name)
        await page.get_by_role("checkbox", name=re.compile("jobs:trigger")).check()
        await page.get_by_label("Expires after, in days").fill("30")
        await page.get_by_role("dialog").get_by_role("button", name="Create API key").click()
        key = await page.get_by_label("the new API key", exact=True).inner_text()
        kept = await the_key(house, name)
        assert (kept["scopes"], kept["expires_at"] is None) == (["jobs:read", "jobs:trigger"], False)
        await page.get_by_role("button", name="Done").click()
        await expect(page.get_by_text(key)).to_be_hidden()

        other = await visiting(browser, house)
        await other.log_in(key)
        await other.page.context.close()
        await page.get_by_role("button", name=f"Revoke {name}").click()
        await expect(page.get_by_role("dialog")).to_contain_text("1 API key")
        await page.get_by_role("button", name="Revoke API key").click()
        await expect(page.get_by_role("row", name=re.compile(name)).locator("[data-state=revoked]")).to_be_visible()
        assert (await the_key(house, name))["revoked_at"] is not None

    async def test_sessions_are_listed_and_one_is_revoked(self, visitor, browser, house):
        page, name = visitor.page, a_name("lost laptop")
        made = await house.ask("POST", "/v1/keys", {"name": name, "scopes": ["jobs:read"]})
        other = await visiting(browser, house, user_agent="Lost/1.0 <script>alert(1)</script>")
        await other.log_in(made["key"])
        await visitor.go("/keys")
        await page.get_by_role("button", name="Show sessions").click()
        listed = page.get_by_label("Sessions", exact=True)
        await expect(listed.get_by_text("current session")).to_have_count(1)
        await expect(listed.get_by_role("row", name=re.compile(name))).to_contain_text("Lost/1.0 <script>")

        await listed.get_by_role("button", name=f"Revoke the session of {name} from 127.0.0.1").click()
        await expect(page.get_by_role("dialog")).to_contain_text("1 browser")
        await page.get_by_role("button", name="Revoke session").click()

        await expect(listed.get_by_role("row", name=re.compile(name))).to_have_count(0)
        await expect(other.page.get_by_label("API key")).to_be_visible()
        await other.page.context.close()

    async def test_tenant_is_created_limited_redacted_paused_and_suspended(self, visitor, house):
        page, name = visitor.page, a_name("tenant")
        await visitor.go("/keys")
        await page.get_by_role("button", name="Create tenant").click()
        await page.get_by_role("dialog").get_by_label("Name").fill(name)
        await page.get_by_role("dialog").get_by_role("button", name="Create tenant").click()
        await expect(page.get_by_role("heading", name=name)).to_be_visible()
        path = f"/v1/tenants/{page.url.rpartition('/')[2]}"

        await page.get_by_role("button", name="Edit").click()
        await page.get_by_label("Weight").fill("4")
        await page.get_by_label("Concurrent runs").fill("20")
        await page.get_by_label(re.compile("^Minimum period")).fill("PT1M")
        await page.get_by_role("button", name="Set quotas").click()
        await expect(page.get_by_label("Quotas", exact=True)).to_contain_text("20 runs")
        limits = (await house.ask("GET", path))["limits"]
        assert (limits["weight"], limits["running_max"], limits["least_period"]) == (4, 20, "PT1M")

        rules = page.get_by_label("Redaction", exact=True)
        await expect(rules).to_contain_text("No rules of its own")
        await page.get_by_role("button", name="Change rules").click()
        visitor.may_be_refused = True
        await page.get_by_label(re.compile("^Rules")).fill("card")
        await page.get_by_role("button", name="Set rules").click()
        await expect(page.get_by_text("does not start with $").first).to_be_visible()
        await page.get_by_label(re.compile("^Rules")).fill("$.card\n\n $..password ")
        await page.get_by_role("button", name="Set rules").click()
        await expect(rules.get_by_role("code")).to_have_text(["$.card", "$..password"])
        assert (await house.ask("GET", path))["redact"] == ["$.card", "$..password"]
        await page.get_by_role("button", name="Change rules").click()
        await expect(page.get_by_label(re.compile("^Rules"))).to_have_value("$.card\n$..password")
        await page.get_by_label(re.compile("^Rules")).fill("")
        await page.get_by_role("button", name="Set rules").click()
        await expect(rules).to_contain_text("No rules of its own")

        await page.get_by_role("button", name="Pause runs").click()
        await page.get_by_role("textbox", name="Reason").fill("it floods")
        await page.get_by_role("dialog").get_by_role("button", name="Pause runs").click()
        await expect(page.get_by_label("Paused", exact=True)).to_contain_text("it floods")
        await page.get_by_role("button", name="Resume runs").click()
        await expect(page.get_by_label("Paused", exact=True)).not_to_contain_text("it floods")

        await page.get_by_role("button", name="Suspend").click()
        await page.get_by_role("button", name="Suspend tenant").click()
        await expect(page.locator(".head [data-state=suspended]")).to_be_visible()
        assert (await house.ask("GET", path))["state"] == "suspended"
        await page.get_by_role("button", name="Reactivate").click()
        await expect(page.locator(".head [data-state=active]")).to_be_visible()
        assert (await house.ask("GET", path))["state"] == "active"

    async def test_limits_are_set_and_removed(self, visitor, house):
        page, queue = visitor.page, a_name("queue")
        await visitor.go("/keys")
        await page.get_by_role("button", name="Set limit").click()
        await page.get_by_role("dialog").get_by_label("Queue", exact=True).fill(queue)
        await page.get_by_label("Max concurrent runs").fill("12")
        await page.get_by_role("dialog").get_by_role("button", name="Set limit").click()
        await expect(page.get_by_label("Concurrency limits")).to_contain_text(queue)
        assert {"queue": queue, "slots": 12}.items() <= (await the_limit(house, queue)).items()

        await page.get_by_role("button", name=f"Remove the limit of queue {queue}").click()
        await page.get_by_role("button", name="Remove limit").click()
        await expect(page.get_by_label("Concurrency limits")).not_to_contain_text(queue)
        assert await the_limit(house, queue) is None

    async def test_concurrency_key_limits_are_overridden_and_restored(self, visitor, house):
        page, key = visitor.page, a_name("concurrency")
        await house.ask("PUT", f"/v1/concurrency-keys/{key}", {"limit": 3})
        await visitor.go("/keys")
        await page.get_by_role("button", name=f"Override limits of key {key}").click()
        await page.get_by_label("Max concurrent runs").fill("9")
        await page.get_by_role("button", name="Set limits").click()
        await expect(page.get_by_role("row", name=re.compile(key))).to_contain_text("9 slots")
        assert (await house.ask("GET", f"/v1/concurrency-keys/{key}"))["limits"]["limit"] == 9

        await page.get_by_role("button", name=f"Override limits of key {key}").click()
        await page.get_by_label("Max concurrent runs").fill("")
        await page.get_by_role("button", name="Set limits").click()
        await expect(page.get_by_role("row", name=re.compile(key))).to_be_hidden()

    async def test_an_admin_of_a_tenant_sees_its_own(self, stranger, house):
        name = a_name("other")
        made = await house.ask("POST", "/v1/tenants", {"name": name})
        body = {"name": "its admin", "scopes": ["admin"], "tenant": made["tenant"]}
        await stranger.log_in((await house.ask("POST", "/v1/keys", body))["key"])
        await stranger.go("/keys")
        page = stranger.page

        await expect(page.get_by_label("API keys", exact=True)).to_contain_text("its admin")
        await expect(page.get_by_label("Tenants", exact=True)).to_be_hidden()
        assert "System" not in await page.get_by_role("navigation", name="Screens").inner_text()
        await stranger.go("/system")
        await expect(page.locator("main")).to_contain_text("the operator")
        await stranger.go(f"/tenants/{made['tenant']}")
        await expect(page.locator("main")).to_contain_text("the operator")


async def the_key(house, name):
    return next(one for one in (await house.ask("GET", "/v1/keys", page_size=200))["items"] if one["name"] == name)


async def the_limit(house, queue):
    return next((one for one in (await house.ask("GET", "/v1/limits"))["items"] if one["queue"] == queue), None)


class TestSystem:
    async def test_system_screen_shows_shards_schedulers_database_and_settings(self, visitor, house):
        await visitor.go("/system")
        page = visitor.page

        await expect(page.get_by_label("Shards held")).to_contain_text("64 of 64")
        seen = await house.ask("GET", "/v1/system")
        await expect(page.get_by_label("Versions")).to_contain_text(seen["versions"]["postgresql"])
        await expect(page.get_by_label("Schedulers").locator("tbody tr")).to_have_count(len(seen["schedulers"]))
        await expect(page.get_by_label("Tables", exact=True)).to_contain_text("attempts")
        await expect(page.get_by_label("Settings")).to_contain_text("queue_age_limit")

    async def test_doctor_panel_shows_findings_with_remedies(self, visitor):
        found = {
            "code": "index_missing",
            "severity": "error",
            "message": "Index x is missing.",
            "remedy": "Make it again.",
        }

        async def ill(route):
            answer = await route.fetch()
            await route.fulfill(response=answer, json={**await answer.json(), "findings": [found], "is_well": False})

        await visitor.page.route("**/v1/system", ill)
        await visitor.go("/system")
        doctor = visitor.page.get_by_label("Doctor")
        await expect(doctor.locator("[data-state=error]")).to_be_visible()
        await expect(doctor).to_contain_text(re.compile("Index x is missing.*Make it again"))
        await visitor.page.unroute_all(behavior="ignoreErrors")

    async def test_an_installation_that_does_well_has_no_finding(self, visitor, house):
        async def is_well():
            return (await house.ask("GET", "/v1/system"))["is_well"]

        await eventually(is_well)
        await visitor.go("/system")
        await expect(visitor.page.get_by_label("Doctor").locator("[data-state=error]")).to_have_count(0)


class TestAudit:
    async def test_audit_screen_lists_changes_and_filters_by_action(self, visitor, house):
        name = a_name("audited")
        job_id = await house.schedule(name)
        await house.ask("POST", f"/v1/jobs/{job_id}/pause", {"reason": "for the audit"})
        page = visitor.page
        await visitor.go(f"/audit?subject={job_id}")
        rows = page.locator("tbody tr")
        await expect(rows).to_have_count(2)
        await expect(rows.first).to_contain_text(re.compile("job.paused.*for the audit"))
        told = (await house.ask("GET", "/v1/audit", subject=job_id))["items"]
        assert [one["action"] for one in told] == ["job.paused", "job.created"]

        await page.get_by_role("button", name="job.created").click()
        await expect(rows).to_have_count(1)
        assert "action=job.created" in page.url
        await page.get_by_role("link", name=name).click()
        await expect(page.get_by_role("heading", name=name)).to_be_visible()

    async def test_dashboard_action_appears_in_the_audit_under_the_logged_in_key(self, visitor, house):
        job_id = await house.schedule(a_name("clicked"))
        await visitor.go(f"/jobs/{job_id}")
        await visitor.page.get_by_role("button", name="Skip next").click()
        await visitor.go(f"/audit?subject={job_id}")

        row = visitor.page.get_by_role("row", name=re.compile("job.skipped_next"))
        await expect(row).to_contain_text("dashboard")

    async def test_an_action_that_is_none_is_refused_in_words(self, visitor):
        visitor.may_be_refused = True
        await visitor.go("/audit?action=job.pausd")

        await expect(visitor.page.get_by_role("alert")).to_contain_text("job.paused")


async def test_a_key_that_may_only_read_sees_no_buttons_and_no_admin_screens(stranger, house, places):
    await stranger.log_in(await a_reader(house))
    titles = await stranger.page.get_by_role("navigation", name="Screens").inner_text()
    assert "Destinations" in titles
    assert "keys" not in titles
    assert "System" not in titles
    verbs = re.compile("Create|Edit|circuit|Rotate|Reveal|Revoke|Limit|Override|Remove|Suspend|Pause")
    for path in places:
        await stranger.go(path)
        if path in ("/keys", "/tenants/1", "/audit", "/system"):
            await expect(stranger.page.locator("main")).to_contain_text("requires")
        else:
            await expect(stranger.page.locator("main :is(.card, .table)").first).to_be_visible()
        assert await stranger.page.locator("main").get_by_role("button", name=verbs).count() == 0, path
        assert await stranger.page.get_by_label("Signing secret").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_axe_finds_nothing_serious(browser, house, places, scheme):
    visitor = await visiting(browser, house, color_scheme=scheme)
    await visitor.log_in()
    found = {}
    for path in places:
        await visitor.go(path)
        await settled(visitor)
        found[path] = await serious(visitor)
    await visitor.go("/keys")
    await visitor.page.get_by_role("button", name="Create API key").click()
    found["new key"] = await serious(visitor)
    await visitor.page.context.close()

    assert {fault: path for path, faults in found.items() for fault in faults} == {}
    assert visitor.complaints == []


async def test_on_a_phone_nothing_hangs_over_the_edge(browser, house, places):
    visitor = await visiting(browser, house, viewport={"width": 360, "height": 740})
    await visitor.log_in()
    wide = {}
    for path in places:
        await visitor.go(path)
        await settled(visitor)
        wide[path] = await visitor.page.evaluate("document.documentElement.scrollWidth - innerWidth")
    await visitor.page.context.close()

    assert {path: by for path, by in wide.items() if by > 0} == {}


async def test_keys_lead_to_each(visitor):
    page = visitor.page
    await visitor.go("/overview")
    for key, heading in HEADINGS.items():
        await page.keyboard.press("g")
        await page.keyboard.press(key)
        await expect(page.get_by_role("heading", name=heading, exact=True, level=1)).to_be_visible()
