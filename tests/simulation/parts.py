"""All parts, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.budgets import Budgets
from tests.simulation.dependents import Followers
from tests.simulation.expiry import Expiries
from tests.simulation.floods import Floods
from tests.simulation.graphs import Graphs
from tests.simulation.keys import Lines, Slots, Turns
from tests.simulation.letters import Letters
from tests.simulation.limits import Limits
from tests.simulation.plan import PARTS
from tests.simulation.receivers import Receivers
from tests.simulation.unroutable import Strangers

if TYPE_CHECKING:
    from tests.simulation.part import Part
    from tests.simulation.world import World

_KINDS = (Lines, Slots, Turns, Limits, Expiries, Floods, Graphs, Followers, Letters, Receivers, Budgets, Strangers)
_BY_NAME: dict[str, type[Part]] = {kind.name: kind for kind in _KINDS}
COUNTED = tuple(what for kind in _KINDS for what in kind.counted)
assert tuple(_BY_NAME) == PARTS


def parts_of(world: World) -> list[Part]:
    """Make the parts of a plan."""
    return [_BY_NAME[name](world) for name in world.plan.parts]
