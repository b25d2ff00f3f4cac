"""One application for all tests: to build it takes a third of a second, and what belongs to one test can be put behind it."""

from typing import Any, cast

import msgspec
from litestar import Litestar

from duly.api.app import create
from duly.api.dispatch import Dispatcher
from duly.api.health import Vitals
from duly.api.metrics.collector import Metrics
from duly.log import Log


class Place:
    """Where in the application something stands that is another for each test."""

    def __init__(self) -> None:
        self.now: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.now, name)


class Entrance(Place):
    """The place of the dispatcher, at which there is one for those who log in, if people can."""

    def __init__(self) -> None:
        super().__init__()
        self._logins = Place()
        self.auth = Authenticating(self._logins)

    def lead_to(self, door: Dispatcher) -> None:
        """Let another dispatcher stand here."""
        self.now, self.auth.now, self._logins.now = door, door.auth, door.auth.logins


class Authenticating(Place):
    """The place of the authentication."""

    def __init__(self, logins: Place) -> None:
        super().__init__()
        self._logins = logins

    @property
    def logins(self) -> Place | None:
        """The place of those who log in."""
        return None if self._logins.now is None else self._logins


class Counting(Place):
    """The place of the metrics, which remembers what of the door is written out with them."""

    def __init__(self, door: Place) -> None:
        super().__init__()
        self._door = door
        self._names: list[str] = []

    def add(self, collector: object) -> None:
        """Hear from the application what it wants written out."""
        self._names += [name for name, value in parts_of(self._door.now).items() if value is collector]
        self.now.add(collector)

    def add_all(self) -> None:
        """Let the same of another door be written out."""
        for name in self._names:
            self.now.add(parts_of(self._door.now)[name])


def parts_of(door: Dispatcher) -> dict[str, Any]:
    """Give the parts of a dispatcher, and the services that it hands to operations."""
    return {**vars(door), **msgspec.structs.asdict(door.services)}


class Application:
    """Built when it is first wanted: for doors at which people can log in, or for those at which they cannot."""

    def __init__(self) -> None:
        self._vitals, self._door = Place(), Entrance()
        self._metrics = Counting(self._door)
        self._built: Litestar | None = None

    def over(self, vitals: Vitals, door: Dispatcher) -> Litestar:
        """Give the application as it is over these parts, until it is asked for others."""
        self._vitals.now, self._metrics.now = vitals, Metrics(vitals.database, Log("test"), every=0)
        self._door.lead_to(door)
        if self._built is None:
            vitals, metrics, door = cast(
                "tuple[Vitals, Metrics, Dispatcher]", (self._vitals, self._metrics, self._door)
            )
            self._built = create(vitals, metrics, Log("test"), door)
        else:
            self._metrics.add_all()
        return self._built
