"""Attacks on whoever looks at the dashboard: text that wants to be markup or script, and pages of others.

Sixty texts stand, each by itself, in each of twelve fields, and together in all others: all are shown as they were written.

The twelve: a job's name, tag, queue and why it is paused; what a payload is called and what it holds; a handler, an error, a
line of a log, a result; why a queue is held, and the name of the key that did it.
"""

import asyncio
import json
import re
from collections.abc import Awaitable, Iterable
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from playwright.async_api import expect

from duly.dashboard.pages import STATIC
from tests.dashboard.conftest import ROOT, eventually
from tests.dashboard.test_manners import settled
from tests.dashboard.test_pages import asked
from tests.dashboard.test_places import MORNING, change
from tests.dashboard.test_workflows import node
from tests.dashboard.test_workflows import ready as workflow_is_shown
from tests.dashboard.test_workflows import until as workflow_comes_to
from tests.security.payloads import PAYLOADS

# What no screen of ours has within its content.
FOREIGN = (
    "script, iframe, object, embed, img, math, base, meta, link, style, marquee, video, audio, [onerror], [onload]"
)
AT_ONCE = 6
PAGE = 50
MARK = "sixty"
AS_JSON = [json.dumps(text, ensure_ascii=False)[1:-1] for text in PAYLOADS]
TEXT = "main => main.textContent"


async def together(asked: Iterable[Awaitable[Any]]) -> list[Any]:
    """Wait for all of them, a few at a time."""
    room = asyncio.Semaphore(AT_ONCE)

    async def one(awaited: Awaitable[Any]) -> Any:
        async with room:
            return await awaited

    return await asyncio.gather(*map(one, asked))


@pytest.fixture(scope="module")
async def written(house):
    """Each text in each field; all of it is taken away at the end."""

    async def a_job(text: str) -> str:
        job_id: str = await house.schedule(text, tags=[MARK, text], queue=text)
        await house.ask("POST", f"/v1/jobs/{job_id}/pause", {"reason": text})
        return job_id

    async def a_hold(text: str) -> None:
        made = await house.ask("POST", "/v1/keys", {"name": text, "scopes": ["admin"]})
        held = {"queue": text, "tenant": 1, "reason": text}
        headers = {"Authorization": f"Bearer {made['key']}"}
        # Nobody is verified here, and to read the certificates takes longer than all the rest.
        async with httpx.AsyncClient(headers=headers, timeout=20, verify=False) as client:
            assert (await client.post(f"{house.url}/v1/pause", json=held)).is_success

    async def a_run_of(handler: str) -> None:
        target = {"type": "function", "handler": handler}
        await house.ask("POST", "/v1/jobs", {"target": target, "queue": "nobody", "tags": [MARK]})

    await house.ask("POST", "/v1/dead:discard", {"all": True})  # What others have left.
    jobs = await together(map(a_job, PAYLOADS))
    jobs.append(await house.schedule("of-all", payload={text: [text] for text in PAYLOADS}))
    dead = await together(house.submit("fails", why=text) for text in PAYLOADS)
    await together([*map(a_run_of, PAYLOADS), *map(a_hold, PAYLOADS)])
    said = await house.submit("says", lines=PAYLOADS)
    await together(house.until(run_id, "dead", "succeeded") for run_id in [*dead, said])
    yield {"of_all": jobs[-1], "said": said}
    await house.ask("POST", "/v1/jobs:delete", {"ids": jobs})
    await house.ask("POST", "/v1/runs:cancel", {"filter": f"tag:{MARK}"})
    await house.ask("POST", "/v1/dead:discard", {"all": True})
    pauses = (await house.ask("GET", "/v1/pauses"))["items"]
    await together(house.ask("POST", "/v1/resume", {"queue": one["queue"], "tenant": 1}) for one in pauses)


async def see_nothing_became_of_it(page) -> None:
    """See that no script ran, and that there is no markup that is not ours."""
    assert await page.evaluate("window.hacked ?? null") is None, page.url
    assert await page.locator(f"main :is({FOREIGN})").count() == 0, page.url


async def text_of_pages(visitor, path: str) -> str:
    """Read both pages of a list of sixty."""
    page, rows = visitor.page, visitor.page.locator("tbody tr")
    await visitor.go(path)
    await expect(rows).to_have_count(PAGE)
    await see_nothing_became_of_it(page)
    first = await page.locator("main").evaluate(TEXT)
    await page.get_by_role("button", name="Next page").click()
    await expect(rows).to_have_count(len(PAYLOADS) - PAGE)
    await see_nothing_became_of_it(page)
    return str(first + await page.locator("main").evaluate(TEXT))


async def shows(visitor, path: str, texts: Iterable[str], times: int = 1) -> None:
    """See that a screen shows each of these texts, so many times at least."""

    async def has_all() -> bool:
        shown = await visitor.page.locator("main").evaluate(TEXT)
        return all(shown.count(text) >= times for text in texts)

    await visitor.go(path)
    await eventually(has_all)
    await see_nothing_became_of_it(visitor.page)


async def test_a_jobs_name_tag_queue_and_why_it_is_paused(visitor, written):
    shown = await text_of_pages(visitor, f"/jobs?tag={MARK}")

    assert [text for text in PAYLOADS if shown.count(text) < 4] == []


async def test_a_handler(visitor, written):
    shown = await text_of_pages(visitor, f"/runs?tag={MARK}")

    assert [text for text in PAYLOADS if text not in shown] == []


async def test_an_error(visitor, written):
    shown = await text_of_pages(visitor, "/runs?state=dead&handler=fails")
    await visitor.go("/dead")
    await expect(visitor.page.locator(".group").nth(20)).to_be_visible()

    assert [text for text in PAYLOADS if text not in shown] == []
    await see_nothing_became_of_it(visitor.page)


async def test_payload_names_and_values_are_shown_as_text(visitor, written):
    await shows(visitor, f"/jobs/{written['of_all']}", AS_JSON, times=2)


async def test_a_line_of_a_log_and_a_result(visitor, written):
    await shows(visitor, f"/runs/{written['said']}", [*PAYLOADS, *AS_JSON])


async def test_pause_reason_and_key_name_of_a_queue_are_shown_as_text(visitor, written):
    await shows(visitor, "/queues", PAYLOADS, times=3)
    await shows(visitor, "/overview", [])


async def test_text_of_jobs_runs_and_queues_never_becomes_markup(visitor, house):
    whole = " ".join(PAYLOADS)
    printable = re.sub(r"[^\x20-\x7e]", "", whole)
    name, tag, queue = f"x{printable}"[:200], f"t{printable}"[:200], f"q{printable}"[:200]
    job_id = await house.schedule(name, tags=[tag], queue=queue, payload={"name": whole, whole[:1000]: 1})
    await house.ask("POST", f"/v1/jobs/{job_id}/pause", {"reason": f"r{printable}"[:500]})
    dead = await house.submit("fails", why=whole)
    good = await house.submit("greet", name=whole)
    await house.until(dead, "dead")
    await house.until(good, "succeeded")
    await house.ask("POST", f"/v1/queues/{'q'}/pause", {"reason": f"h{printable}"[:500]})

    of_the_job = [f"/jobs/{job_id}", f"/jobs/{job_id}/edit"]
    for path in ["/overview", "/jobs", *of_the_job, "/runs", f"/runs/{dead}", f"/runs/{good}", "/dead", "/queues"]:
        await visitor.go(path)
        await settled(visitor)
        await visitor.page.wait_for_timeout(300)
        assert await visitor.page.evaluate("window.hacked ?? null") is None, path
        assert await visitor.page.locator(f"main :is({FOREIGN})").count() == 0, path
    await house.ask("POST", "/v1/queues/q/resume", {})


async def test_text_of_files_keys_and_tenants_never_becomes_markup(visitor, house):
    printable = re.sub(r"[^\x20-\x7e]", "", " ".join(PAYLOADS))
    source, job, key, tenant, queue, concurrency = (f"{letter}{printable}"[:200] for letter in "sjktqg")
    wanted = {job: {"target": "greet", "schedule": MORNING, "payload": {"name": printable}}}
    made = await house.ask("POST", "/v1/jobs:apply", {"source": source, "jobs": wanted})
    await change(house, made["done"][0]["job_id"], payload={"name": f"other {printable}"})
    await house.ask("POST", f"/v1/jobs/{made['done'][0]['job_id']}/pause", {"reason": f"r{printable}"[:500]})
    await house.ask("POST", "/v1/keys", {"name": key, "scopes": ["jobs:read"]})
    number = (await house.ask("POST", "/v1/tenants", {"name": tenant}))["tenant"]
    await house.ask("POST", "/v1/pause", {"tenant": number, "reason": f"h{printable}"[:500]})
    await house.ask("PUT", "/v1/limits", {"queue": queue, "slots": 1})
    await house.ask("PUT", f"/v1/concurrency-keys/{quote(concurrency, safe='')}", {"limit": 1})

    for path in ["/files", f"/files/{quote(source, safe='')}", "/keys", f"/tenants/{number}", "/audit"]:
        await visitor.go(path)
        await settled(visitor)
        await expect(visitor.page.get_by_text("<script>").first).to_be_visible()
        assert await visitor.page.evaluate("window.hacked ?? null") is None, path
        assert await visitor.page.locator(f"main :is({FOREIGN})").count() == 0, path
    await house.ask("POST", "/v1/resume", {"tenant": number})


async def test_text_of_workflows_never_becomes_markup(visitor, house):
    """Names of nodes are letters and digits; whatever else is shown is what others wrote."""
    whole = " ".join(PAYLOADS)
    printable = re.sub(r"[^\x20-\x7e]", "", whole)
    nodes = {
        "good": node(payload={"name": whole}),
        "bad": node("fails", payload={"why": whole}),
        "long": node("takes_long"),
    }
    body = {"name": f"w{printable}"[:200], "tags": [f"t{printable}"[:200]], "nodes": nodes}
    workflow_id = (await house.ask("POST", "/v1/workflows", body))["workflow_id"]
    await workflow_comes_to(house, workflow_id, "failed", node_name="bad")
    await workflow_comes_to(house, workflow_id, "succeeded", node_name="good")
    await house.ask("POST", f"/v1/workflows/{workflow_id}/cancel", {"reason": f"r{printable}"[:500]})
    await workflow_comes_to(house, workflow_id, "cancelled")

    slots = [
        f"/workflows/{workflow_id}?node={name}&view={view}"
        for name, view in (("good", "graph"), ("bad", "list"), ("bad", "time"))
    ]
    for path in ["/workflows", *slots]:
        await visitor.go(path)
        await workflow_is_shown(visitor.page)
        assert await visitor.page.evaluate("window.hacked ?? null") is None, path
        assert await visitor.page.locator(f"main :is({FOREIGN})").count() == 0, path


@pytest.mark.parametrize(
    "place",
    [
        *("/jobs?name={}", "/jobs?filter={}", "/runs?queue={}", "/dead?filter={}", "/runs/{}", "/nothing/{}"),
        *("/destinations/{}", "/files/{}", "/tenants/{}", "/keys?tenant={}", "/files?page={}", "/audit?subject={}"),
        *("/workflows?name={}", "/workflows?since={}", "/workflows/{}"),
    ],
)
async def test_url_content_is_never_run_as_script(visitor, place):
    visitor.may_be_refused = True
    for payload in PAYLOADS[::6]:
        await visitor.page.goto(f"{visitor.house.url}/ui{place.format(quote(payload, safe=''))}")
        await expect(visitor.page.locator("main")).to_be_visible()
        assert await visitor.page.evaluate("window.hacked ?? null") is None, payload


async def test_no_script_can_read_the_session(stranger):
    await stranger.log_in()

    assert await stranger.page.evaluate("document.cookie") == ""
    assert await stranger.page.evaluate("JSON.stringify(localStorage)") == "{}"


async def test_nothing_inline_and_nothing_from_elsewhere_is_allowed():
    headers = (await asked(STATIC, "/")).headers
    policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))

    assert policy["default-src"] == policy["script-src"] == policy["style-src"] == "'self'"
    assert policy["worker-src"] == "'self'"
    assert policy["frame-ancestors"] == policy["object-src"] == policy["base-uri"] == "'none'"
    assert "unsafe" not in headers["content-security-policy"]
    assert (headers["x-content-type-options"], headers["referrer-policy"]) == ("nosniff", "no-referrer")


@pytest.mark.parametrize("path", ["/ui/assets/app-000000.js", "/ui/assets/../../pages.py", "/ui/assets/%2e%2e/x"])
async def test_no_path_leads_out_of_the_files_of_the_dashboard(path):
    answer = await asked(STATIC, path)

    assert answer.status_code == 404 or answer.text == (await asked(STATIC, "/")).text


def test_no_source_makes_markup_of_text():
    sources = [path for path in (ROOT / "ui" / "src").rglob("*") if path.suffix in (".svelte", ".ts")]
    forbidden = r"\{@html|(inner|outer)HTML|insertAdjacentHTML|document\.write|eval\(|new Function|[\s<]style=\""

    assert len(sources) > 40
    assert {str(path) for path in sources if re.search(forbidden, path.read_text())} == set()
