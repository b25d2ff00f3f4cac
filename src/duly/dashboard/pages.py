"""The pages of the dashboard and of the API: the files built from `ui/`, read once and kept in memory.

Files under `assets/` have a hash in their name and never change, so a browser keeps them for good. Nothing inline is allowed, and
nothing from elsewhere; the page of the API may show images of its own stylesheet. Without a build there is one page that says how
to make one.
"""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

import msgspec
from litestar import Request, Response, get
from litestar.exceptions import NotFoundException
from litestar.handlers import HTTPRouteHandler

STATIC = files("duly.dashboard").joinpath("static")
INDEX, DOCS = "index.html", "docs.html"
_ASSETS = "assets/"
_SHORT = 1_000  # bytes; below this it is not worth packing
_TYPES = {
    "html": "text/html",
    "js": "text/javascript",
    "css": "text/css",
    "svg": "image/svg+xml",
    "json": "application/json",
    "txt": "text/plain",
}
_POLICY = (
    "default-src 'self'; script-src 'self'; worker-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "font-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Vary": "Accept-Encoding",
}
# The stylesheet of Swagger UI has its icons in it.
DOCS_HEADERS = {**HEADERS, "Content-Security-Policy": _POLICY.replace("img-src 'self'", "img-src 'self' data:")}
_FOR_GOOD, _EACH_TIME = "public, max-age=31536000, immutable", "no-cache"
NOT_BUILT = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>Duly: the dashboard is not built</title></head>
<body>
<h1>The dashboard is not built</h1>
<p>The server runs, and the API answers under /v1: <a href="/openapi.json">/openapi.json</a> describes it.</p>
<p>The dashboard is built from source, with Node 18 or newer and npm:</p>
<pre>make dashboard</pre>
<p>or, by hand:</p>
<pre>cd ui &amp;&amp; npm ci &amp;&amp; npm run build</pre>
<p>Then start the server again.</p>
</body>
</html>
"""

AnyRequest = Request[Any, Any, Any]


class File(msgspec.Struct, frozen=True):
    """A file as it is sent."""

    body: bytes
    packed: bytes | None
    media_type: str
    cache: str

    def answer(self, accepted: str, headers: Mapping[str, str] = HEADERS) -> Response[bytes]:
        """Return the response for a client that accepts these encodings."""
        headers = {**headers, "Cache-Control": self.cache}
        if self.packed is None or "gzip" not in accepted:
            return Response(self.body, headers=headers, media_type=self.media_type)
        return Response(self.packed, headers={**headers, "Content-Encoding": "gzip"}, media_type=self.media_type)


def pages(static: Traversable = STATIC, *, has_dashboard: bool = True) -> list[HTTPRouteHandler]:
    """Return the routes of the API's page, and those of the dashboard unless it is off. The first request reads the files."""

    @cache
    def known() -> dict[str, File]:
        return read_files(static)

    @get(["/", "/ui", "/ui/{path:path}"])
    async def page(request: AnyRequest) -> Response[bytes]:
        """Return a file, or the page of a path. Raises NotFoundException."""
        requested = request.url.path.removeprefix("/ui").lstrip("/")
        found = known().get(requested)
        if found is None and requested.startswith(_ASSETS):
            raise NotFoundException  # a page of an older build asks for a file that no longer exists
        return (found or known()[INDEX]).answer(request.headers.get("accept-encoding", ""))

    @get("/docs")
    async def docs(request: AnyRequest) -> Response[bytes]:
        """Return the interactive page of the API."""
        found = known().get(DOCS) or known()[INDEX]
        return found.answer(request.headers.get("accept-encoding", ""), DOCS_HEADERS)

    @get("/ui/assets/{name:str}")
    async def asset(request: AnyRequest) -> Response[bytes]:
        """Return a file that the page of the API is made of. Raises NotFoundException."""
        if (found := known().get(request.url.path.removeprefix("/ui/"))) is None:
            raise NotFoundException
        return found.answer(request.headers.get("accept-encoding", ""))

    @get("/")
    async def front_page() -> Response[None]:
        """Lead people who typed the address alone to the page of the API."""
        return Response(None, status_code=303, headers={"Cache-Control": "no-store", "Location": "/docs"})

    return [page, docs] if has_dashboard else [docs, asset, front_page]


def read_files(static: Traversable) -> dict[str, File]:
    """Read all that was built; without a build, the page that says how."""
    found = dict(_walk(static, "")) if static.is_dir() else {}
    return found if INDEX in found else {INDEX: _file(INDEX, NOT_BUILT.encode())}


def _walk(folder: Traversable, prefix: str) -> list[tuple[str, File]]:
    found: list[tuple[str, File]] = []
    for entry in folder.iterdir():
        name = f"{prefix}{entry.name}"
        if entry.is_dir():
            found += _walk(entry, f"{name}/")
        else:
            found.append((name, _file(name, entry.read_bytes())))
    return found


def _file(name: str, body: bytes) -> File:
    kind = _TYPES.get(name.rpartition(".")[2], "application/octet-stream")
    packed = gzip.compress(body, mtime=0) if len(body) >= _SHORT else None
    return File(body, packed, kind, _FOR_GOOD if name.startswith(_ASSETS) else _EACH_TIME)
