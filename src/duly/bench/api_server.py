"""The API as it is measured, with a bare insert behind the same server to compare it with."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from litestar import Request, Response, post

from duly.api.app import App, served
from duly.api.auth.api_keys import Keys
from duly.api.dispatch import WAKE_PAUSE_SECONDS, Dispatcher
from duly.api.problems import Problems
from duly.api.server.listen import listen
from duly.api.server.server import Server
from duly.clock import Rng
from duly.log import Log
from duly.moves.admin.admit import Admission
from duly.store.connection.database import Database
from duly.store.connection.hints import Waker
from duly.store.connection.session import Sessions

CONNECTIONS_MAX = 8
_INSERT = "insert into duly_bench_baseline.bare (body) values ($1::text::jsonb)"


@asynccontextmanager
async def opened(url: str, port: int) -> AsyncIterator[Server]:
    """Give a server that is to be run."""
    async with (
        Database(url, size_max=CONNECTIONS_MAX, application="duly api") as database,
        Sessions(database, size_max=CONNECTIONS_MAX) as sessions,
    ):

        @post("/bare")
        async def bare(request: Request[Any, Any, Any]) -> Response[bytes]:
            body = await request.body()
            await database.execute(_INSERT, body.decode())
            return Response(body, status_code=202, media_type="application/json")

        dispatcher = Dispatcher(
            database,
            sessions,
            Keys(database),
            Admission(database),
            Waker(database, WAKE_PAUSE_SECONDS).wake,
            Log("api"),
        )
        app = App(
            [*served(dispatcher), bare],
            problems=Problems(Rng(), Log("api")),
            openapi_config=None,
            logging_config=None,
            request_max_body_size=None,
        )
        yield Server(app, listen("127.0.0.1", port))
