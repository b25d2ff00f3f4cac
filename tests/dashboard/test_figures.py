"""Requests and contents of the dashboard, however much there is; the long programme also says how long it takes."""

import pytest

from tests.dashboard.conftest import a_house, visiting
from tests.dashboard.figures import LISTS, fill, first_page, grown, look, measure

REQUESTS_MAX = 5
ROWS_MAX = 500
FIRST_PAGE_BYTES_MAX = 250 * 1024
MEGABYTE = 1_000_000
JOBS, ATTEMPTS = 20_000, 20_000


@pytest.fixture(scope="module")
async def full(tmp_path_factory, house):
    """A Duly of its own with more than a page holds of everything."""
    async with a_house(tmp_path_factory.mktemp("full")) as opened:
        await fill(opened, JOBS, ATTEMPTS, dead=1_000)
        yield opened


@pytest.fixture
async def looker(browser, full):
    """Somebody who looks at it."""
    visitor = await visiting(browser, full)
    await visitor.log_in()
    yield visitor
    await visitor.page.context.close()
    assert visitor.complaints == []


async def test_a_screen_asks_five_times_at_most_and_shows_few_rows_of_many(looker):
    found = [await look(looker, path) for path in LISTS]

    assert {one.path: one.requests for one in found if not 1 <= one.requests <= REQUESTS_MAX} == {}
    assert {one.path: one.rows for one in found if not 1 <= one.rows <= ROWS_MAX} == {}


async def test_first_page_after_login_is_small(looker):
    size, _ = await first_page(looker)

    assert 10_000 < size <= FIRST_PAGE_BYTES_MAX


async def test_a_page_that_is_read_again_and_again_does_not_grow(looker):
    found = await grown(looker, "/overview?range=24h", beats=60)

    assert found.nodes_after <= found.nodes_before * 1.1 + 100, found
    assert found.listeners_after <= found.listeners_before * 1.1 + 20, found
    assert found.heap_after <= found.heap_before + 3 * MEGABYTE, found


@pytest.mark.proof
async def test_the_figures_hold_with_a_million_jobs():
    found = await measure(jobs=1_000_000, attempts=10_000_000, beats=3_000)

    assert found["first_page_bytes"] <= FIRST_PAGE_BYTES_MAX
    assert found["first_page_ms"] <= 1_000
    assert max(found["filters_ms"].values()) <= 200
    assert max(one["requests"] for one in found["screens"]) <= REQUESTS_MAX
    assert max(one["server_ms"] for one in found["screens"]) <= 150
    assert max(one["rows"] for one in found["screens"]) <= ROWS_MAX
    assert found["started_on_screen_seconds"] <= 1
    for one in found["grown"]:
        assert one["nodes_after"] <= one["nodes_before"] * 1.1 + 100
        assert one["heap_after"] <= one["heap_before"] + 3 * MEGABYTE
