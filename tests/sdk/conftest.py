"""An app on a database of its own."""

import pytest

from duly import App, Run


@pytest.fixture
async def app(database_url):
    """An app with a few handlers."""
    async with App(database_url) as app:

        @app.handler
        async def greet(name: str, times: int = 1) -> str:
            return f"hello {name}" * times

        @app.handler(queue="mail")
        def send(run: Run, customer: int, to: str) -> dict[str, int]:
            return {"customer": customer}

        @app.handler
        def tick() -> None:
            pass

        yield app
        app.close_sync()


@pytest.fixture
def greet(app):
    """An async handler."""
    return app["greet"]


@pytest.fixture
def send(app):
    """A plain handler that takes the run."""
    return app["send"]


@pytest.fixture
def tick(app):
    """A handler without arguments."""
    return app["tick"]
