"""`duly config`: every setting, its value and where it came from."""

from __future__ import annotations

from pathlib import Path

import click

from duly.cli.options import FLAGS, with_settings
from duly.cli.output import json_option, print_json, print_table
from duly.settings import KNOWN, Settings, redacted

# A key is no flag: every user of a machine can read how a program was called.
_ALL = tuple(name for name in FLAGS if name not in ("data", "database_url", "log_level", "log_format"))


@click.command
@json_option
@with_settings(*_ALL)
def config(settings: Settings, as_json: bool) -> None:
    """Show every setting, its value, where it came from and what it means. Passwords and keys are not shown."""
    rows = [(name, _value(settings, name), settings.sources[name], known.help) for name, known in KNOWN.items()]
    if as_json:
        print_json({name: {"value": value, "source": source} for name, value, source, _ in rows})
    else:
        print_table(
            [[name, _words(value), source, text] for name, value, source, text in rows],
            ["setting", "value", "source", "meaning"],
        )


def _value(settings: Settings, name: str) -> object:
    value: object = getattr(settings, name)
    if name == "database_url" and isinstance(value, str):
        return redacted(value)
    if name == "api_key" and value is not None:
        return "***"
    return str(value) if isinstance(value, Path) else value


def _words(value: object) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "true" if value else "false"
        case float():
            return f"{value:g} s"
        case tuple():
            return ", ".join(map(str, value)) or "-"
    return str(value)
