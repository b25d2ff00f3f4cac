"""The plans of the hot statements on the oldest PostgreSQL we support: the same tests, run again there."""

import inspect

import pytest

from tests.postgres import Postgres
from tests.store import test_aside_plans, test_plans

for module in (test_plans, test_aside_plans):
    for name, thing in vars(module).items():
        if name.startswith("test_") and inspect.getmodule(thing) is module:
            globals()[name] = thing
large, crowded = test_plans.large, test_aside_plans.crowded


@pytest.fixture(scope="session")
def postgres(postgres_15: Postgres) -> Postgres:
    """The server on which these tests run."""
    return postgres_15


@pytest.fixture(scope="session")
def template(template_15: str) -> str:
    """A migrated database there."""
    return template_15
