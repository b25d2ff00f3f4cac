"""The pytest plugin: the fixture `duly_env`, an environment for the app of this project."""

from collections.abc import Iterator

import pytest

TYPE_CHECKING = False

if TYPE_CHECKING:
    from duly.sdk.app import App
    from duly.testing.environments import Environment


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let a project name its app."""
    parser.addini("duly_app", "the Duly app that the fixture duly_env tests, as module:name")


@pytest.fixture
def duly_app(request: pytest.FixtureRequest) -> "App":
    """The app under test; a project may define its own fixture of this name."""
    path = str(request.config.getini("duly_app"))
    if not path:
        pytest.fail(
            "duly_env does not know your app: define a fixture `duly_app` that returns it,"
            ' or set duly_app = "module:name" in pytest\'s settings',
            pytrace=False,
        )
    from duly.worker.loading import load_app

    app: App = load_app(path)
    return app


@pytest.fixture
def duly_env(duly_app: "App") -> Iterator["Environment"]:
    """The app on a scratch database, with a clock that `await duly_env.advance("P1D")` moves."""
    from duly.testing.environments import environment

    with environment(duly_app) as opened:
        yield opened
