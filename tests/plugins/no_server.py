"""Add `--no-server`: leave out every test whose fixtures start PostgreSQL, for a loop of seconds."""

import pytest

SERVERS = {"postgres", "postgres_15"}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    parser.addoption("--no-server", action="store_true", help="leave out tests that need PostgreSQL")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect tests that need a server, directly or through another fixture."""
    if not config.getoption("--no-server"):
        return
    needs = [item for item in items if SERVERS.intersection(getattr(item, "fixturenames", ()))]
    config.hook.pytest_deselected(items=needs)
    left = set(needs)
    items[:] = [item for item in items if item not in left]
