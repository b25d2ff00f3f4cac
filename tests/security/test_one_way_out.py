"""Nothing calls out but through the guard: whoever imports an HTTP client or makes a pin is known by name."""

from __future__ import annotations

import ast
from pathlib import Path

from duly import outbound

SOURCE = Path(outbound.__file__).parents[1]
CLIENTS = {"aiohttp", "h11", "http.client", "httptools", "httpx", "httpx2", "requests", "urllib.request", "urllib3"}
DIALLING = {"create_connection", "sock_connect", "start_tls"}
# The second is Apprise's own process: a hook of its interpreter judges every connection of the services there.
KNOWN = {"outbound/connection.py", "outbound/apprise_process.py"}
# The command line asks the Duly that its user names, over a local socket or in its own process; `duly listen` only serves.
COMMAND_LINE = {"cli/client.py", "cli/in_process.py", "cli/in_tenant.py", "cli/commands/system/listen.py"}
# The client talks to a Duly that its own user names, from the user's own machine.
KNOWN_FOLDERS = ("client/", "bench/", "testing/")


def imports_of(tree: ast.AST) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def users_of(is_meant) -> set[str]:
    found = set()
    for path in SOURCE.rglob("*.py"):
        name = path.relative_to(SOURCE).as_posix()
        if not name.startswith(KNOWN_FOLDERS) and is_meant(ast.parse(path.read_text())):
            found.add(name)
    return found


def test_only_the_transport_has_an_http_client():
    def imports_a_client(tree):
        return any(name == client or name.startswith(f"{client}.") for name in imports_of(tree) for client in CLIENTS)

    assert users_of(imports_a_client) == KNOWN | COMMAND_LINE


def test_only_the_transport_opens_connections():
    def dials(tree):
        return any(isinstance(node, ast.Attribute) and node.attr in DIALLING for node in ast.walk(tree))

    # The second to addresses of the guard, too; the third to the operator's own Ray cluster, to see whether it answers.
    assert users_of(dials) == {"outbound/transport.py", "outbound/smtp.py", "worker/execute/ray_driver.py"}


def test_only_the_guard_makes_a_pin():
    def makes_a_pin(tree):
        return any(
            isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Pin"
            for node in ast.walk(tree)
        )

    assert users_of(makes_a_pin) == {"outbound/guard.py"}
