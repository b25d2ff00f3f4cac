"""The interactive API page, in a real browser: all operations, nothing against the policy, and requests to the server."""

import httpx
import pytest
from playwright.async_api import expect

from duly.api.routes import OPERATIONS


@pytest.fixture
async def docs(stranger):
    """The page, opened by somebody who has not logged in; every request succeeds."""
    failed = []
    stranger.page.on("requestfailed", lambda request: failed.append(request.url))
    stranger.page.on("response", lambda response: failed.append(response.url) if response.status >= 400 else None)
    # Of many operations only those in view are drawn, so all have to be.
    await stranger.page.set_viewport_size({"width": 1280, "height": 120 * len(OPERATIONS)})
    await stranger.page.goto(f"{stranger.house.url}/docs")
    await expect(stranger.page.locator(".opblock")).to_have_count(len(OPERATIONS))
    yield stranger
    assert failed == []


async def authorize(page, key):
    """Give the page an API key."""
    await page.get_by_role("button", name="Authorize").first.click()
    form = page.locator(".modal-ux")
    await form.locator("input").fill(key)
    await form.get_by_role("button", name="Apply credentials").click()
    await form.get_by_role("button", name="Close").first.click()


async def execute(page, name):
    """Open an operation, send its example, and return the status."""
    operation = page.locator(f"[id$='-{name}'].opblock")
    await operation.locator(".opblock-summary-control").click()
    await operation.get_by_role("button", name="Execute").click()
    return await operation.locator(".live-responses-table tbody .response-col_status").inner_text()


async def test_every_operation_is_listed_with_its_summary(docs):
    shown = await docs.page.locator(".opblock .opblock-summary-description").all_inner_texts()

    assert len(shown) == len(OPERATIONS)
    assert all(shown)


async def test_examples_are_sent_to_this_server_with_the_callers_key(docs):
    await authorize(docs.page, docs.house.key)

    assert (await execute(docs.page, "create_job")).startswith("202")
    assert (await execute(docs.page, "list_jobs")).startswith("200")
    assert "nightly-report" in [job["name"] for job in (await docs.house.ask("GET", "/v1/jobs"))["items"]]


async def test_the_policy_allows_no_inline_code_and_no_other_server(house):
    answer = httpx.get(f"{house.url}/docs")
    policy = answer.headers["content-security-policy"]

    assert "script-src 'self';" in policy
    assert "connect-src 'self';" in policy
    assert "unsafe" not in policy
