"""The pages of the SDK and of the client, from signatures and docstrings."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

import duly
from duly.client import errors as client_errors
from duly.client.synchronous.client import Client
from scripts.reference.markdown import document, prose, table

SDK = {
    "Define": ("App", "Retry", "Rate", "Workflow"),
    "Submit and follow": ("Handler", "Handle", "Job", "JobDetails", "RunHandle", "Progress", "WorkflowHandle"),
    "Inside a handler": ("Run", "Snooze", "NonRetryable", "Cancelled", "LeaseLost", "RunLogHandler"),
}
_SDK = """
Everything that `import duly` offers to code that defines and submits jobs. An `App` talks to PostgreSQL itself; programs that
only reach the HTTP API use the [client](client.md). Each coroutine has a twin for plain code that ends in `_sync`. Testing has a
[page of its own](../how-to/testing.md).
"""
_CLIENT = """
`duly.Client` for plain code and `duly.AsyncClient` for `asyncio` have the same methods; those of `AsyncClient` are awaited. Both
take the address and the key from `DULY_URL` and `DULY_API_KEY` where none is given, and repeat a request until it is done once.
The [how-to](../how-to/client.md) shows them at work, and the [HTTP API](http-api.md) says what each operation means.
"""


def sdk_page() -> str:
    """Write the page of the SDK."""
    listed = {name for names in SDK.values() for name in names} | {"Client", "AsyncClient", "__version__"}
    parts = [part for title, names in SDK.items() for part in (f"## {title}", *map(_class, map(_public, names)))]
    return document("Python SDK", _SDK, *parts, "## Errors", _errors(set(duly.__all__) - listed))


def client_page() -> str:
    """Write the page of the client."""
    with Client("http://127.0.0.1:7300", "duly_0000000000_0") as client:
        groups = {name: type(value) for name, value in vars(client).items() if _is_group(name, value)}
    parts = [f"## client.{name}\n\n{_methods(kind, f'client.{name}.')}" for name, kind in sorted(groups.items())]
    errors = {n for n, e in vars(client_errors).items() if inspect.isclass(e) and issubclass(e, Exception)}
    rows = [(f"`{name}`", _first(getattr(client_errors, name))) for name in sorted(errors) if not name.startswith("_")]
    return document(
        "Python client", _CLIENT, _class(Client, "Client"), *parts, "## Errors", table(["error", "meaning"], rows)
    )


def _is_group(name: str, value: object) -> bool:
    return not name.startswith("_") and type(value).__module__.startswith("duly.client")


def _public(name: str) -> type:
    return getattr(duly, name)  # type: ignore[no-any-return]


def _class(kind: type, name: str = "") -> str:
    name = name or next((public for public in duly.__all__ if getattr(duly, public) is kind), kind.__name__)
    return f"### {name}\n\n`{name}{_signature(kind)}`\n\n{prose(inspect.getdoc(kind))}\n\n{_methods(kind, '')}"


def _methods(kind: type, prefix: str) -> str:
    rows = [(f"`{prefix}{name}{shown}`", _first(member)) for name, member, shown in _members(kind)]
    return table(["member", "meaning"], rows) if rows else ""


def _members(kind: type) -> Iterator[tuple[str, object, str]]:
    for name, member in inspect.getmembers_static(kind):
        if name.startswith("_") or not inspect.getdoc(member) or isinstance(member, type):
            continue
        if isinstance(member, property) or type(member).__name__ == "cached_property":
            yield name, member, ""
        elif callable(getattr(kind, name)) and getattr(member, "__module__", "duly").startswith("duly"):
            yield name, member, _signature(getattr(kind, name))


def _signature(called: object) -> str:
    try:
        signature = inspect.signature(called)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return "()"
    parameters = [one for name, one in signature.parameters.items() if name not in ("self", "cls")]
    text = str(signature.replace(parameters=parameters))
    text = re.sub(r"\b(?:duly|collections\.abc|datetime|pathlib|uuid|typing)(?:\.\w+)*\.(?=[A-Za-z])", "", text)
    return re.sub(r"<\w+\.(\w+): [^>]*>|<([^>]*)>", r"\1…", text).replace("'", "")


def _first(member: object) -> str:
    return prose(inspect.getdoc(member)).replace("<", "&lt;")


def _errors(names: set[str]) -> str:
    rows = [(f"`{name}`", _first(_public(name))) for name in sorted(names) if issubclass(_public(name), Exception)]
    return table(["error", "meaning"], rows)
