"""Sixty texts that want to be markup, each by itself in each of twelve fields: all are shown as they were written.

The fields: a job's name, tag, queue and why it is paused; what a payload is called and what it holds; a handler, an error, a
line of a log, a result; why a queue is held, and the name of the key that did it.
"""

import asyncio
import json
from collections.abc import Awaitable, Iterable
from typing import Any

import httpx
import pytest
from playwright.async_api import expect

from tests.dashboard.conftest import eventually
from tests.dashboard.test_manners import FOREIGN
from tests.security.payloads import PAYLOADS

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
    holds = (await house.ask("GET", "/v1/holds"))["items"]
    await together(house.ask("POST", "/v1/resume", {"queue": one["queue"], "tenant": 1}) for one in holds)


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


async def test_what_a_payload_is_called_and_what_it_holds(visitor, written):
    await shows(visitor, f"/jobs/{written['of_all']}", AS_JSON, times=2)


async def test_a_line_of_a_log_and_a_result(visitor, written):
    await shows(visitor, f"/runs/{written['said']}", [*PAYLOADS, *AS_JSON])


async def test_why_a_queue_is_held_and_by_whose_key(visitor, written):
    await shows(visitor, "/queues", PAYLOADS, times=3)
    await shows(visitor, "/overview", [])
