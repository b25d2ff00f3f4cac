"""A workflow of a file, held against the app whose handlers it names, before anything is sent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from duly.domain.errors import Refused
from duly.domain.problems import Problem
from duly.domain.targets.target import is_reserved
from duly.domain.workflows.references import has_references
from duly.domain.workflows.workflow import Node


def problems_with(app: Any, node: Node) -> Iterator[Problem]:
    """Say what the app does not know of a node: its handler, its queue, its arguments."""
    shot, path = node.submission, ("nodes", node.name)
    if is_reserved(shot.handler):
        return
    try:
        handler = app.registry[shot.handler]
    except Refused as error:
        yield Problem((*path, "target"), str(error))
        return
    try:
        app.check_queue(shot.queue)
    except Refused as error:
        yield Problem((*path, "queue"), str(error))
    try:
        handler.encode_open((), msgspec.json.decode(shot.payload), _set_apart)
    except Refused as error:
        yield Problem((*path, "payload"), str(error))


def _set_apart(value: Any) -> Any:
    """Give another object for what is not known until the node runs, which is how that is told from what is checked."""
    is_open = isinstance(value, dict | list) and has_references(msgspec.json.encode(value).decode())
    return value.copy() if is_open else value
