"""A server for simulations in this process."""

import pytest

from tests.simulation.server import Server, scratch_servers


@pytest.fixture(scope="package")
def simulated_server(tmp_path_factory):
    """A database for simulations, one after another."""
    with scratch_servers(tmp_path_factory.mktemp("simulation") / "data", 1) as [url]:
        server = Server(url)
        yield server
        server.close()
