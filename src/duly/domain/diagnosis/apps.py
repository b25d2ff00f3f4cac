"""Conflicting apps: two of them offer one handler name on one queue, so a run may go to either.

An app is identified by its name, `App(name="shop")`, or else by the path it was loaded from, `module:app`. Workers of
one app, of any number and version, do not conflict.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import msgspec

from duly.domain.errors import InvalidOption
from duly.domain.jobs.job import check_name
from duly.domain.targets.target import check_handler, is_reserved
from duly.domain.triggers.english.phrases import listed

SEPARATOR = ":"
_SHOWN_MAX = 5


class Offer(msgspec.Struct, frozen=True):
    """The handlers that a live worker offers."""

    worker: str
    app: str | None
    queues: Sequence[str]
    handlers: Sequence[str]


class Clash(msgspec.Struct, frozen=True):
    """Handlers of one queue that several apps offer."""

    queue: str
    handlers: tuple[str, ...]
    apps: tuple[str, ...]
    workers: tuple[str, ...]

    @property
    def text(self) -> str:
        """Describe the conflict: handlers, queue and apps."""
        what = "handler" if len(self.handlers) == 1 else "handlers"
        return (
            f"apps {_few(self.apps)} have {what} {_few(self.handlers)} on queue {self.queue},"
            f" so a run goes to any of them (workers {_few(self.workers)})"
        )

    @property
    def remedy(self) -> str:
        """Describe how each run reaches the right app."""
        return (
            f'name the apps, as in App(name="shop"): their handlers are then called shop:{self.handlers[0]} and so on;'
            " or give one of them another name= or queue="
        )


def clashes(offers: Iterable[Offer]) -> list[Clash]:
    """Find the handlers that several apps offer on one queue, by queue."""
    workers: dict[tuple[str, str], dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for offer in offers:
        if offer.app is None:
            continue
        for handler in offer.handlers:
            if not is_reserved(handler):
                for queue in offer.queues:
                    workers[queue, handler][offer.app].add(offer.worker)
    shared: dict[tuple[str, tuple[str, ...]], tuple[list[str], set[str]]] = defaultdict(lambda: ([], set()))
    for (queue, handler), by_app in sorted(workers.items()):
        if len(by_app) > 1:
            handlers, names = shared[queue, tuple(sorted(by_app))]
            handlers.append(handler)
            names.update(*by_app.values())
    return [
        Clash(queue, tuple(handlers), apps, tuple(sorted(names))) for (queue, apps), (handlers, names) in shared.items()
    ]


def check_app_name(name: str) -> str:
    """Check the name of an app, which prefixes the names of its handlers. Raises InvalidOption."""
    if SEPARATOR in name:
        raise InvalidOption(
            f"the app's name {name!r} has a {SEPARATOR!r}, which separates it from its handlers; leave it out"
        )
    return check_handler(check_name(name, "the app's name"))


def _few(names: Sequence[str]) -> str:
    more = [f"{len(names) - _SHOWN_MAX} more"] if len(names) > _SHOWN_MAX else []
    return listed([*names[:_SHOWN_MAX], *more])
