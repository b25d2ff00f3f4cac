"""Workflows on screen: as a graph, along time and as rows; what is done to them is read through the API."""

import re
from typing import Literal
from uuid import uuid4

import pytest
from playwright.async_api import expect

from tests.dashboard.conftest import eventually, visiting
from tests.dashboard.test_manners import serious

NOWHERE = "nobody-serves-this"
VIEWS = ("graph", "time", "list")
SCHEMES: list[Literal["dark", "light"]] = ["dark", "light"]
ROWS_MAX = 500  # of whatever repeats: boxes of a graph, rows of a table, bars


def node(handler="greet", *depends_on, **more):
    edges = [name if isinstance(name, str) else {"node": name[0], "on": name[1]} for name in depends_on]
    return {"target": {"type": "function", "handler": handler}, "depends_on": edges, **more}


# Everything that a workflow can have: a map, added nodes, each condition, a node that fails and one that is skipped.
NIGHT = {
    "list": node("listing"),
    "each": node("greet", "list", map={"$result": "list"}, payload={"name": {"$item": True}}),
    "plan": node("plan", "list"),
    "broken": node("fails", "each", payload={"why": "the till is empty"}),
    "never": node("greet", "broken"),
    "watched": node("fails", "plan", payload={"why": "as it was to be"}),
    "alarm": node("greet", ("watched", "failure")),
    "tidy": node("greet", ("alarm", "always"), payload={"name": "broom"}),
}
# One that stays where it is until somebody lets it go on.
HELD = {"first": node(), "held": node("takes_long", "first"), "later": node("greet", ("held", "always"))}


async def started(house, nodes, name="night", **more):
    """Start a workflow, and give its id."""
    told = await house.ask("POST", "/v1/workflows", {"name": f"{name}-{uuid4().hex[:8]}", "nodes": nodes, **more})
    return told["workflow_id"]


async def told(house, workflow_id):
    return await house.ask("GET", f"/v1/workflows/{workflow_id}")


async def states(house, workflow_id):
    return {one["name"]: one["state"] for one in (await told(house, workflow_id))["nodes"]}


async def until(house, workflow_id, *wanted, node_name=None):
    """Wait until a workflow, or a node of it, is in one of these states."""

    async def is_there():
        found = await told(house, workflow_id)
        state = (
            next(one["state"] for one in found["nodes"] if one["name"] == node_name) if node_name else found["state"]
        )
        return state in wanted

    await eventually(is_there)


def box(page, name, state=None):
    return page.locator(f'[data-unit="{name}"]' + (f"[data-state={state}]" if state else ""))


def panel(page, name):
    return page.get_by_role("complementary", name=f"Node {name}")


@pytest.fixture(scope="module")
async def guest(browser, house):
    """Somebody who has logged in once for all that is looked at here."""
    visitor = await visiting(browser, house)
    await visitor.log_in()
    yield visitor
    await visitor.page.context.close()


@pytest.fixture
async def visitor(guest):
    """The guest, of whose page nothing may be complained."""
    guest.may_be_refused = False
    yield guest
    assert guest.complaints == []


@pytest.fixture(scope="module")
async def night(house):
    """A workflow that has ended, with everything in it."""
    workflow_id = await started(house, NIGHT, tags=["money"])
    await until(house, workflow_id, "failed")
    return workflow_id


@pytest.fixture
async def held(house):
    """A workflow with a node under way, which is stopped in the end."""
    workflow_id = await started(house, HELD, "held")
    await until(house, workflow_id, "running", node_name="held")
    yield workflow_id
    await house.ask("POST", f"/v1/workflows/{workflow_id}/cancel", {})


async def test_a_run_leads_to_the_workflow_it_has_started_and_back(visitor, house):
    nodes = {"first": node(), "second": node("greet", "first")}
    name = f"nightly-{uuid4().hex[:8]}"
    job_id = await house.schedule(name, target={"type": "workflow", "nodes": nodes})
    run_id = (await house.ask("POST", f"/v1/jobs/{job_id}/trigger", {}))["run_id"]
    await house.until(run_id, "succeeded")
    workflow_id = (await house.ask("GET", f"/v1/runs/{run_id}"))["started_workflow_id"]
    page = visitor.page
    await visitor.go(f"/runs/{run_id}")

    await page.get_by_label("Details").get_by_role("link", name=workflow_id).click()
    await expect(page.get_by_role("heading", name=name, level=1)).to_be_visible()
    await expect(page).to_have_url(re.compile(workflow_id))
    await page.get_by_role("link", name=f"run {run_id[-8:]}").click()
    await expect(page).to_have_url(re.compile(run_id))


class TestList:
    async def test_they_are_narrowed_by_name_state_tag_and_day_and_opened(self, visitor, house, night):
        page, name = visitor.page, (await told(house, night))["name"]
        await visitor.go("/workflows?state=failed&tag=money&since=2020-01-01")
        await page.get_by_label("Name begins with").fill(name)
        await expect(page.locator("tbody tr")).to_have_count(1)
        await expect(page).to_have_url(re.compile(f"name={name}"))
        await page.get_by_label("Submitted before").fill("2020-01-02")
        await expect(page.get_by_text("No matching workflows")).to_be_visible()
        await page.get_by_label("Submitted before").fill("")
        await page.get_by_role("link", name=name).click()

        await expect(page.get_by_role("heading", name=name, level=1)).to_be_visible()

    async def test_keys_and_the_palette_lead_there(self, visitor, house, night):
        page, name = visitor.page, (await told(house, night))["name"]
        await visitor.go("/overview")
        await page.keyboard.press("g")
        await page.keyboard.press("w")
        await expect(page.get_by_role("heading", name="Workflows", level=1)).to_be_visible()
        await page.keyboard.press("Control+k")
        await page.get_by_role("dialog").get_by_role("combobox").fill(name)
        await page.get_by_role("option", name=name).click()

        await expect(page.get_by_role("heading", name=name, level=1)).to_be_visible()


class TestGraph:
    async def test_workflow_graph_shows_states_conditions_maps_and_added_nodes(self, visitor, house, night):
        page = visitor.page
        await visitor.go(f"/workflows/{night}")
        for name, state in (await states(house, night)).items():
            await expect(box(page, name, state)).to_have_count(0 if "[" in name else 1)

        await expect(page.locator(".label.failure")).to_have_text("on failure")
        await expect(page.locator(".label.always")).to_have_text("always")
        await expect(page.locator(".link.failure.met")).to_have_count(1)
        await expect(page.locator(".link.success.unmet")).to_have_count(1)
        await expect(box(page, "each")).to_contain_text("3 items · 3 ended")
        await expect(box(page, "monday")).to_contain_text("added")

    async def test_a_map_is_opened_and_folded(self, visitor, night):
        page = visitor.page
        await visitor.go(f"/workflows/{night}?node=each")
        await page.get_by_role("button", name="Expand items in the graph").click()
        await expect(box(page, "each[2]", "succeeded")).to_be_visible()
        await page.get_by_role("button", name="Collapse each").click()

        await expect(box(page, "each[2]")).to_have_count(0)

    async def test_a_node_tells_its_error_its_attempts_and_its_run(self, visitor, house, night):
        page = visitor.page
        await visitor.go(f"/workflows/{night}")
        await box(page, "broken").click()
        await expect(panel(page, "broken")).to_contain_text("RuntimeError: the till is empty")
        await expect(panel(page, "broken").get_by_label("Node attempts")).to_contain_text("Attempt 1")
        run_id = next(one["run_id"] for one in (await told(house, night))["nodes"] if one["name"] == "broken")
        await panel(page, "broken").get_by_role("link", name="View run").click()
        await expect(page.get_by_label("Details")).to_contain_text(run_id)

        await page.get_by_label("Details").get_by_role("link", name="broken", exact=True).click()
        await expect(panel(page, "broken")).to_be_visible()

    async def test_a_node_tells_its_result(self, visitor, night):
        await visitor.go(f"/workflows/{night}?node=tidy")

        await expect(visitor.page.get_by_label("node result", exact=True)).to_contain_text('"hello": "broom"')
        await expect(panel(visitor.page, "tidy")).to_contain_text("alarm always")

    async def test_arrow_keys_go_from_node_to_node(self, visitor, night):
        page = visitor.page
        await visitor.go(f"/workflows/{night}")
        await box(page, "list").focus()
        along = "ArrowDown" if await below(page, "list", "plan") else "ArrowRight"
        await page.keyboard.press(along)
        first = await page.evaluate("document.activeElement.dataset.unit")
        assert first in ("each", "plan")
        await page.keyboard.press(along)
        assert await page.evaluate("document.activeElement.dataset.unit") in ("broken", "watched", "monday", "tuesday")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("complementary")).to_be_visible()

    async def test_workflow_graph_can_be_moved_and_zoomed(self, visitor, night):
        page = visitor.page
        await visitor.go(f"/workflows/{night}")
        await expect(box(page, "list")).to_be_visible()
        before = await box(page, "list").bounding_box()
        await page.get_by_role("button", name="Zoom in").click()
        larger = await box(page, "list").bounding_box()
        assert larger["width"] > before["width"]
        await page.mouse.move(300, 500)
        await page.mouse.down()
        await page.mouse.move(340, 530, steps=4)
        await page.mouse.up()
        moved = await box(page, "list").bounding_box()
        assert (round(moved["x"] - larger["x"]), round(moved["y"] - larger["y"])) == (40, 30)
        await page.get_by_role("button", name="Fit all").click()
        assert (await box(page, "list").bounding_box())["width"] == pytest.approx(before["width"], abs=1)

    async def test_graph_code_loads_only_with_the_workflow_screen(self, stranger, night):
        asked = []
        stranger.page.on("request", lambda request: asked.append(request.url))
        await stranger.log_in()
        assert [url for url in asked if "Graph" in url or "worker" in url] == []
        await stranger.go(f"/workflows/{night}")
        await expect(box(stranger.page, "list")).to_be_visible()
        assert len([url for url in asked if "layout.worker" in url]) == 1


async def below(page, upper, lower):
    return (await box(page, lower).bounding_box())["y"] > (await box(page, upper).bounding_box())["y"] + 20


class TestOtherViews:
    async def test_the_timeline_has_a_bar_for_each_that_began(self, visitor, house, night):
        page = visitor.page
        await visitor.go(f"/workflows/{night}?view=time")
        began = [name for name, state in (await states(house, night)).items() if state != "skipped"]

        await expect(page.locator(".bars li")).to_have_count(len(began))
        await page.get_by_role("link", name=re.compile(r"^broken\s+failed")).click()
        await expect(panel(page, "broken")).to_be_visible()

    async def test_node_list_filters_by_state_and_shows_wait_reasons(self, visitor, night):
        page = visitor.page
        await visitor.go(f"/workflows/{night}?view=list")
        await expect(page.get_by_role("row", name="tidy")).to_contain_text("alarm ends")
        await page.get_by_label("Node state").select_option("failed")

        await expect(page.locator("tbody tr")).to_have_count(2)


class TestActions:
    async def test_workflow_is_paused_and_resumed_on_screen(self, visitor, house, held):
        page = visitor.page
        await visitor.go(f"/workflows/{held}")
        await page.get_by_role("button", name="Pause").click()
        await expect(page.get_by_role("dialog")).to_contain_text("1 node not started")
        await expect(page.get_by_role("dialog")).to_contain_text("1 running node")
        await page.get_by_role("button", name="Pause workflow").click()
        await expect(page.locator(".head [data-state=paused]")).to_be_visible()
        assert (await told(house, held))["state"] == "paused"

        await page.get_by_role("button", name="Resume").click()
        await expect(page.locator(".head [data-state=running]")).to_be_visible()
        assert (await told(house, held))["state"] == "running"

    async def test_workflow_screen_cancels_with_a_reason(self, visitor, house, held):
        page = visitor.page
        await visitor.go(f"/workflows/{held}")
        await page.get_by_role("button", name="Cancel").click()
        await expect(page.get_by_role("dialog")).to_contain_text("2 nodes")
        await page.get_by_role("textbox", name="Reason").fill("wrong day")
        await page.get_by_role("button", name="Cancel workflow").click()

        await expect(page.locator(".head [data-state=cancelled]")).to_be_visible()
        found = await told(house, held)
        assert (found["state"], found["reason"]) == ("cancelled", "wrong day")

    async def test_an_end_is_on_screen_without_a_reload_and_nothing_jumps(self, visitor, house, held):
        page = visitor.page
        await visitor.go(f"/workflows/{held}")
        await expect(box(page, "held", "running")).to_be_visible()
        await expect(box(page, "later", "waiting")).to_be_visible()
        slots = "[...document.querySelectorAll('[data-unit]')].map(one => one.getAttribute('transform'))"
        await page.evaluate("document.querySelector('[data-unit=later]').kept = true")
        before = await page.evaluate(slots)
        run_id = next(one["run_id"] for one in (await told(house, held))["nodes"] if one["name"] == "held")
        await house.ask("POST", f"/v1/runs/{run_id}/cancel")

        await expect(box(page, "later", "succeeded")).to_be_visible()
        await expect(box(page, "held", "cancelled")).to_be_visible()
        assert await page.evaluate(slots) == before
        assert await page.evaluate("document.querySelector('[data-unit=later]').kept")

    async def test_workflow_replay_shows_its_effects_and_then_applies_them(self, visitor, house):
        workflow_id = await started(house, NIGHT)
        await until(house, workflow_id, "failed")
        page = visitor.page
        await visitor.go(f"/workflows/{workflow_id}?node=each")
        await page.keyboard.press("r")
        dialog = page.get_by_role("dialog")
        await expect(dialog).to_contain_text("3 nodes run again")
        await expect(dialog).to_contain_text("each, broken, never")
        await expect(dialog).to_contain_text("3 items of each are dropped")
        await expect(dialog).to_contain_text("7 nodes keep their results")
        await dialog.get_by_role("button", name="Replay 3 nodes").click()
        await expect(page.get_by_role("status").filter(has_text="3 nodes")).to_be_visible()

        found = await told(house, workflow_id)
        assert {one["name"] for one in found["nodes"] if one["replays"] and not one["item_of"]} == {
            "each",
            "broken",
            "never",
        }
        await until(house, workflow_id, "failed")

    async def test_workflow_replay_from_an_item_leaves_the_other_items(self, visitor, house, night):
        await visitor.go(f"/workflows/{night}?node=each%5B1%5D")
        await visitor.page.get_by_role("button", name="Replay from here").click()

        await expect(visitor.page.get_by_role("dialog")).to_contain_text("4 nodes run again")
        await expect(visitor.page.get_by_role("dialog")).not_to_contain_text("dropped")

    async def test_workflow_replay_names_the_running_nodes_that_block_it(self, visitor, held):
        visitor.may_be_refused = True
        await visitor.go(f"/workflows/{held}?node=first")
        await visitor.page.get_by_role("button", name="Replay from here").click()

        await expect(visitor.page.get_by_role("dialog").get_by_role("alert")).to_contain_text("'held' is under way")
        await expect(visitor.page.get_by_role("button", name="Replay", exact=True)).to_be_disabled()

    async def test_workflow_screen_hides_buttons_from_a_read_only_key(self, stranger, house, held):
        key = await house.ask("POST", "/v1/keys", {"name": "reader", "scopes": ["jobs:read"]})
        await stranger.log_in(key["key"])
        await stranger.go(f"/workflows/{held}?node=first")
        await expect(panel(stranger.page, "first")).to_be_visible()

        words = {word.strip() for word in await stranger.page.locator("main button").all_inner_texts()}
        assert not {"Pause", "Resume", "Cancel", "Replay from here"} & words


@pytest.fixture(scope="module")
async def large(house):
    """A thousand nodes in three ranks."""
    firsts = {f"a{number}": node(queue=NOWHERE) for number in range(40)}
    middle = {f"b{number}": node("greet", f"a{number % 40}", queue=NOWHERE) for number in range(950)}
    lasts = {f"c{number}": node("greet", f"b{number}", f"b{number + 1}", queue=NOWHERE) for number in range(10)}
    workflow_id = await started(house, {**firsts, **middle, **lasts}, "large")
    yield workflow_id
    await house.ask("POST", f"/v1/workflows/{workflow_id}/cancel", {})


class TestSize:
    async def test_a_thousand_nodes_are_folded_by_rank_and_opened(self, visitor, large):
        page = visitor.page
        await visitor.go(f"/workflows/{large}")
        await expect(page.locator("[data-unit]")).to_have_count(3)
        await expect(box(page, "ranks:2-2")).to_contain_text("950 nodes")
        assert await rows(page) <= ROWS_MAX

        await box(page, "ranks:1-1").click()
        await expect(page.locator("[data-unit]")).to_have_count(42)
        assert await rows(page) <= ROWS_MAX

    async def test_a_rank_that_is_too_wide_for_a_drawing_is_a_list(self, visitor, large):
        page = visitor.page
        await visitor.go(f"/workflows/{large}")
        await box(page, "ranks:2-2").click()
        await expect(page.get_by_text("1–100 of 950 nodes")).to_be_visible()
        await page.get_by_role("button", name="Next 100").click()

        await expect(page.get_by_role("row", name="b100")).to_be_visible()
        assert await rows(page) <= ROWS_MAX

    async def test_a_long_chain_is_folded_too(self, visitor, house):
        chain = {
            f"n{number}": node("greet", *([f"n{number - 1}"] if number else []), queue=NOWHERE) for number in range(400)
        }
        workflow_id = await started(house, chain, "chain")
        await visitor.go(f"/workflows/{workflow_id}")
        await expect(visitor.page.locator("[data-unit]").first).to_be_visible()

        assert await visitor.page.locator("[data-unit]").count() <= 60
        await house.ask("POST", f"/v1/workflows/{workflow_id}/cancel", {})


async def rows(page):
    return await page.locator("main :is([data-unit], tr, .bars li)").count()


class TestElsewhere:
    async def test_a_job_shows_the_workflow_it_starts(self, visitor, house):
        nodes = {"fetch": node(), "alarm": node("greet", ("fetch", "failure"))}
        trigger = {"trigger": {"type": "cron", "expr": "0 4 * * *"}}
        job = {"name": f"flow-{uuid4().hex[:8]}", "target": {"type": "workflow", "nodes": nodes}, "schedule": trigger}
        job_id = (await house.ask("POST", "/v1/jobs", job))["job_id"]
        await visitor.go(f"/jobs/{job_id}")

        shown = visitor.page.get_by_role("region", name="Workflow")
        await expect(shown.locator("[data-unit]")).to_have_count(2)
        await expect(shown.locator(".label.failure")).to_have_text("on failure")


class TestManners:
    async def test_axe_finds_nothing_serious_in_either_theme(self, visitor, night):
        found = {}
        for path in ["/workflows", *(f"/workflows/{night}?view={view}&node=broken" for view in VIEWS)]:
            await visitor.go(path)
            await ready(visitor.page)
            for scheme in SCHEMES:
                await visitor.page.emulate_media(color_scheme=scheme)
                found[path, scheme] = await serious(visitor)

        assert {fault: place for place, faults in found.items() for fault in faults} == {}

    async def test_on_a_phone_rows_come_first_and_nothing_hangs_over_the_edge(self, visitor, night):
        page, wide = visitor.page, {}
        await page.set_viewport_size({"width": 360, "height": 740})
        await visitor.go(f"/workflows/{night}")
        await expect(page.locator("tbody tr").first).to_be_visible()
        for path in ["/workflows", *(f"/workflows/{night}?view={view}&node=broken" for view in VIEWS)]:
            await visitor.go(path)
            await ready(page)
            wide[path] = await page.evaluate("document.documentElement.scrollWidth - innerWidth")
        await page.set_viewport_size({"width": 1280, "height": 900})

        assert {path: by for path, by in wide.items() if by > 0} == {}


async def ready(page):
    """Wait until what a screen reads is there."""
    await expect(page.locator("main :is([data-unit], tbody tr, .bars li)").first).to_be_visible()
    if "node=" in page.url:
        await expect(page.get_by_role("complementary").locator("dl")).to_be_visible()
