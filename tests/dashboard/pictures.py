"""Pictures of the lists for the documentation: `python -m tests.dashboard.pictures` writes them into docs/screenshots anew."""

import asyncio
import tempfile
from pathlib import Path

from playwright.async_api import Page

from tests.dashboard.conftest import ROOT, House, a_browser, a_house, visiting
from tests.dashboard.figures import Watched

PLACE = ROOT / "docs" / "screenshots"
WORDS = ("invoices", "newsletter", "clean-up", "exchange-rates", "backup", "thumbnails", "reports", "reminders")
ERRORS = (
    "ConnectionError: 10.0.0.{} refused the connection",
    "KeyError: 'customer {}'",
    "TimeoutError: no answer in {} s",
)


async def furnish(house: House) -> dict[str, str]:
    """Make something to look at."""
    jobs = [await a_nightly(house, number, word) for number, word in enumerate(WORDS)]
    dead = [await house.submit("fails", why=ERRORS[number % 3].format(number)) for number in range(24)]
    running = [await house.submit("takes_long") for _ in range(2)]
    waiting = {"target": {"type": "function", "handler": "greet"}, "queue": "mail"}
    follows = (await house.ask("POST", "/v1/jobs", {**waiting, "after": running[:1]}))["job_id"]
    for _ in range(5):
        await house.ask("POST", "/v1/jobs", waiting)
    await house.ask("PUT", "/v1/limits", {"queue": "default", "places": 20})
    await house.until(dead[-1], "dead")
    return {"job": jobs[-1], "follows": follows}


async def a_nightly(house: House, number: int, name: str) -> str:
    """Make a job that has run some times."""
    trigger = {"trigger": {"type": "cron", "expr": f"{number * 7} {number + 2} * * *", "tz": "Europe/Berlin"}}
    job_id = await house.schedule(name, tags=["nightly"] if number % 2 else [], schedule=trigger)
    for _ in range(3 + number):
        await house.ask("POST", f"/v1/jobs/{job_id}/trigger", {})
    return job_id


async def picture(page: Page, house: House, path: str, name: str) -> None:
    """Open a screen, wait until it stands still, and keep what is seen."""
    watched = Watched(page)
    await page.goto(f"{house.url}/ui{path}")
    await page.locator("main :is(.card, .table)").first.wait_for()
    await watched.quiet()
    if name.startswith("jobs"):
        for row in (1, 3, 4):
            await page.locator("[data-select]").nth(row).check()
    if name.startswith("queues"):
        await page.locator("[aria-label^='What ']").first.click()
        await watched.quiet()
    await page.screenshot(path=PLACE / f"{name}.png", full_page=name.startswith("overview"))


async def main() -> None:
    """Take all of them."""
    with tempfile.TemporaryDirectory(prefix="duly-pictures-") as folder:
        async with a_house(Path(folder)) as house, a_browser() as browser:
            made = await furnish(house)
            shots = {
                "overview": "/overview?reach=15m",
                "jobs": "/jobs?sort=name",
                "job": f"/jobs/{made['job']}",
                "runs": "/runs",
                "run": f"/runs/{made['follows']}",
                "dead": "/dead",
                "queues": "/queues",
            }
            for scheme in ("light", "dark"):
                visitor = await visiting(browser, house, color_scheme=scheme)
                await visitor.log_in()
                for name, path in shots.items():
                    await picture(visitor.page, house, path, name if scheme == "light" else f"{name}-dark")
                await visitor.page.context.close()
            visitor = await visiting(browser, house, viewport={"width": 390, "height": 844})
            await visitor.log_in()
            for name in ("overview", "jobs", "queues"):
                await picture(visitor.page, house, shots[name], f"{name}-phone")
            await visitor.page.context.close()


if __name__ == "__main__":
    asyncio.run(main())
