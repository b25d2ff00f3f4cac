"""The container engine of the tests, one for each test process."""

import pytest

from tests.worker.targets.engine import an_engine


@pytest.fixture(scope="session")
def engine():
    """A container engine that has one image."""
    with an_engine() as ready:
        yield ready
