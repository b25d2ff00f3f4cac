"""Each screen and each action, by clicks in a real browser; what came of it is read through the API."""

import asyncio
import re
from datetime import UTC, datetime, timedelta
from functools import partial
from uuid import uuid4

import pytest
from playwright.async_api import expect

from tests.dashboard.conftest import eventually


def a_name(word: str) -> str:
    return f"{word}-{uuid4().hex[:8]}"


def a_word(word: str) -> str:
    """Give a word of letters alone: numbers are what differs between errors that are alike."""
    return word + "".join(chr(ord("a") + int(digit, 16)) for digit in uuid4().hex[:10])


async def a_dead_run(house, why="broken"):
    run_id = await house.submit("fails", why=why)
    await house.until(run_id, "dead")
    return run_id


class TestLogIn:
    async def test_login_refuses_an_invalid_key_with_a_message(self, stranger):
        page = stranger.page
        await page.goto(stranger.house.url + "/ui/jobs?state=paused")
        await page.get_by_label("API key").fill("duly_nonsense")
        await page.get_by_role("button", name="Log in").click()

        await expect(page.get_by_role("alert")).to_contain_text("no valid key", ignore_case=True)

    async def test_login_leads_to_the_requested_url(self, stranger):
        page, house = stranger.page, stranger.house
        await page.goto(house.url + "/ui/jobs?state=paused")
        await page.get_by_label("API key").fill(house.key)
        await page.get_by_role("button", name="Log in").click()

        await expect(page.get_by_role("heading", name="Jobs")).to_be_visible()
        await expect(page.get_by_label("State")).to_have_value("paused")

    async def test_logout_ends_the_session(self, stranger):
        await stranger.log_in()
        await stranger.page.get_by_role("button", name="Log out").click()

        await expect(stranger.page.get_by_label("API key")).to_be_visible()
        await stranger.page.reload()
        await expect(stranger.page.get_by_label("API key")).to_be_visible()

    async def test_a_key_that_may_only_read_sees_no_buttons(self, stranger, house):
        key = await house.ask("POST", "/v1/keys", {"name": "reader", "scopes": ["jobs:read"]})
        job_id, run_id = await house.schedule(a_name("read")), await a_dead_run(house)
        await stranger.log_in(key["key"])

        for path in ("/jobs", f"/jobs/{job_id}", f"/runs/{run_id}", "/dead", "/queues"):
            await stranger.go(path)
            await expect(stranger.page.locator("main table, main .card").first).to_be_visible()
            words = await stranger.page.locator("main button, main a.button").all_inner_texts()
            verbs = {"Create job", "Run now", "Pause", "Delete", "Edit", "Replay", "Discard", "Replay all", "Cancel"}
            assert not verbs & {word.strip() for word in words}, path


class TestOverview:
    async def test_overview_shows_metrics_and_items_that_need_attention(self, visitor, house):
        await house.until(await house.submit("greet"), "succeeded")
        await a_dead_run(house)
        await visitor.go("/overview")

        await expect(visitor.page.get_by_label("Needs attention").locator("[data-code^=dead]")).to_be_visible()
        await expect(visitor.page.get_by_label("Oldest age")).to_be_visible()
        await expect(visitor.page.get_by_role("img", name=re.compile("Completed runs"))).to_be_visible()
        attention = visitor.page.get_by_label("Needs attention").locator("[data-code^=dead]")
        await attention.get_by_role("link", name="View").click()
        await expect(visitor.page.get_by_role("heading", name="Dead letters")).to_be_visible()

    async def test_chart_draws_a_single_data_point(self, visitor, house):
        """All that was run here ended within an hour or two, which is one point of a week, or two beside each other."""
        await house.until(await house.submit("greet"), "succeeded")
        await visitor.go("/overview")
        await visitor.page.get_by_role("button", name="7d").click()
        chart = visitor.page.get_by_role("img", name=re.compile("Success rate")).locator("canvas")

        async def is_green():
            return await chart.evaluate("""canvas => {
                const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height)
                return data.some((green, i) => i % 4 === 1 && green - data[i - 1] > 40 && data[i + 2] > 200)
            }""")

        await eventually(is_green)

    async def test_a_time_in_which_nothing_was_measured_is_not_drawn_as_zero(self, visitor, house):
        """A count of none is a measurement; a success rate of none is not."""
        await house.until(await house.submit("greet"), "succeeded")
        await visitor.go("/overview")
        await visitor.page.get_by_role("button", name="24h").click()

        await expect(visitor.page.get_by_role("img", name=re.compile("Success rate.* of 9[67] steps"))).to_be_visible()
        await expect(visitor.page.get_by_role("img", name=re.compile("^Completed runs"))).to_have_attribute(
            "data-gaps", "0"
        )

    async def test_attention_list_collapses_items_of_the_same_kind(self, visitor):
        unserved = [
            {"code": "no_worker", "severity": "bad", "text": f"Nobody serves queue q{number}.", "id": f"q{number}"}
            for number in range(20)
        ]
        other = {"code": "queue_paused", "severity": "warning", "text": "Queue mail is paused.", "id": "mail"}

        async def ill(route):
            answer = await route.fetch()
            told = [{"count": None, **one} for one in (*unserved, other)]
            await route.fulfill(response=answer, json={**await answer.json(), "attention": told})

        await visitor.page.route("**/v1/overview", ill)
        await visitor.go("/overview")
        attention = visitor.page.get_by_label("Needs attention")
        await expect(attention.locator(".attention")).to_have_count(4)
        await expect(attention).to_contain_text("Queue mail is paused.")
        await attention.get_by_role("button", name="Show 17 more").click()
        await expect(attention.locator(".attention")).to_have_count(21)
        await visitor.page.unroute_all(behavior="ignoreErrors")

    async def test_a_failure_is_counted_without_a_reload(self, visitor, house):
        await visitor.go("/overview")
        number = visitor.page.get_by_label("Failed attempts").locator(".value")
        await expect(number).to_be_visible()
        before = int(await number.inner_text())
        await a_dead_run(house)

        await expect(number).not_to_have_text(str(before), timeout=30_000)


class TestJobs:
    async def test_job_is_created_with_a_preview_of_its_fires(self, visitor, house):
        page, name = visitor.page, a_name("made")
        await visitor.go("/jobs")
        await page.get_by_role("link", name="Create job").click()
        await page.get_by_role("textbox", name=re.compile("^Name")).fill(name)
        await page.get_by_label("Handler").fill("greet")
        await page.get_by_label("Schedule text").fill("every day at 4:15am")
        await expect(page.get_by_role("region", name="Schedule").get_by_text("04:15").first).to_be_visible()
        await page.get_by_role("button", name="Create job").click()
        await expect(page.get_by_role("heading", name=name)).to_be_visible()

        job = await house.ask("GET", f"/v1/jobs/by-name/{name}")
        assert job["schedule"]["trigger"]["text"] == "every day at 4:15am"
        assert job["target"]["handler"] == "greet"

    async def test_a_schedule_that_cannot_be_kept_is_refused_while_it_is_typed(self, visitor):
        await visitor.go("/jobs/new")
        await visitor.page.get_by_role("button", name="Cron").click()
        await visitor.page.get_by_label("Cron expression").fill("61 * * * *")

        await expect(visitor.page.get_by_role("region", name="Schedule").locator(".bad")).to_contain_text("61")

    async def test_job_is_found_by_name_prefix_and_the_url_stores_the_search(self, visitor, house):
        name = a_name("needle")
        await house.schedule(name)
        await house.schedule(a_name("hay"))
        await visitor.go("/jobs")
        await visitor.page.get_by_label("Name begins with").fill(name[:10])

        await expect(visitor.page.locator("tbody tr")).to_have_count(1)
        assert f"name={name[:10]}" in visitor.page.url
        await visitor.page.reload()
        await expect(visitor.page.locator("tbody tr")).to_have_count(1)

    async def test_job_is_run_paused_and_resumed_from_the_list(self, visitor, house):
        page, name = visitor.page, a_name("listed")
        job_id = await house.schedule(name)
        await visitor.go(f"/jobs?name={name}")

        await page.get_by_role("button", name=f"Run now: {name}").click()
        await eventually(lambda: has_runs(house, job_id, "succeeded"))
        await page.get_by_role("button", name=f"Pause {name}").click()
        await expect(page.locator("tbody [data-state=paused]")).to_be_visible()
        assert (await house.ask("GET", f"/v1/jobs/{job_id}"))["status"] == "paused"
        await page.get_by_role("button", name=f"Resume {name}").click()
        await expect(page.locator("tbody [data-state=active]")).to_be_visible()

    async def test_the_table_fits_a_small_laptop_with_its_actions(self, visitor, house):
        tag, page = a_name("wide"), visitor.page
        name, queue = a_name("a-job-with-quite-a-long-name-for-a-table"), a_name("a-queue-with-a-long-name")
        trigger = {
            "trigger": {"type": "cron", "expr": "0,15,30,45 8-18 * * MON-FRI", "tz": "America/Argentina/Buenos_Aires"}
        }
        job_id = await house.schedule(
            name, "a_handler_with_a_long_name", queue=queue, schedule=trigger, tags=[tag, "another-tag"]
        )
        await house.ask("POST", f"/v1/jobs/{job_id}/pause", {"reason": "the provider is down until further notice"})
        await house.schedule(f"{name}-2", queue=queue, schedule=trigger, tags=[tag])
        await visitor.go(f"/jobs?tag={tag}")
        await expect(page.locator("tbody tr")).to_have_count(2)

        assert await page.locator(".table").evaluate("one => one.scrollWidth - one.clientWidth") <= 0
        for button in await page.locator("tbody .acts button").all():
            await expect(button).to_be_in_viewport(ratio=1)

    async def test_pages_go_on_by_key_and_back(self, visitor, house):
        tag = a_name("many")
        for number in range(51):
            await house.schedule(f"{tag}-{number}", tags=[tag])
        await visitor.go(f"/jobs?tag={tag}")
        rows = visitor.page.locator("tbody tr")
        await expect(rows).to_have_count(50)

        await visitor.page.get_by_role("button", name="Next page").click()
        await expect(rows).to_have_count(1)
        await visitor.page.get_by_role("button", name="Previous page").click()
        await expect(rows).to_have_count(50)

    async def test_invalid_filter_shows_an_alert(self, visitor):
        visitor.may_be_refused = True
        await visitor.go("/jobs?filter=nonsense:1")

        await expect(visitor.page.get_by_role("alert")).to_contain_text("nonsense")


async def has_runs(house, job_id, state):
    page = await house.ask("GET", "/v1/runs", filter=f"job_id:{job_id} AND state:{state}")
    return bool(page["items"])


class TestJob:
    async def test_job_screen_shows_fires_runs_calendar_and_definition(self, visitor, house):
        job_id = await house.schedule(a_name("shown"), payload={"name": "Ada"})
        await house.ask("POST", f"/v1/jobs/{job_id}/trigger", {})
        await eventually(lambda: has_runs(house, job_id, "succeeded"))
        await visitor.go(f"/jobs/{job_id}")
        page = visitor.page

        await expect(page.get_by_label("Next fires", exact=True).locator("li")).to_have_count(3)
        await expect(page.get_by_role("img", name=re.compile("Calendar of fires"))).to_be_visible()
        await expect(page.get_by_label("Runs", exact=True).locator("[data-state=succeeded]")).to_be_visible()
        await page.get_by_text("Full definition").click()
        await expect(page.get_by_label("definition", exact=True)).to_contain_text("Ada")

    async def test_job_screen_pauses_with_a_reason_skips_and_deletes(self, visitor, house):
        page, job_id = visitor.page, await house.schedule(a_name("handled"))
        await visitor.go(f"/jobs/{job_id}")
        before = (await house.ask("GET", f"/v1/jobs/{job_id}"))["next_run_at"]
        await page.get_by_role("button", name="Skip next").click()
        await eventually(lambda: fires_later(house, job_id, before))

        await page.get_by_role("button", name="Pause").click()
        await page.get_by_role("textbox", name="Reason").fill("for the audit")
        await page.get_by_role("button", name="Pause job").click()
        await expect(page.locator(".head [data-state=paused]")).to_be_visible()
        assert (await house.ask("GET", f"/v1/jobs/{job_id}"))["pause_reason"] == "for the audit"

        await page.get_by_role("button", name="Delete").click()
        await expect(page.get_by_role("dialog")).to_contain_text("1 job")
        await page.get_by_role("button", name="Delete job").click()
        await expect(page.get_by_role("heading", name="Jobs")).to_be_visible()
        assert (await house.ask("GET", f"/v1/jobs/{job_id}"))["status"] == "cancelled"

    async def test_job_edit_shows_a_diff_and_preserves_the_previous_version(self, visitor, house):
        page, job_id = visitor.page, await house.schedule(a_name("edited"), payload={"name": "Ada"})
        await visitor.go(f"/jobs/{job_id}")
        await page.get_by_role("link", name="Edit").click()
        await page.get_by_label("Payload").fill('{"name": "Grace"}')
        changes = page.get_by_label("Changes").first
        await expect(changes.locator(".gone")).to_contain_text("Ada")
        await expect(changes.locator(".new")).to_contain_text("Grace")
        await page.get_by_role("button", name="Save changes").click()

        await expect(page.get_by_label("Versions")).to_contain_text("Version 2")
        job = await house.ask("GET", f"/v1/jobs/{job_id}")
        assert (job["payload"], job["version"]) == ({"name": "Grace"}, 2)
        await page.get_by_role("button", name="Show changes").click()
        await expect(page.get_by_label("Changes").locator(".gone")).to_contain_text("Ada")

    async def test_job_screen_shows_limits_and_keeps_them_through_other_edits(self, visitor, house):
        customer, provider = a_name("customer"), a_name("provider")
        rules = {
            "concurrency": {"key": customer, "limit": 2},
            "rate_limit": {"key": provider, "limit": 10, "per": "PT1S"},
            "expires_after": "PT10M",
        }
        page, job_id = visitor.page, await house.schedule(a_name("ruled"), **rules)
        before = await house.ask("GET", f"/v1/jobs/{job_id}")
        await visitor.go(f"/jobs/{job_id}")
        definition = page.get_by_label("Definition", exact=True)
        await expect(definition).to_contain_text("10 min")
        await expect(definition).to_contain_text(customer)
        await expect(definition).to_contain_text(provider)
        await page.get_by_text("Full definition").click()
        await expect(page.get_by_label("definition", exact=True)).to_contain_text("rate_limit")

        await page.get_by_role("link", name="Edit").click()
        await page.get_by_label("Priority").fill("2")
        await expect(page.get_by_label("Changes").first.locator(".gone")).to_have_count(1)
        await page.get_by_role("button", name="Save changes").click()
        await expect(page.get_by_label("Versions")).to_contain_text("Version 2")
        after = await house.ask("GET", f"/v1/jobs/{job_id}")
        assert after["priority"] == 2
        assert {name: after[name] for name in rules} == {name: before[name] for name in rules}

    async def test_a_second_click_while_it_works_runs_nothing_twice(self, visitor, house):
        page, job_id = visitor.page, await house.schedule(a_name("clicked"))
        held = asyncio.Event()

        async def slow(route):
            await held.wait()
            await route.continue_()

        await page.route("**/trigger", slow)
        await visitor.go(f"/jobs/{job_id}")
        await page.get_by_role("button", name="Run now").click()
        button = page.get_by_role("button", name="Run now")
        await expect(button).to_have_attribute("aria-busy", "true")
        await expect(button).to_be_focused()
        await button.click(force=True)
        held.set()
        await expect(button).to_have_attribute("aria-busy", "false")
        await eventually(lambda: has_runs(house, job_id, "succeeded"))
        assert len((await house.ask("GET", "/v1/runs", filter=f"job_id:{job_id}"))["items"]) == 1

    async def test_its_explanation_leads_to_its_last_run_and_tells_local_time(self, visitor, house):
        page, job_id = visitor.page, await house.schedule(a_name("explained"))
        run_id = (await house.ask("POST", f"/v1/jobs/{job_id}/trigger", {}))["run_id"]
        await house.until(run_id, "succeeded")
        await visitor.go(f"/jobs/{job_id}")
        reasons = page.get_by_label("Status explained")
        due = (await house.ask("GET", f"/v1/jobs/{job_id}"))["next_run_at"]
        await expect(reasons.locator("time").first).to_have_attribute("datetime", due)

        await reasons.get_by_role("link", name=run_id[-8:]).click()
        await expect(page.locator(".head [data-state=succeeded]")).to_be_visible()


class TestRuns:
    async def test_they_are_narrowed_by_state(self, visitor, house):
        run_id = await a_dead_run(house)
        await visitor.go("/runs?state=dead")

        await expect(visitor.page.locator(f"a[href$='{run_id}']")).to_be_visible()
        shown = await visitor.page.locator("tbody [data-state]").all()
        assert {await one.get_attribute("data-state") for one in shown} == {"dead"}

    async def test_run_list_shows_a_started_run_without_a_reload(self, visitor, house):
        await visitor.go("/runs?state=running")
        await expect(
            visitor.page.get_by_text("No matching runs").or_(visitor.page.locator("tbody tr").first)
        ).to_be_visible()
        run_id = await house.submit("takes_long")
        try:
            await expect(visitor.page.locator(f"a[href$='{run_id}']")).to_be_visible()
        finally:
            await house.ask("POST", f"/v1/runs/{run_id}/cancel")

    async def test_each_shows_its_payload_in_one_line_and_in_full_on_hover(self, visitor, house):
        short, long = a_word("short"), a_word("long") + "x" * 300
        await house.until(await house.submit("greet", name=short), "succeeded")
        waiting = {
            "target": {"type": "function", "handler": "greet"},
            "queue": a_name("nobody"),
            "payload": {"name": long},
        }
        run_id = (await house.ask("POST", "/v1/jobs", waiting))["job_id"]
        await visitor.go("/runs?handler=greet")
        row = visitor.page.get_by_role("row", name=re.compile(run_id[-8:]))

        await expect(visitor.page.get_by_title(f'{{"name": "{short}"}}', exact=True)).to_be_visible()
        cut = row.locator(".payload code")
        assert (await cut.get_attribute("title") or "").endswith("…")
        assert await cut.evaluate("one => one.getClientRects().length") == 1
        await house.ask("POST", f"/v1/runs/{run_id}/cancel")

    async def test_times_ago_follow_one_rule(self, visitor, house):
        """Whole units, rounded down: seconds below 90, then minutes below 90, hours below 36, then days."""
        rule = {0: "now", 65: "65 s ago", 89: "89 s ago", 90: "1 min ago", 5399: "89 min ago", 5400: "1 h ago"}
        rule |= {129_599: "35 h ago", 129_600: "1 day ago", 172_800: "2 days ago", -30: "in 30 s", -7200: "in 2 h"}
        await house.until(await house.submit("greet"), "succeeded")
        now = datetime.now(UTC).replace(microsecond=0)

        async def at_such_times(route):
            answer = await route.fetch()
            [one, *_] = (told := await answer.json())["items"]
            ids = [f"00000000-0000-4000-8000-{number:012}" for number in range(len(rule))]
            due = [(now - timedelta(seconds=seconds)).isoformat() for seconds in rule]
            told["items"] = [{**one, "run_id": id_, "due_at": at} for id_, at in zip(ids, due, strict=True)]
            await route.fulfill(response=answer, json=told)

        await visitor.page.clock.set_fixed_time(now)
        await visitor.page.route("**/v1/runs?*", at_such_times)
        await visitor.go("/runs")
        await expect(visitor.page.locator("tbody time")).to_have_text(list(rule.values()))
        await visitor.page.unroute_all(behavior="ignoreErrors")


class TestRun:
    async def test_run_screen_shows_history_log_and_result(self, visitor, house):
        run_id = await house.submit("greet", name="Ada")
        await house.until(run_id, "succeeded")
        await visitor.go(f"/runs/{run_id}")
        page = visitor.page

        await expect(page.locator(".head").first).to_contain_text("Succeeded")
        await expect(page.get_by_role("log")).to_contain_text("greeting Ada")
        await expect(page.get_by_label("result", exact=True)).to_contain_text('"hello": "Ada"')
        await expect(page.get_by_label("Status explained").locator("li").first).to_be_visible()

    async def test_its_log_grows_on_screen_and_it_is_cancelled(self, visitor, house):
        run_id = await house.submit("takes_long")
        await house.until(run_id, "running")
        await visitor.go(f"/runs/{run_id}")
        page = visitor.page
        await expect(page.get_by_role("log")).to_contain_text("number=3")
        lease = (await house.ask("GET", f"/v1/runs/{run_id}"))["lease"]
        await expect(page.get_by_label("Details")).to_contain_text(
            f"{lease['worker_id'][-8:]}, fence {lease['fence']}, since"
        )
        await expect(page.get_by_label("Attempts").locator("[data-state=running]")).to_be_visible()
        await expect(page.get_by_role("img", name="Running")).to_be_visible()

        await page.get_by_role("button", name="Cancel").click()
        await expect(page.get_by_role("dialog")).to_contain_text("1 run, running")
        await page.get_by_role("button", name="Cancel run").click()
        await expect(page.locator(".head [data-state=cancelled]")).to_be_visible()
        assert await house.state(run_id) == "cancelled"

    async def test_a_dead_one_is_replayed(self, visitor, house):
        run_id = await a_dead_run(house, "try me again")
        await visitor.go(f"/runs/{run_id}")
        page = visitor.page
        await expect(page.get_by_label("Attempts")).to_contain_text("RuntimeError: try me again")

        await page.keyboard.press("r")
        await page.get_by_role("button", name="Replay run").click()
        await eventually(lambda: has_attempts(house, run_id, 2))

    async def test_an_ended_one_is_run_again_with_another_payload(self, visitor, house):
        run_id = await a_dead_run(house, "not like this")
        await visitor.go(f"/runs/{run_id}")
        page = visitor.page

        await page.get_by_role("button", name="Rerun").click()
        await page.get_by_role("dialog").get_by_label("Payload").fill('{"why": "another way"}')
        await page.get_by_role("dialog").get_by_role("button", name="Rerun").click()
        await expect(page.get_by_label("Details")).to_contain_text("Rerun of")
        await expect(page.get_by_label("Details").get_by_role("link", name=run_id)).to_be_visible()
        await expect(page.get_by_role("region", name="Payload")).to_contain_text("another way")

    async def test_a_dead_one_is_discarded(self, visitor, house):
        run_id = await a_dead_run(house)
        await visitor.go(f"/runs/{run_id}")
        await visitor.page.get_by_role("button", name="Discard").click()
        await visitor.page.get_by_role("button", name="Discard run").click()

        await expect(visitor.page.locator(".head [data-state=cancelled]")).to_be_visible()
        assert await house.state(run_id) != "dead"

    async def test_run_screen_reports_an_unknown_run(self, visitor):
        visitor.may_be_refused = True
        await visitor.page.goto(f"{visitor.house.url}/ui/runs/00000000-0000-4000-8000-000000000000")

        await expect(visitor.page.get_by_role("alert").first).to_contain_text("no run")


async def has_attempts(house, run_id, number):
    return len((await house.ask("GET", f"/v1/runs/{run_id}"))["attempts"]) >= number


async def fires_later(house, job_id, than):
    return (await house.ask("GET", f"/v1/jobs/{job_id}"))["next_run_at"] > than


class TestDead:
    async def test_errors_that_are_alike_are_one_group_and_are_replayed_together(self, visitor, house):
        word = a_word("alike")
        runs = [await a_dead_run(house, f"{word}: customer {number} has no address") for number in range(3)]
        await visitor.go("/dead")
        group = visitor.page.locator(".group", has_text=word)
        await expect(group).to_have_count(1)
        await expect(group.locator("[data-state=dead]").first).to_have_text("3 runs")

        await group.get_by_role("button", name="Replay group").click()
        await expect(visitor.page.get_by_role("dialog")).to_contain_text("3 dead runs")
        await visitor.page.get_by_role("button", name="Replay 3", exact=True).click()
        for run_id in runs:
            await eventually(partial(has_attempts, house, run_id, 2))

    async def test_a_payload_is_edited_and_the_replay_gets_it(self, visitor, house):
        word = a_name("edit")
        run_id = await a_dead_run(house, word)
        await visitor.go(f"/dead?filter=reason:%22RuntimeError: {word}%22")
        page = visitor.page
        await page.get_by_role("button", name="Edit payload").click()
        await page.get_by_role("dialog").get_by_label("Payload").fill("{nonsense")
        await page.get_by_role("button", name="Save payload").click()
        await expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("Invalid JSON")
        await page.get_by_role("dialog").get_by_label("Payload").fill('{"why": "another reason"}')
        await page.get_by_role("button", name="Save payload").click()
        await page.get_by_role("button", name=f"Replay run {run_id[-8:]}").click()

        await eventually(lambda: has_attempts(house, run_id, 2))
        await house.until(run_id, "dead")
        assert "another reason" in (await house.ask("GET", f"/v1/runs/{run_id}"))["reason"]

    async def test_dead_run_is_discarded_only_on_confirmation(self, visitor, house):
        word = a_name("one")
        run_id = await a_dead_run(house, word)
        await visitor.go(f"/dead?filter=reason:%22RuntimeError: {word}%22")
        page = visitor.page
        await page.get_by_role("button", name=f"Discard run {run_id[-8:]}").click()
        await expect(page.get_by_role("dialog")).to_contain_text("1 dead run of fails")
        assert await house.state(run_id) == "dead"
        await page.get_by_role("dialog").get_by_role("button", name="Discard run").click()

        await expect(page.get_by_text("No matching dead letters")).to_be_visible()
        assert await house.state(run_id) == "cancelled"

    async def test_matching_dead_runs_are_discarded_after_a_confirmation_with_their_count(self, visitor, house):
        word = a_name("discard")
        runs = [await a_dead_run(house, word) for _ in range(2)]
        await visitor.go(f"/dead?filter=reason:%22RuntimeError: {word}%22")
        await visitor.page.get_by_role("button", name="Discard all matching").click()
        await expect(visitor.page.get_by_role("dialog")).to_contain_text("2 dead runs")
        await visitor.page.get_by_role("button", name="Discard 2", exact=True).click()

        await expect(visitor.page.get_by_text("No matching dead letters")).to_be_visible()
        assert {await house.state(run_id) for run_id in runs} == {"cancelled"}


class TestQueues:
    async def test_queue_screen_pauses_a_queue_with_a_reason_and_resumes_it(self, visitor, house):
        await visitor.go("/queues")
        page = visitor.page
        await page.get_by_role("button", name="Pause queue default").click()
        await page.get_by_role("textbox", name="Reason").fill("flooded")
        await page.get_by_role("dialog").get_by_role("button", name="Pause queue").click()
        await expect(page.get_by_label("Paused", exact=True)).to_contain_text("flooded")
        assert [hold["queue"] for hold in (await house.ask("GET", "/v1/pauses"))["items"]] == ["default"]

        await page.get_by_role("button", name="Resume queue default", exact=True).click()
        await expect(page.get_by_label("Paused", exact=True)).to_be_hidden()
        assert (await house.ask("GET", "/v1/pauses"))["items"] == []

    async def test_queue_screen_pauses_and_resumes_everything(self, visitor, house):
        await visitor.go("/queues")
        page = visitor.page
        await page.get_by_role("button", name="Pause everything").click()
        await expect(page.get_by_role("dialog")).to_contain_text("No new run starts")
        await page.get_by_role("dialog").get_by_role("button", name="Pause everything").click()
        await expect(page.get_by_label("Paused", exact=True)).to_contain_text("Everything")

        await page.get_by_label("Paused", exact=True).get_by_role("button", name="Resume").click()
        await expect(page.get_by_label("Paused", exact=True)).to_be_hidden()
        assert (await house.ask("GET", "/v1/pauses"))["items"] == []

    async def test_pauses_of_another_tenant_are_listed_and_resumed_separately(self, visitor, house):
        tenant = (await house.ask("POST", "/v1/tenants", {"name": a_name("held")}))["tenant"]
        queue = a_name("theirs")
        for scope in ({"tenant": tenant}, {"tenant": tenant, "queue": queue}, {"queue": queue}):
            await house.ask("POST", "/v1/pause", {**scope, "reason": "it floods"})
        await visitor.go("/queues")
        held = visitor.page.get_by_label("Paused", exact=True)
        await expect(held).to_contain_text(f"Everything of tenant {tenant}")
        await expect(held).to_contain_text(f"Queue {queue}, for all tenants")

        await held.get_by_role("button", name=f"queue {queue} of tenant {tenant}").click()
        await eventually(lambda: holds_are(house, {(tenant, None), (None, queue)}))
        await held.get_by_role("button", name=f"queue {queue} for all tenants").click()
        await eventually(lambda: holds_are(house, {(tenant, None)}))
        await held.get_by_role("button", name=f"everything of tenant {tenant}").click()
        await eventually(lambda: holds_are(house, set()))

    async def test_queue_screen_lists_workers_with_their_handlers(self, visitor):
        await visitor.go("/queues")

        await expect(visitor.page.get_by_label("Workers").locator("tbody")).to_contain_text("greet")


async def holds_are(house, wanted):
    return {(one["tenant"], one["queue"]) for one in (await house.ask("GET", "/v1/pauses"))["items"]} == wanted


@pytest.mark.parametrize("path", ["/nothing", "/jobs/a/b/c"])
async def test_unknown_path_shows_page_not_found(visitor, path):
    await visitor.go(path)

    await expect(visitor.page.get_by_role("heading", name="Page not found")).to_be_visible()
