"""A workflow of a file, held against the app whose handlers it names, before anything is sent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from duly.domain.errors import Refused
from duly.domain.problems import InvalidManifest, Places, Problem
from duly.domain.references import has_references
from duly.domain.target import is_reserved
from duly.domain.workflow import Node, Workflow


def check_with_app(workflow: Workflow, app: Any, places: Places, name: str) -> None:
    """Refuse nodes whose handler, queue or arguments the app does not know, all at once. Raises InvalidManifest."""
    problems = [problem.placed(places) for node in workflow.nodes for problem in _problems(node, app)]
    if problems:
        raise InvalidManifest(problems, name)


def _problems(node: Node, app: Any) -> Iterator[Problem]:
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
