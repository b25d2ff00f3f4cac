"""HEAD, wherever there is GET: the same answer without its body, so that what watches us need not read what it does not want."""

from __future__ import annotations

from typing import Any

from litestar import Litestar
from litestar.types import Message, Send


class App(Litestar):
    """An application that is asked for what GET would answer when it is asked for the head of it."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Lead a request in."""
        if scope["type"] == "http" and scope["method"] == "HEAD":
            asked: Any = {**scope, "method": "GET"}
            await super().__call__(asked, receive, _without_body(send))
        else:
            await super().__call__(scope, receive, send)


def _without_body(send: Send) -> Send:
    """Pass the head of an answer on, and end it there: what streams without end is told that nobody listens any more."""

    async def passed_on(message: Message) -> None:
        if message["type"] == "http.response.start":
            await send(message)
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    return passed_on
