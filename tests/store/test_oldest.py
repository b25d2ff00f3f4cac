"""The oldest PostgreSQL we support plans otherwise: plans, reads and what waits there, by the same tests as on the one we ship.

What moves runs is tried there, and through a pooler, by test_servers.py.
"""

import pytest

from tests.clock import ManualClock
from tests.conftest import Shared
from tests.kept import Kept
from tests.moves import test_dependencies, test_lines, test_pause, test_rates, test_unroutable
from tests.postgres import Postgres
from tests.store import test_list_plans, test_plans, test_runs, test_unroutable_plans, test_verify
from tests.store.gathered import gathered_from

PLANS = (test_plans, test_list_plans, test_unroutable_plans)
WAITING = (test_lines, test_rates, test_dependencies, test_pause, test_unroutable)
READS = (test_runs, test_verify)
globals().update(gathered_from(*PLANS, *WAITING, *READS))
large, chosen, crowded = test_plans.large, test_plans.chosen, test_unroutable_plans.crowded


@pytest.fixture(scope="session")
def postgres(postgres_15: Postgres) -> Postgres:
    """The server on which databases of their own are made."""
    return postgres_15


@pytest.fixture(scope="session")
def template(template_15: str) -> str:
    """What they are copies of."""
    return template_15


@pytest.fixture
async def database(oldest: Shared, kept_on_oldest: Kept, clock: ManualClock):
    """An open, empty database there."""
    oldest.empty()
    async with kept_on_oldest.lent(clock) as opened:
        clock.moves(opened)
        yield opened
