"""Behaviour of the dashboard everywhere: readable by all, on a phone, in both themes, and by keys."""

import json
import re
import subprocess

import pytest
from playwright.async_api import expect

from tests.dashboard.conftest import ROOT, visiting

AXE = ROOT / "ui" / "node_modules" / "axe-core" / "axe.min.js"
FIRST_PAGE_BYTES_MAX = 250 * 1024
HEADINGS = {
    "gj": "Jobs",
    "gr": "Runs",
    "gw": "Workflows",
    "gd": "Dead letters",
    "gq": "Queues and workers",
    "go": "Overview",
}


@pytest.fixture(scope="module")
async def slots(house):
    """The path of each screen, each with something to see."""
    good, bad = await house.submit("greet", name="Ada"), await house.submit("fails", why="broken")
    job_id = await house.schedule("looked-at", tags=["seen"])
    await house.ask("POST", f"/v1/jobs/{job_id}/trigger", {})
    await house.until(good, "succeeded")
    await house.until(bad, "dead")
    listed = ["/overview", "/jobs", f"/jobs/{job_id}", "/jobs/new", f"/jobs/{job_id}/edit", "/runs"]
    return [*listed, f"/runs/{good}", f"/runs/{bad}", "/dead", "/queues"]


async def settled(visitor):
    """Wait until what a screen reads is there."""
    await visitor.page.wait_for_load_state("load")
    await expect(visitor.page.locator("main :is(.card, .table)").first).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_axe_finds_nothing_serious(browser, house, slots, scheme):
    visitor = await visiting(browser, house, color_scheme=scheme)
    await visitor.page.goto(house.url + "/")
    await expect(visitor.page.get_by_label("API key")).to_be_visible()
    found = {"log-in": await serious(visitor)}
    await visitor.log_in()
    for path in slots:
        await visitor.go(path)
        await settled(visitor)
        found[path] = await serious(visitor)
    await visitor.page.context.close()

    assert {fault: path for path, faults in found.items() for fault in faults} == {}
    assert visitor.complaints == []


async def serious(visitor):
    """Name what axe finds serious or critical."""
    await visitor.page.evaluate(AXE.read_text())
    told = await visitor.page.evaluate("async () => JSON.stringify(await axe.run())")
    return [
        f"{one['id']}: {one['nodes'][0]['html'][:160]}"
        for one in json.loads(told)["violations"]
        if one["impact"] in ("serious", "critical")
    ]


async def test_on_a_phone_nothing_hangs_over_the_edge(browser, house, slots):
    visitor = await visiting(browser, house, viewport={"width": 360, "height": 740})
    await visitor.log_in()
    wide = {}
    for path in slots:
        await visitor.go(path)
        await settled(visitor)
        wide[path] = await visitor.page.evaluate("document.documentElement.scrollWidth - innerWidth")
    await visitor.page.context.close()

    assert {path: by for path, by in wide.items() if by > 0} == {}


async def test_the_theme_is_chosen_and_remembered(stranger):
    page = stranger.page
    await stranger.log_in()
    ground = "getComputedStyle(document.documentElement).backgroundColor"
    light = await page.evaluate(ground)
    for word in ("theme", "Log out"):
        button = page.get_by_role("button", name=word)
        await expect(button).to_contain_text(word)
        await expect(button).to_have_attribute("title", re.compile(word))
    await page.get_by_role("button", name=re.compile("theme: switch to")).click()
    await page.get_by_role("button", name=re.compile("theme: switch to")).click()
    dark = await page.evaluate(ground)
    await page.reload()
    await page.get_by_role("navigation", name="Screens").wait_for()

    assert light != dark
    assert await page.evaluate(ground) == dark


async def test_keys_lead_everywhere(visitor, slots):
    page = visitor.page
    await visitor.go("/overview")
    for keys, heading in HEADINGS.items():
        for key in keys:
            await page.keyboard.press(key)
        await expect(page.get_by_role("heading", name=heading, exact=True, level=1)).to_be_visible()
    await page.keyboard.press("?")
    await expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("dialog")).to_be_hidden()
    await page.keyboard.press("g")
    await page.keyboard.press("r")
    await expect(page.locator(".table tbody tr").nth(1)).to_be_visible()
    await page.keyboard.press("j")
    await page.keyboard.press("j")
    second = await page.locator("[data-row]").nth(1).get_attribute("href")
    assert await page.evaluate("document.activeElement.getAttribute('href')") == second
    await page.keyboard.press("/")
    await expect(page.get_by_label("Queue", exact=True)).to_be_focused()


async def test_the_palette_finds_a_job_by_its_name(visitor, slots):
    page = visitor.page
    await visitor.go("/overview")
    await page.keyboard.press("Control+k")
    await page.get_by_role("combobox").fill("looked-at")
    await page.get_by_role("option", name="looked-at").click()

    await expect(page.get_by_role("heading", name="looked-at")).to_be_visible()


async def test_times_are_local_and_show_utc_in_their_title(browser, house, slots):
    visitor = await visiting(browser, house, timezone_id="Asia/Tokyo", locale="en-GB")
    await visitor.log_in()
    await visitor.go(slots[2])
    shown = visitor.page.get_by_label("Next fires", exact=True).locator("time").first
    await expect(shown).to_contain_text("13:00")  # at 04:00 UTC

    assert "04:00:00 UTC" in (await shown.get_attribute("title") or "")
    await visitor.page.context.close()


async def test_the_first_page_is_small(browser, house):
    visitor = await visiting(browser, house)
    sizes = {}

    async def weigh(response):
        if "/v1/" not in response.url:
            sizes[response.url] = (await response.request.sizes())["responseBodySize"]

    seen = []
    visitor.page.on("requestfinished", lambda request: seen.append(request))
    await visitor.log_in()
    for request in seen:
        response = await request.response()
        assert response is not None
        await weigh(response)
    await visitor.page.context.close()

    assert 0 < sum(sizes.values()) <= FIRST_PAGE_BYTES_MAX, sizes


async def test_focus_moves_to_the_main_content_after_navigation_and_actions(visitor, house):
    """By the keyboard one goes on from what is shown, and the window is called by it."""
    job_id, page = await house.schedule("not-lost"), visitor.page
    await visitor.go("/jobs?name=not-lost")
    await page.locator("tbody a[data-row]").first.focus()
    await page.keyboard.press("Enter")
    await expect(page).to_have_title("not-lost · Job · Duly")
    await expect(page.locator("main")).to_be_focused()

    await page.get_by_role("button", name="Pause").focus()
    await page.keyboard.press("Enter")
    await page.get_by_role("button", name="Pause job").focus()
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("button", name="Resume")).to_be_visible()
    await expect(page.locator("main")).to_be_focused()
    await page.get_by_role("button", name="Resume").focus()
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("button", name="Pause")).to_be_visible()
    await expect(page.locator("main")).to_be_focused()
    assert (await house.ask("GET", f"/v1/jobs/{job_id}"))["status"] == "active"


async def test_copy_button_works_without_the_clipboard_api(visitor):
    """A page that comes without TLS from another machine has none."""
    page = visitor.page
    await page.add_init_script("Object.defineProperty(navigator, 'clipboard', { value: undefined })")
    await page.add_init_script("addEventListener('copy', () => (window.copied = String(getSelection() ?? '')))")
    await visitor.go("/jobs")
    await page.get_by_role("button", name="Copy command").click()

    await expect(page.get_by_role("button", name="Copied")).to_be_visible()
    assert "duly jobs" in await page.evaluate("window.copied")


def test_the_sources_are_sound():
    check = ["npm", "run", "--silent", "check"]
    found = subprocess.run(check, cwd=ROOT / "ui", capture_output=True, text=True, timeout=110)

    assert found.returncode == 0, found.stdout
