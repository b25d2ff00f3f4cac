"""The application as tools from outside see it, with something of everything in it."""

import pytest

from tests.api.contract.served import Served


@pytest.fixture(scope="module")
def served(postgres):
    """The application on a socket, over a database with the real time."""
    postgres.create_database("contract")
    opened = Served(postgres.url("contract"))
    opened.start()
    yield opened
    opened.stop()
    postgres.drop_database("contract")
