"""`duly listen`: a receiver to try webhooks with. It shows each one, verified or why not, and answers as configured."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from duly.api.server.listen import address_of, listen
from duly.cli.render.say import say, say_json
from duly.cli.up.stopping import stop_on_signals
from duly.clock import SystemClock, host_now
from duly.domain.errors import InvalidOption
from duly.domain.targets.webhook_secret import read_secret
from duly.webhooks import InvalidSignature, verify
from duly.worker import loop

if TYPE_CHECKING:
    from aiohttp import web

_BODY_BYTES_MAX = 1 << 20
_SHOWN_CHARACTERS_MAX = 4_000
_INDENT = " " * 14
_SHOWN = (
    "X-Run-Id",
    "X-Job-Id",
    "X-Attempt",
    "X-Fence",
    "X-Scheduled-At",
    "X-Request-ID",
    "traceparent",
    "Content-Type",
)


class Answers(msgspec.Struct, frozen=True):
    """The responses: `status`, but first, `fail_first` times for each run, a 500; and each time after `delay` seconds."""

    status: int
    fail_first: int
    delay: float


class Seen(msgspec.Struct, frozen=True):
    """One webhook that came; `verified` is None when there is no secret to check with."""

    at: str
    method: str
    path: str
    verified: bool | None
    why: str
    headers: Mapping[str, str]
    body: str
    answered: int


@click.command(name="listen")
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen.")
@click.option("--port", type=click.IntRange(0, 65_535), default=7400, show_default=True, help="0 takes a free one.")
@click.option("--secret", "secrets", multiple=True, metavar="whsec_…", help="Check signatures with it; repeatable.")
@click.option(
    "--secret-file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="File with one secret per line, hidden from other users of this machine.",
)
@click.option("--status", type=click.IntRange(200, 599), default=200, show_default=True, help="Response status.")
@click.option(
    "--fail-first", type=click.IntRange(0), default=0, help="Respond with 500 to the first attempts of each run."
)
@click.option("--delay", type=click.FloatRange(0), default=0.0, metavar="SECONDS", help="Delay before each response.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each webhook.")
def listen_(
    host: str,
    port: int,
    secrets: Sequence[str],
    secret_file: Path | None,
    status: int,
    fail_first: int,
    delay: float,
    as_json: bool,
) -> None:
    """Receive webhooks here and show each one: whether it is verified or why not, the headers that matter, the body.

    With --status 500, or --fail-first 2, see how they are retried. Ctrl-C ends it.
    """
    keys = [read_secret(secret) for secret in (*secrets, *_read_file(secret_file))]
    with listen(host, port, plain_http=True, command="duly listen") as listener:
        loop.run(Listener(Answers(status, fail_first, delay), keys, as_json=as_json).run(listener))


class Listener:
    """Receives, shows and answers."""

    def __init__(self, answers: Answers, keys: Sequence[bytes], *, as_json: bool) -> None:
        self._answers = answers
        self._keys = keys
        self._as_json = as_json
        self._clock = SystemClock()
        self._failed: Counter[str] = Counter()

    async def run(self, listener: socket.socket) -> None:
        """Serve until asked to stop."""
        from aiohttp import web

        stopping, loop = asyncio.Event(), asyncio.get_running_loop()
        stop_on_signals(lambda: loop.call_soon_threadsafe(stopping.set))
        app = web.Application(client_max_size=_BODY_BYTES_MAX)
        app.router.add_route("*", "/{path:.*}", self._receive)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
        await runner.setup()
        try:
            await web.SockSite(runner, listener).start()
            self._introduce(address_of(listener))
            await stopping.wait()
        finally:
            await runner.cleanup()

    def _introduce(self, address: str) -> None:
        if self._as_json:
            say_json(msgspec.json.encode({"listening": address}))
            return
        first = f" after {self._answers.fail_first} × 500 for each run" if self._answers.fail_first else ""
        checks = "checks signatures" if self._keys else "checks no signature: give --secret whsec_… of the destination"
        say(f"listening on {address}   answers {self._answers.status}{first}   {checks}. Ctrl-C ends it.")

    async def _receive(self, request: web.Request) -> web.Response:
        from aiohttp import web

        at, body = host_now().isoformat(timespec="milliseconds"), await request.read()
        verified, why = self._judge(body, request.headers)
        status = self._status_for(request.headers.get("webhook-id", ""))
        headers = {name: plain(request.headers[name]) for name in _SHOWN if name in request.headers}
        text = plain(body.decode(errors="replace"))
        seen = Seen(at, request.method, plain(request.path), verified, why, headers, text, status)
        self._show(seen)
        await self._clock.sleep(self._answers.delay)
        return web.json_response({"received": verified is not False}, status=status)

    def _judge(self, body: bytes, headers: Mapping[str, str]) -> tuple[bool | None, str]:
        if not self._keys:
            return None, "not checked, without a secret"
        try:
            verify(body, headers, self._keys)
        except InvalidSignature as error:
            return False, plain(str(error))
        return True, "verified"

    def _status_for(self, run_id: str) -> int:
        if self._failed[run_id] >= self._answers.fail_first:
            return self._answers.status
        self._failed[run_id] += 1
        return 500

    def _show(self, seen: Seen) -> None:
        if self._as_json:
            say_json(msgspec.json.encode(seen))
            return
        word = seen.why if seen.verified is not False else f"NOT VERIFIED: {seen.why}"
        say(f"{seen.at[11:23]}  {seen.method} {seen.path}   {word}   answered {seen.answered}")
        headers = "   ".join(f"{name}: {value}" for name, value in seen.headers.items())
        for line in (headers, seen.body[:_SHOWN_CHARACTERS_MAX]):
            if line:
                say(f"{_INDENT}{line}")


def plain(text: str) -> str:
    """Write foreign text so that it cannot control the terminal."""
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)


def _read_file(path: Path | None) -> list[str]:
    if path is None:
        return []
    secrets = path.read_text(encoding="utf-8").split()
    if not secrets:
        raise InvalidOption(f"secret file {path} is empty; write a secret, whsec_…, on each line")
    return secrets
