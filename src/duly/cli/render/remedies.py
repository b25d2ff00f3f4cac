"""What the API advises, for those who sit at a terminal: where it names a route, the command that does the same."""

from __future__ import annotations

import re

_ROUTE = re.compile(r"`?\b(GET|POST) /v1/(\w+)(?:/([^\s/`]+))?`?")
_LISTS = ("dead", "destinations", "files", "jobs", "keys", "runs", "tenants", "workers", "workflows")
_SHOWS = ("dead", "destinations", "files", "jobs", "runs", "workflows")


def in_commands(text: str) -> str:
    """Say the command where a route is named; what has none stays as it is."""
    return _ROUTE.sub(lambda found: _command(found) or found[0], text)


def _command(route: re.Match[str]) -> str | None:
    method, collection, item = route.groups()
    match method, item:
        case "GET", None if collection in _LISTS:
            return f"`duly {collection}`"
        case "GET", str() if collection in _SHOWS:
            return f"`duly {collection} show {item}`"
        case "POST", None if collection == "jobs":
            return "`duly submit`"
    return None
