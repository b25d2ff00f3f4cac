"""Lists in their order, rows that are selected, and what is done to many at once; queues, workers and dead letters."""

import re
from functools import partial

from playwright.async_api import expect

from tests.dashboard.conftest import eventually, visiting
from tests.dashboard.test_screens import a_dead_run, a_name, a_word, has_attempts


async def status_of(house, job_id):
    return (await house.ask("GET", f"/v1/jobs/{job_id}"))["status"]


async def all_are(house, job_ids, status):
    return {await status_of(house, job_id) for job_id in job_ids} == {status}


class TestJobs:
    async def test_job_list_sorts_by_name_and_the_url_stores_the_order(self, visitor, house):
        word, page = a_name("sorted"), visitor.page
        for letter in "bca":
            await house.schedule(f"{word}-{letter}")
        await visitor.go(f"/jobs?name={word}")
        names = page.locator("tbody a[data-row]")
        await expect(names).to_have_text(
            [f"{word}-a", f"{word}-b", f"{word}-c"]
        )  # as who looks for a name would have it
        await expect(page.get_by_role("columnheader", name="Sort by name")).to_have_attribute("aria-sort", "ascending")

        await page.get_by_role("button", name="Sort by created").click()
        await expect(names).to_have_text([f"{word}-a", f"{word}-c", f"{word}-b"])  # the newest first
        await page.reload()
        await expect(names).to_have_text([f"{word}-a", f"{word}-c", f"{word}-b"])
        await page.get_by_role("button", name="Sort by name").click()
        await expect(names).to_have_text([f"{word}-a", f"{word}-b", f"{word}-c"])

    async def test_rows_are_selected_by_key_and_changed_together(self, visitor, house):
        word, page = a_name("picked"), visitor.page
        job_ids = [await house.schedule(f"{word}-{number}") for number in range(3)]
        await visitor.go(f"/jobs?name={word}")
        await expect(page.locator("tbody tr")).to_have_count(3)
        await page.locator("h1").click()
        await page.keyboard.press("j")
        await page.keyboard.press("x")
        await page.keyboard.press("j")
        await page.keyboard.press("x")
        bar = page.get_by_role("toolbar")
        await expect(bar).to_contain_text("2 jobs selected")

        await bar.get_by_role("button", name="Pause").click()
        await expect(page.get_by_role("dialog")).to_contain_text("2 jobs")
        await page.get_by_role("button", name="Pause 2", exact=True).click()
        await eventually(partial(all_are, house, job_ids[:2], "paused"))
        assert await status_of(house, job_ids[2]) == "active"
        await expect(bar).to_be_hidden()

    async def test_all_that_fit_are_counted_and_changed(self, visitor, house):
        word, page = a_name("fitting"), visitor.page
        job_ids = [await house.schedule(f"{word}-{number}") for number in range(4)]
        await visitor.go(f"/jobs?name={word}")
        await page.get_by_label(f"Select {word}-0").check()
        bar = page.get_by_role("toolbar")
        await bar.get_by_role("button", name="Select all matching").click()
        await bar.get_by_role("button", name="Delete").click()
        await expect(page.get_by_role("dialog")).to_contain_text("4 jobs")
        await expect(page.get_by_role("dialog")).to_contain_text(f"name:{word}*")
        await page.get_by_role("button", name="Delete 4", exact=True).click()

        await eventually(partial(all_are, house, job_ids, "cancelled"))


class TestRuns:
    async def test_waiting_runs_are_cancelled_in_bulk(self, visitor, house):
        queue, page = a_name("nobody"), visitor.page
        job = {"target": {"type": "function", "handler": "greet"}, "queue": queue}
        run_ids = [(await house.ask("POST", "/v1/jobs", job))["job_id"] for _ in range(3)]
        await visitor.go(f"/runs?queue={queue}")
        await page.get_by_label("Select page").check()
        await page.get_by_role("toolbar").get_by_role("button", name="Cancel").click()
        await expect(page.get_by_role("dialog")).to_contain_text("3 runs")
        await page.get_by_role("button", name="Cancel 3", exact=True).click()

        for run_id in run_ids:
            await house.until(run_id, "cancelled")

    async def test_run_shows_the_job_it_depends_on(self, visitor, house):
        first = await house.submit("takes_long")
        job = {"target": {"type": "function", "handler": "greet"}, "depends_on": [first]}
        second = (await house.ask("POST", "/v1/jobs", job))["job_id"]
        await visitor.go(f"/runs/{second}")

        await expect(visitor.page.locator("[data-story]")).to_contain_text("depends on 1 job")
        await expect(visitor.page.get_by_label("Details").get_by_role("link", name=first[-8:])).to_be_visible()
        await house.ask("POST", f"/v1/runs/{first}/cancel")


class TestDead:
    async def test_a_group_is_counted_by_the_server_and_replayed_at_a_pace(self, visitor, house):
        word, page = a_word("paced"), visitor.page
        await a_dead_run(house, a_word("another"))
        runs = [await a_dead_run(house, f"{word}: order {number} is gone") for number in range(3)]
        await visitor.go("/dead")
        group = page.locator(".group", has_text=word)
        await group.get_by_role("button", name="View runs").click()
        await expect(group.locator("tbody tr")).to_have_count(3)
        await expect(group.locator("tbody")).to_contain_text("order 2 is gone")

        await group.get_by_role("button", name="Replay group").click()
        await page.get_by_label("Rate, runs per second").fill("100")
        await page.get_by_role("button", name="Replay 3", exact=True).click()
        for run_id in runs:
            await eventually(partial(has_attempts, house, run_id, 2))


class TestQueues:
    async def test_worker_shows_its_held_runs_and_can_be_drained(self, visitor, house):
        page, run_id = visitor.page, await house.submit("takes_long")
        await house.until(run_id, "running")
        await visitor.go("/queues")
        workers = page.get_by_label("Workers", exact=True)
        await workers.get_by_role("button", name=re.compile("^Held runs of")).first.click()
        await expect(page.get_by_label("Held runs", exact=True)).to_contain_text(run_id[-8:])

        await workers.get_by_role("button", name=re.compile("^Drain worker")).first.click()
        await page.get_by_role("dialog").get_by_role("button", name="Drain worker").click()
        await expect(workers.locator("[data-state=draining]")).to_be_visible()
        [worker] = (await house.ask("GET", "/v1/workers"))["items"]
        assert worker["is_draining"] is True
        waiting = await house.submit("greet")
        await house.ask("POST", f"/v1/runs/{run_id}/cancel")
        await expect(workers.locator("[data-state=drained]")).to_be_visible()
        assert await house.state(waiting) == "ready"

        await workers.get_by_role("button", name=re.compile("^Resume worker")).first.click()
        await house.until(waiting, "succeeded")

    async def test_limits_are_set_and_taken_away(self, visitor, house):
        page = visitor.page
        await visitor.go("/queues")
        await page.get_by_role("button", name="Set limits of queue default").click()
        await page.get_by_label("Max concurrent runs").fill("7")
        await page.get_by_label(re.compile("^Overloaded above")).fill("90")
        await page.get_by_role("button", name="Set limits", exact=True).click()
        await expect(page.get_by_role("row", name=re.compile("^default"))).to_contain_text("of 7")
        [limit] = await self.limits_of_default(house)
        [queue] = [one for one in (await house.ask("GET", "/v1/queues"))["items"] if one["name"] == "default"]
        assert (limit["queue"], limit["slots"], queue["age_limit_seconds"]) == ("default", 7, 90)

        await page.get_by_role("button", name="Set limits of queue default").click()
        await page.get_by_label("Max concurrent runs").fill("")
        await page.get_by_label(re.compile("^Overloaded above")).fill("")
        await page.get_by_role("button", name="Set limits", exact=True).click()
        await expect(page.get_by_role("row", name=re.compile("^default"))).not_to_contain_text("of 7")
        assert await self.limits_of_default(house) == []

    async def limits_of_default(self, house):
        return [one for one in (await house.ask("GET", "/v1/limits"))["items"] if one["queue"] == "default"]


class TestJob:
    async def test_a_schedule_that_names_no_zone_has_the_days_of_utc_wherever_one_looks_from(self, browser, house):
        visitor = await visiting(browser, house, timezone_id="Europe/Berlin")
        await visitor.come_in()
        await visitor.go(f"/jobs/{await house.schedule(a_name('unzoned'))}")
        await expect(visitor.page.get_by_label("Calendar", exact=True)).to_contain_text("days in UTC")
        await expect(visitor.page.get_by_text("Time zone Europe/Berlin")).to_be_visible()
        await visitor.page.context.close()

    async def test_the_calendar_is_of_the_schedules_zone_and_marks_days_on_which_clocks_are_set(self, visitor, house):
        trigger = {"trigger": {"type": "cron", "expr": "30 23 * * *", "tz": "America/New_York"}}
        job_id = await house.schedule(a_name("zoned"), schedule=trigger)
        asked = await house.ask("GET", f"/v1/jobs/{job_id}/days", zone="America/New_York")
        await visitor.go(f"/jobs/{job_id}")
        calendar = visitor.page.get_by_label("Calendar", exact=True)

        await expect(calendar).to_contain_text("days in America/New_York")
        await expect(calendar.locator("path.change")).to_have_count(len(asked["clock_changes"]))
