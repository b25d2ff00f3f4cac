"""The page of settings, from `duly.settings`."""

from __future__ import annotations

from collections.abc import Mapping

from duly.settings import KNOWN, PREFIX
from scripts.reference.markdown import document, table

_HEAD = """
Every setting of Duly. Flags come first, then `DULY_*` variables, then `duly.toml` or `[tool.duly]` in `pyproject.toml`, then
the defaults. An unknown key is an error. `duly config` prints each value and where it came from.

The variable of a setting is its name in capitals: `DULY_DATABASE_URL` sets `database_url`. Durations are ISO 8601 (`PT30S`,
`P1D`) or seconds. Lists are separated by commas in variables, and are lists in files. A relative path starts at the folder
where it is written: that of the file, or the working folder.

`DULY_DATABASE_URL_FILE`, `DULY_READ_URL_FILE`, `DULY_API_KEY_FILE`, `DULY_ARCHIVE_ACCESS_KEY_FILE` and
`DULY_ARCHIVE_SECRET_KEY_FILE` name a file that has the value instead, as container
platforms and systemd hand secrets over.
"""
_NOTES = """
## Defaults that depend on the command

| setting | in `duly up` |
|---|---|
| `queues` | without it, a worker serves the queues of its app's handlers, and `default` |
| `secrets_key` | `secrets-key` in the data folder, made at the first start |
| `egress_loopback` | `true` while it listens on loopback alone |

Beyond loopback, `host` needs an API key, and TLS (`tls_certificate`, `tls_key`) or `plain_http`. Behind a proxy, whose address
all connections share, set `http_connections_per_address` to the value of `http_connections`. The write-ahead log of the embedded
PostgreSQL takes up to a tenth of the space that was free in `data` at its start, at most 8 GB.
"""


def page() -> str:
    """Write the page."""
    rows = [(f"`{name}`", _default(name, known.default), known.help) for name, known in KNOWN.items()]
    return document("Settings", _HEAD.replace("DULY_", PREFIX), table(["setting", "default", "meaning"], rows), _NOTES)


def _default(name: str, value: object) -> str:
    if value is None or value == () or (isinstance(value, Mapping) and not value):
        return "unset"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, tuple):
        return f"`{', '.join(map(str, value))}`"
    if isinstance(value, float):
        return f"`{value:g}`" if name == "otel_ratio" else f"`{value:g}` s"
    return f"`{value}`"
