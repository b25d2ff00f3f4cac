"""A real Duly in a process of its own, and a real browser in front of it."""

import asyncio
import os
import re
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from playwright.async_api import Browser, Page, async_playwright, expect

from duly.dashboard.pages import STATIC

CHROMIUM = Path("/usr/bin/chromium")
FLAGS = ["--no-sandbox", "--disable-quic", "--disable-background-networking"]
ROOT = Path(__file__).parents[2]
START_SECONDS = 60.0
TRIES_MAX = 3
# Generous, because everything waits on two busy cores; what takes long fails only where nothing comes at all.
WAIT_SECONDS = 20.0
expect.set_options(timeout=WAIT_SECONDS * 1000)


class House:
    """Everything of `duly up`, and a key that may do all."""

    def __init__(self, url: str, key: str, folder: Path) -> None:
        self.url = url
        self.key = key
        self.folder = folder
        self._client = httpx.AsyncClient(base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=20)

    async def ask(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        """Ask the API, as a program does: what finds no database in time asks again, under the same key."""
        tries = 0
        headers = {"Idempotency-Key": uuid4().hex} if method == "POST" and not path.startswith("/v1/keys") else {}
        answer = await self._client.request(method, path, json=body, params=query, headers=headers)
        while answer.status_code == httpx.codes.SERVICE_UNAVAILABLE and (tries := tries + 1) < TRIES_MAX:
            await asyncio.sleep(float(answer.headers["Retry-After"]))
            answer = await self._client.request(method, path, json=body, params=query, headers=headers)
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    async def submit(self, handler: str, **payload: Any) -> str:
        """Let a handler run once, and give the run."""
        job = {"target": {"type": "function", "handler": handler}, "payload": payload}
        return str((await self.ask("POST", "/v1/jobs", job))["job_id"])

    async def schedule(self, name: str, handler: str = "greet", **more: Any) -> str:
        """Make a job that fires each morning."""
        trigger = {"trigger": {"type": "cron", "expr": "0 4 * * *"}}
        job = {"name": name, "target": {"type": "function", "handler": handler}, "schedule": trigger, **more}
        return str((await self.ask("POST", "/v1/jobs", job))["job_id"])

    async def state(self, run_id: str) -> str:
        """Say how a run stands."""
        return str((await self.ask("GET", f"/v1/runs/{run_id}"))["state"])

    async def until(self, run_id: str, *states: str) -> None:
        """Wait until a run is in one of these states."""
        await eventually(lambda: self._is_in(run_id, states))

    async def _is_in(self, run_id: str, states: tuple[str, ...]) -> bool:
        return await self.state(run_id) in states


async def eventually(pauses: Callable[[], Awaitable[bool]], seconds: float = WAIT_SECONDS) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + seconds
    while not await pauses():
        assert time.monotonic() < deadline, "it never came to hold"
        await asyncio.sleep(0.05)


@pytest.fixture(scope="session")
async def house(tmp_path_factory):
    """`duly up`, with an app of ours."""
    if not CHROMIUM.exists():
        pytest.skip("no Chromium; scripts/system-packages installs it")
    if not STATIC.joinpath("index.html").is_file():
        pytest.skip("the dashboard is not built; make dashboard")
    async with a_house(tmp_path_factory.mktemp("house")) as opened:
        yield opened


@asynccontextmanager
async def a_house(folder: Path) -> AsyncIterator[House]:
    """Run `duly up` in a folder."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DULY_")}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "duly", "up", "--port", "0", "--no-demo", "--app", "tests.dashboard.shop:app"),
        cwd=folder,
        env={**kept, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        yield await asyncio.wait_for(_opened(process, folder), START_SECONDS)
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGINT)
            await asyncio.wait_for(process.wait(), 30)


async def _opened(process: asyncio.subprocess.Process, folder: Path) -> House:
    assert process.stdout is not None
    text = ""
    while "ready in" not in text:
        line = (await process.stdout.readline()).decode()
        assert line, f"it ended before it was ready: {text}"
        text += line
    url, key = re.search(r"http://127\.0\.0\.1:\d+", text), re.search(r"key\s+in (\S+)", text)
    assert url is not None
    assert key is not None
    return House(url[0], (folder / key[1]).read_text().strip(), folder)


@pytest.fixture(scope="session")
async def browser(house):
    """A browser."""
    async with a_browser() as opened:
        yield opened


@asynccontextmanager
async def a_browser() -> AsyncIterator[Browser]:
    """Open a browser."""
    async with async_playwright() as playwright:
        opened = await playwright.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        yield opened
        await opened.close()


class Visitor:
    """Somebody in front of the browser; whatever the page complains of is kept."""

    def __init__(self, page: Page, house: House) -> None:
        self.page = page
        self.house = house
        self.complaints: list[str] = []
        self.may_be_refused = False  # The browser notes each answer that is no success.
        page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        page.on("console", lambda message: self._hear(message.type, message.text))
        page.on("dialog", lambda dialog: self.complaints.append(f"dialog: {dialog.message}"))

    def _hear(self, kind: str, text: str) -> None:
        # That nobody is logged in yet, and that a key opens nothing, is told by 401.
        is_refusal = "the server responded with a status of 4" in text and (self.may_be_refused or "401" in text)
        if kind == "error" and not is_refusal:
            self.complaints.append(f"console: {text}")

    async def log_in(self, key: str | None = None) -> None:
        """Log in with a key, and wait for the first screen."""
        await self.page.goto(self.house.url + "/")
        await self.page.get_by_label("API key").fill(key or self.house.key)
        await self.page.get_by_role("button", name="Log in").click()
        await self.page.get_by_role("navigation", name="Screens").wait_for()

    async def come_in(self) -> None:
        """Have a session that was begun before; no screen is open yet."""
        answer = await self.page.context.request.post(
            f"{self.house.url}/v1/session", data={"key": self.house.key}, headers={"Origin": self.house.url}
        )
        assert answer.ok, await answer.text()

    async def go(self, path: str) -> None:
        """Open a screen by its link."""
        await self.page.goto(f"{self.house.url}/ui{path}")
        await self.page.locator("main h1").first.wait_for()


async def visiting(browser: Browser, house: House, **context: Any) -> Visitor:
    """Let somebody come who has not logged in."""
    opened = await browser.new_context(viewport=context.pop("viewport", {"width": 1280, "height": 900}), **context)
    opened.set_default_timeout(WAIT_SECONDS * 1000)
    return Visitor(await opened.new_page(), house)


@pytest.fixture
async def stranger(browser, house):
    """Somebody who has not logged in."""
    visitor = await visiting(browser, house)
    yield visitor
    await visitor.page.context.close()
    assert visitor.complaints == []


@pytest.fixture(scope="session")
async def guest(browser, house):
    """Somebody who has come in once for many tests: whoever is new to a browser fetches and compiles every page again."""
    visitor = await visiting(browser, house)
    await visitor.come_in()
    yield visitor
    await visitor.page.context.close()


@pytest.fixture
async def visitor(guest):
    """Somebody who has come in before, may do all, and has a page of one's own, on which no screen is open yet.

    What the browser remembers is shared: who logs out, or chooses how things look, is a `stranger`.
    """
    visitor = Visitor(await guest.page.context.new_page(), guest.house)
    yield visitor
    await visitor.page.close()
    assert visitor.complaints == []
