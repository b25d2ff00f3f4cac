"""The description of the API for people: one page of HTML made from the OpenAPI document, without a line of script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

Schema = Mapping[str, Any]

STYLE_PATH = "/docs/style.css"
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
code, .path { font-family: ui-monospace, monospace; font-size: 0.95em; overflow-wrap: anywhere; }
table { border-collapse: collapse; width: 100%; margin: 0.5rem 0 1rem; }
th, td { text-align: left; vertical-align: top; padding: 0.25rem 0.75rem 0.25rem 0; border-bottom: 1px solid #8885; }
section.operation { border-top: 2px solid #8885; margin-top: 1.5rem; }
nav ul { columns: 2; }
.method { font-weight: 700; }
.scope { float: right; }
"""


def page(description: Schema) -> bytes:
    """Write the page of an OpenAPI document."""
    info, paths = description["info"], description["paths"]
    operations = [(path, method, operation) for path, methods in paths.items() for method, operation in methods.items()]
    body = [
        f"<h1>{escape(info['title'])} {escape(info['version'])}</h1>",
        *_paragraphs(info["description"]),
        '<p>The same for machines: <a href="/openapi.json">openapi.json</a>.</p>',
        _contents(description, operations),
        *(_operation(*one) for one in operations),
        "<h2>Shapes</h2>",
        *(_shape(name, schema) for name, schema in sorted(description["components"]["schemas"].items())),
    ]
    head = f'<meta charset="utf-8"><title>{escape(info["title"])}</title><link rel="stylesheet" href="{STYLE_PATH}">'
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{"".join(body)}</body></html>'.encode()


def _contents(description: Schema, operations: list[tuple[str, str, Schema]]) -> str:
    groups = []
    for tag in description["tags"]:
        items = "".join(
            f'<li><a href="#{escape(one["operationId"])}">{method.upper()} {escape(path)}</a></li>'
            for path, method, one in operations
            if tag["name"] in one["tags"]
        )
        groups.append(f"<h3>{escape(tag['name'])}</h3><ul>{items}</ul>")
    return f"<nav>{''.join(groups)}</nav>"


def _operation(path: str, method: str, operation: Schema) -> str:
    parts = [
        f'<section class="operation" id="{escape(operation["operationId"])}">',
        f'<span class="scope">scope <code>{escape(operation["x-scope"])}</code></span>',
        f'<h2><span class="method">{method.upper()}</span> <span class="path">{escape(path)}</span></h2>',
        f"<p>{_text(operation['summary'])}</p>",
        *_paragraphs(operation.get("description", "")),
        _parameters(operation["parameters"]),
        _body(operation.get("requestBody")),
        _responses(operation["responses"]),
        "</section>",
    ]
    return "".join(parts)


def _parameters(parameters: list[Schema]) -> str:
    rows = [
        (
            f"<code>{escape(one['name'])}</code>",
            f"{escape(one['in'])}{', required' if one['required'] else ''}",
            _kind(one["schema"]),
            _text(one.get("description", "")),
        )
        for one in parameters
    ]
    return _table(("parameter", "where", "type", ""), rows)


def _body(body: Schema | None) -> str:
    if body is None:
        return ""
    rows = [(f"<code>{escape(kind)}</code>", _kind(content["schema"])) for kind, content in body["content"].items()]
    return _table(("body", "type"), rows)


def _responses(responses: Schema) -> str:
    rows = [(escape(status), _text(one.get("description", "")), _content(one)) for status, one in responses.items()]
    return _table(("answer", "", "type"), rows)


def _content(response: Schema) -> str:
    if "$ref" in response:
        return '<a href="#shape-Problem">Problem</a>'
    kinds = [f"{_kind(one['schema'])} <code>{escape(kind)}</code>" for kind, one in response.get("content", {}).items()]
    return ", ".join(kinds)


def _shape(name: str, schema: Schema) -> str:
    required = schema.get("required", [])
    rows = [
        (
            f"<code>{escape(field)}</code>{'' if field in required else ' (optional)'}",
            _kind(one),
            _text(one.get("description", "")) if isinstance(one, Mapping) else "",
        )
        for field, one in schema.get("properties", {}).items()
    ]
    about = _text(schema.get("description", ""))
    whole = "" if rows else f"<p>{_kind(schema)}</p>"
    fields = _table(("field", "type", ""), rows)
    return f'<section id="shape-{escape(name)}"><h3>{escape(name)}</h3><p>{about}</p>{whole}{fields}</section>'


def _kind(schema: Any) -> str:
    """Say what a value is, in a few words."""
    if not isinstance(schema, Mapping):
        return "anything" if schema else "nothing"
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#shape-{name}">{name}</a>'
    for key in ("anyOf", "oneOf", "allOf"):
        if key in schema:
            return (" and " if key == "allOf" else " or ").join(_kind(one) for one in schema[key])
    if "enum" in schema:
        return " or ".join(f"<code>{escape(str(value))}</code>" for value in schema["enum"])
    if "const" in schema:
        return f"<code>{escape(str(schema['const']))}</code>"
    kind = schema.get("type", "anything")
    words = " or ".join(kind) if isinstance(kind, list) else str(kind)
    if kind == "array":
        return f"list of {_kind(schema.get('items', True))}"
    return escape(words + (f" ({schema['format']})" if "format" in schema else ""))


def _table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    if not rows:
        return ""
    head = "".join(f"<th>{escape(one)}</th>" for one in heads)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _paragraphs(text: str) -> list[str]:
    return [f"<p>{_text(part)}</p>" for part in text.split("\n\n") if part.strip()]


def _text(text: str) -> str:
    """Write words as HTML, with what stands between backticks as code."""
    parts = escape(text).split("`")
    return "".join(f"<code>{part}</code>" if number % 2 else part for number, part in enumerate(parts))
