"""What holds for every request before it is routed: HEAD is served wherever there is GET, and what is ambiguous is refused.

A request that says twice what may be said once could be read in two ways, by a proxy in front and by us; and PostgreSQL keeps no
text with NUL in it. Both are refused here, so that no operation has to think of them.
"""

from __future__ import annotations

from typing import Any

from litestar import Litestar, Request
from litestar.types import Message, Send

from duly.api.problems import Problems

_SAID_ONCE = (b"host", b"authorization", b"content-length")


class App(Litestar):
    """An application that is asked for what GET would answer when it is asked for the head of it."""

    def __init__(self, *arguments: Any, problems: Problems, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._problems = problems

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Lead a request in."""
        if scope["type"] == "http" and scope["method"] == "HEAD":
            scope, send = {**scope, "method": "GET"}, _without_body(send)
        if scope["type"] == "http" and (fault := fault_of(scope)) is not None:
            request: Request[Any, Any, Any] = Request(scope, receive, send)
            answer = self._problems.ambiguous(request, *fault).to_asgi_response(self, request)
            await answer(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)


def fault_of(scope: Any) -> tuple[str, str] | None:
    """Say as which problem a request is refused, and in words; None if it may go on."""
    names = [name for name, _ in scope["headers"]]
    for name in _SAID_ONCE:
        if names.count(name) > 1:
            return "invalid_header", f"The header {name.decode()} is there {names.count(name)} times; send it once."
    if b"content-length" in names and b"transfer-encoding" in names:
        return "invalid_header", "Content-Length and Transfer-Encoding are both there; send one of them."
    if b"%00" in scope["query_string"]:
        return "invalid_query", "The query contains NUL."
    if "\0" in scope["path"]:
        return "malformed_request", "The path contains NUL."
    return None


def _without_body(send: Send) -> Send:
    """Pass the head of an answer on, and end it there: what streams without end is told that nobody listens any more."""

    async def passed_on(message: Message) -> None:
        if message["type"] == "http.response.start":
            await send(message)
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    return passed_on
