"""Costs of the dashboard: `python -m tests.dashboard.figures --jobs 1000000 --attempts 10000000` measures it in a browser.

It fills a Duly of its own, looks at each list in a real Chromium, and prints what each took: requests, milliseconds of the
server, rows on the page; how soon the first page is there, and how a page fares that is open for long.
"""

import argparse
import asyncio
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import asyncpg
import msgspec
from playwright.async_api import CDPSession, Page, Request

from duly.postgres import embedded
from tests.dashboard.conftest import House, Visitor, a_browser, a_house, visiting

LISTS = (
    "/overview",
    "/jobs",
    "/jobs?sort=name",
    "/jobs?name=job-12",
    "/jobs?state=paused",
    "/runs",
    "/runs?state=dead",
    "/dead",
    "/queues",
)
QUIET_SECONDS = 0.6  # So long nothing was asked for: the screen is there.
LONG = 100_000  # rows of one statement

JOBS = """
insert into duly.jobs (job_id, tenant, name, queue, handler, every_seconds, anchor_at, payload, options, created_at, updated_at,
                       state)
select duly.run_id(at, 'filled/' || number), 1, 'job-' || number, 'queue-' || number % 20, 'greet', 86400, at, '{}',
       case when number % 10 = 0 then jsonb_build_object('tags', jsonb_build_array('tag-' || number % 50)) end, at, at,
       case when number % 100 = 0 then 'paused' else 'active' end
  from (select number, now() - interval '1 day' - interval '1 millisecond' * ($3::bigint - number) as at
          from generate_series($1::bigint, $2::bigint) as number) as made
"""
TIMERS = """
insert into duly.timers (job_id, scheduled_at, due_at, generation, tenant, queue, handler, payload, shard, every_seconds)
select job_id, at, case when state = 'paused' then 'infinity' else at end, generation, tenant, queue, handler, payload,
       duly.shard_of(job_id), 86400
  from (select jobs.*, now() + interval '1 hour' + interval '20 hours' * random() as at from duly.jobs
         where not exists (select from duly.timers where timers.job_id = jobs.job_id and run_id is null)) as armed
"""
ATTEMPTS = """
insert into duly.attempts (run_id, job_id, scheduled_at, due_at, started_at, finished_at, tenant, attempt, outcome, became,
                           queue, handler)
select run_id, run_id, at, at, at, at + interval '50 milliseconds', 1, 1,
       case when number % 50 = 0 then 'cancelled' else 'succeeded' end::duly.outcome,
       case when number % 50 = 0 then 'cancelled' else 'succeeded' end::duly.state, 'queue-' || number % 20, 'greet'
  from (select number, at, duly.run_id(at, 'ended/' || number) as run_id
          from (select number, now() - interval '8 hours' * ((number % 1000000) / 1000000.0) as at
                  from generate_series($1::bigint, $2::bigint) as number) as made) as named
"""
DEAD = """
insert into duly.dead (run_id, job_id, scheduled_at, due_at, generation, tenant, queue, handler, attempt, priority, losses,
                       suspect, payload_stored, payload, buried_at, reason)
select run_id, run_id, at, at, 0, 1, 'queue-' || number % 20, 'fails', 3, 5, 0, false, false, '{}', at,
       'ConnectionError: host ' || number || ' refused'
  from (select number, at, duly.run_id(at, 'dead/' || number) as run_id
          from (select number, now() - interval '1 second' * number as at from generate_series(1, $1::integer) as number
               ) as made) as named
"""
FILTERS = (
    "",
    "name:job-12*",
    "name:job-777777",
    "state:paused",
    "queue:queue-7",
    "queue:queue-7 AND state:paused",
    "tag:tag-10",
)


GO = "path => { history.pushState(null, '', path); dispatchEvent(new PopStateEvent('popstate')) }"


class Looked(msgspec.Struct):
    """What one look at a screen took."""

    path: str
    requests: int
    server_ms: float
    rows: int
    shown_ms: float


class Grown(msgspec.Struct):
    """What a page holds, before and after it was read again so many times."""

    beats: int
    heap_before: int
    heap_after: int
    nodes_before: int
    nodes_after: int
    listeners_before: int
    listeners_after: int


async def fill(house: House, jobs: int, attempts: int, dead: int = 5_000) -> None:
    """Put jobs, and what has ended, into the database of a house; as much and as fast as it takes it."""
    url = embedded.attach(house.folder / ".duly")
    assert url is not None
    connection = await asyncpg.connect(url)
    try:
        for statement, number in ((JOBS, jobs), (ATTEMPTS, attempts)):
            for first in range(1, number + 1, LONG):
                last = min(number, first + LONG - 1)
                await connection.execute(statement, first, last, *([number] if statement is JOBS else []))
        await connection.execute(TIMERS)
        await connection.execute(DEAD, dead)
        await connection.execute("vacuum analyze")
    finally:
        await connection.close()


class Watched:
    """Counts what a page asks for."""

    def __init__(self, page: Page) -> None:
        self.asked: list[Request] = []
        self._last = time.monotonic()
        page.on("request", self._note)
        page.on("requestfinished", lambda _: self._touch())

    def _note(self, request: Request) -> None:
        if "/v1/" in request.url and request.resource_type in ("fetch", "xhr"):
            self.asked.append(request)
        self._touch()

    def _touch(self) -> None:
        self._last = time.monotonic()

    async def quiet(self) -> None:
        """Wait until nothing was asked for a while."""
        while time.monotonic() - self._last < QUIET_SECONDS:
            await asyncio.sleep(0.05)


async def look(visitor: Visitor, path: str) -> Looked:
    """Open a screen, and count what it took until it stood still."""
    page = visitor.page
    await visitor.go("/nothing")  # So that nothing of it is there yet.
    watched = Watched(page)
    began = time.monotonic()
    await page.evaluate(
        "path => { history.pushState(null, '', path); dispatchEvent(new PopStateEvent('popstate')) }", f"/ui{path}"
    )
    await page.locator("main :is(.card, .table, .group)").first.wait_for()
    shown = time.monotonic() - began
    await watched.quiet()
    # What is asked once more because something happened meanwhile is not of this look; another page of the same list is.
    asked = {re.sub(r"[?&]from=[^&]*", "", request.url): request for request in reversed(watched.asked)}
    times = [request.timing["responseEnd"] for request in asked.values() if request.timing["responseEnd"] > 0]
    rows = await page.locator("tbody tr, .group").count()
    return Looked(path, len(asked), round(max(times, default=0), 1), rows, round(shown * 1000, 1))


async def filtered(house: House, filters: Sequence[str], path: str = "/v1/jobs") -> dict[str, float]:
    """Ask for what fits, ten times each; the median in milliseconds."""
    found = {}
    for one in filters:
        elapsed = []
        for _ in range(10):
            began = time.monotonic()
            await house.ask("GET", path, filter=one, page_size=50)
            elapsed.append((time.monotonic() - began) * 1000)
        found[one] = round(statistics.median(elapsed), 1)
    return found


async def first_page(visitor: Visitor) -> tuple[int, float]:
    """Open the first page with a session and nothing kept: bytes of files, and milliseconds until it is of use."""
    page = visitor.page
    client = await page.context.new_cdp_session(page)
    await client.send("Network.enable")
    await client.send("Network.clearBrowserCache")
    await client.send("Network.setCacheDisabled", {"cacheDisabled": True})
    sizes: dict[str, int] = {}
    urls: dict[str, str] = {}
    client.on("Network.responseReceived", lambda told: urls.update({told["requestId"]: told["response"]["url"]}))
    client.on("Network.loadingFinished", lambda told: sizes.update({told["requestId"]: told["encodedDataLength"]}))
    began = time.monotonic()
    await page.goto(f"{visitor.house.url}/ui/overview")
    await page.get_by_label("Oldest age").wait_for()
    elapsed = (time.monotonic() - began) * 1000
    await client.detach()
    return sum(int(size) for number, size in sizes.items() if "/v1/" not in urls.get(number, "/v1/")), round(elapsed, 1)


async def started_on_screen(visitor: Visitor) -> float:
    """Let a run begin while its list is open; give the seconds from when it was due until it is on screen as running."""
    page = visitor.page
    await visitor.go("/runs?state=running&handler=takes_long")
    await page.get_by_text("No matching runs").wait_for()
    run_id = await visitor.house.submit("takes_long")
    await page.locator(f"a[href$='{run_id}']").wait_for()
    seen = time.time()
    run = await visitor.house.ask("GET", f"/v1/runs/{run_id}")
    await visitor.house.ask("POST", f"/v1/runs/{run_id}/cancel")
    return seen - datetime.fromisoformat(run["due_at"]).timestamp()


async def grown(visitor: Visitor, path: str, beats: int) -> Grown:
    """Let an open page be read again so many times; what it holds after a forced collection, before and after."""
    page = visitor.page
    await page.goto("about:blank")  # What is open would go on with the clock of before, or with none.
    await page.clock.install()
    await visitor.go(path)
    await page.locator("main :is(.card, .table)").first.wait_for()
    client = await page.context.new_cdp_session(page)
    await _beat(page, max(20, beats // 10))  # Whatever is made once is made by now.
    before = await _held(client)
    await _beat(page, beats)
    depends_on = await _held(client)
    await client.detach()
    return Grown(beats, *(value for pair in zip(before, depends_on, strict=True) for value in pair))


async def _beat(page: Page, beats: int) -> None:
    """Bring the page to the front again and again: each time it reads what it shows, a second of its own clock later."""
    for _ in range(beats):
        await page.evaluate("() => document.dispatchEvent(new Event('visibilitychange'))")
        await page.clock.run_for(1_000)
        await page.evaluate(
            "() => fetch('/v1/session').then(answer => answer.text())"
        )  # Behind what the screen asked for.


async def _held(client: CDPSession) -> tuple[int, int, int]:
    for _ in range(3):
        await client.send("HeapProfiler.collectGarbage")
    heap = await client.send("Runtime.getHeapUsage")
    counts = await client.send("Memory.getDOMCounters")
    return int(heap["usedSize"]), int(counts["nodes"]), int(counts["jsEventListeners"])


async def measure(jobs: int, attempts: int, beats: int) -> dict[str, Any]:
    """Measure all of it, and tell of each as it comes."""
    found: dict[str, Any] = {"jobs": jobs, "attempts": attempts}

    def tell(**figures: Any) -> None:
        found.update(figures)
        print(msgspec.json.encode(figures).decode(), file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory(prefix="duly-figures-") as folder:
        async with a_house(Path(folder)) as house, a_browser() as browser:
            began = time.monotonic()
            await fill(house, jobs, attempts)
            tell(filled_seconds=round(time.monotonic() - began, 1))
            tell(filters_ms=await filtered(house, FILTERS))
            visitor = await visiting(browser, house)
            await visitor.log_in()
            first = [await first_page(visitor) for _ in range(5)]
            tell(first_page_bytes=first[0][0], first_page_ms=statistics.median(elapsed for _, elapsed in first))
            looked = [[await look(visitor, path) for _ in range(3)] for path in LISTS]
            tell(screens=[msgspec.structs.asdict(min(some, key=lambda one: one.server_ms)) for some in looked])
            starts = [await started_on_screen(visitor) for _ in range(3)]
            tell(started_on_screen_seconds=round(statistics.median(starts), 2))
            paths = ("/overview?range=24h", "/jobs", "/runs")
            tell(grown=[msgspec.structs.asdict(await grown(visitor, path, beats)) for path in paths])
    return found


def main() -> None:
    """Measure, and print it."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--jobs", type=int, default=1_000_000)
    asked.add_argument("--attempts", type=int, default=10_000_000)
    asked.add_argument("--beats", type=int, default=5_000)
    given = asked.parse_args()
    found = asyncio.run(measure(given.jobs, given.attempts, given.beats))
    print(msgspec.json.format(msgspec.json.encode(found)).decode())


if __name__ == "__main__":
    main()
