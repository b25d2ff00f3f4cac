"""Pictures of the screens: `python -m tests.dashboard.pictures` writes all that are in docs/screenshots anew."""

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, Page

from tests.dashboard.conftest import ROOT, House, a_browser, a_house, visiting
from tests.dashboard.figures import Watched
from tests.dashboard.test_places import change
from tests.dashboard.test_workflows import NIGHT, node

PLACE = ROOT / "docs" / "screenshots"
WORDS = ("invoices", "newsletter", "clean-up", "exchange-rates", "backup", "thumbnails", "reports", "reminders")
ERRORS = (
    "ConnectionError: 10.0.0.{} refused the connection",
    "KeyError: 'customer {}'",
    "TimeoutError: no answer in {} s",
)
MORNING = {"cron": "0 4 * * *"}
BUSY = {
    "heartbeat": {"type": "interval", "every": "PT10S"},
    "sync-stock": {"type": "cron", "expr": "*/4 * * * *"},
    "poll-mailbox": {"type": "cron", "expr": "*/7 * * * *"},
    "collect-metrics": {"type": "cron", "expr": "10-50/5 * * * *"},
}
PHONE = {"width": 390, "height": 844}
WHOLE = ("overview",)


async def furnish(house: House) -> dict[str, str]:
    """Make something to look at."""
    jobs = [await a_nightly(house, number, word) for number, word in enumerate(WORDS)]
    for name, trigger in BUSY.items():
        await house.schedule(name, schedule={"trigger": trigger}, tags=["ops"])
    dead = [await house.submit("fails", why=ERRORS[number % 3].format(number)) for number in range(24)]
    running = [await house.submit("takes_long") for _ in range(2)]
    waiting = {"target": {"type": "function", "handler": "greet"}, "queue": "mail"}
    dependent = (await house.ask("POST", "/v1/jobs", {**waiting, "depends_on": running[:1]}))["job_id"]
    for _ in range(5):
        await house.ask("POST", "/v1/jobs", waiting)
    await house.ask("PUT", "/v1/limits", {"queue": "default", "slots": 20})
    await house.until(dead[-1], "dead")
    return {
        "job": jobs[-1],
        "dependent": dependent,
        "running": running[1],
        "workflow": await workflows(house),
        **await slots(house),
    }


async def a_nightly(house: House, number: int, name: str) -> str:
    """Make a job that has run some times."""
    trigger = {"trigger": {"type": "cron", "expr": f"{number * 7} {number + 2} * * *", "tz": "Europe/Berlin"}}
    job_id = await house.schedule(name, tags=["nightly"] if number % 2 else [], schedule=trigger)
    for _ in range(3 + number):
        await house.ask("POST", f"/v1/jobs/{job_id}/trigger", {})
    return job_id


async def workflows(house: House) -> str:
    """Start some workflows; one has a map, added nodes, each condition, a node that fails and one under way."""
    for name in ("import", "month-end"):
        await house.ask(
            "POST", "/v1/workflows", {"name": name, "nodes": {"first": node(), "then": node("greet", "first")}}
        )
    nodes = {**NIGHT, "upload": node("takes_long", "plan")}
    told = await house.ask("POST", "/v1/workflows", {"name": "night", "nodes": nodes, "tags": ["money"]})
    return str(told["workflow_id"])


async def slots(house: House) -> dict[str, str]:
    """Make destinations, one of which fails, files, one of which was changed by hand, tenants, keys and what holds runs back."""
    await house.ask("POST", "/v1/destinations", {"url": "https://hooks.partner.example/in"})
    hook = {"target": {"type": "webhook", "url": "http://127.0.0.1:9/in"}, "retry": {"max_attempts": 3, "base": "PT1S"}}
    for _ in range(7):
        await house.ask("POST", "/v1/jobs", hook)
    made = await applied(house, "billing.yaml", "report", "clean-up")
    await change(house, made["report"], priority=1)
    await applied(house, "reports.yaml", "weekly")
    north = (await house.ask("POST", "/v1/tenants", {"name": "north"}))["tenant"]
    await house.ask("POST", "/v1/keys", {"name": "wall display", "scopes": ["jobs:read"]})
    await house.ask("POST", "/v1/keys", {"name": "north admin", "scopes": ["admin"], "tenant": north})
    await house.ask("PUT", "/v1/concurrency-keys/mail-provider", {"rate": {"limit": 100, "per": "PT1M"}})
    listed = (await house.ask("GET", "/v1/destinations"))["items"]
    return {"destination": next(one["destination_id"] for one in listed if "127.0.0.1" in one["origin"])}


async def applied(house: House, source: str, *names: str) -> dict[str, str]:
    """Apply a file with some jobs. Gives their ids by name."""
    jobs = {f"{source.partition('.')[0]}-{name}": {"target": "greet", "schedule": MORNING} for name in names}
    told = await house.ask("POST", "/v1/jobs:apply", {"source": source, "jobs": jobs})
    return {done["name"].partition("-")[2]: done["job_id"] for done in told["done"]}


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
        await page.locator("[aria-label^='Held runs of']").first.click()
        await watched.quiet()
    await page.screenshot(path=PLACE / f"{name}.png", full_page=name.startswith(WHOLE))


async def look(browser: Browser, house: House, shots: dict[str, str], ending: str = "", **context: Any) -> None:
    """Take pictures of some screens."""
    visitor = await visiting(browser, house, timezone_id="Europe/Berlin", **context)
    await visitor.come_in()
    for name, path in shots.items():
        await picture(visitor.page, house, path, f"{name}{ending}")
    await visitor.page.context.close()


async def main() -> None:
    """Take all of them."""
    with tempfile.TemporaryDirectory(prefix="duly-pictures-") as folder:
        async with a_house(Path(folder)) as house, a_browser() as browser:
            made = await furnish(house)
            shots = {
                "overview": "/overview?range=15m",
                "jobs": "/jobs?sort=name",
                "job": f"/jobs/{made['job']}",
                "new-job": "/jobs/new",
                "runs": "/runs",
                "run": f"/runs/{made['running']}",
                "dependencies": f"/runs/{made['dependent']}",
                "workflows": "/workflows",
                "workflow": f"/workflows/{made['workflow']}",
                "dead": "/dead",
                "queues": "/queues",
                "destinations": "/destinations",
                "destination": f"/destinations/{made['destination']}",
                "files": "/files",
                "file": "/files/billing.yaml",
                "keys": "/keys",
                "audit": "/audit",
                "system": "/system",
            }
            shots["overview"] = shots.pop("overview")  # The last of them, when there is more to see.
            dark = {**shots, "workflow": f"{shots['workflow']}?node=broken"}
            await look(browser, house, dark, "-dark", color_scheme="dark")
            await look(browser, house, shots, color_scheme="light")
            small = {name: shots[name] for name in ("overview", "jobs", "run", "workflow", "queues", "destination")}
            await look(browser, house, small, "-phone", viewport=PHONE)


if __name__ == "__main__":
    asyncio.run(main())
