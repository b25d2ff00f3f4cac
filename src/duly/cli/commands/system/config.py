"""`duly config`: every setting, its value and where it came from."""

from __future__ import annotations

import click

from duly.cli.flags.settings import FLAGS, with_settings
from duly.cli.render.output import json_option, print_json, print_table
from duly.settings import Settings, shown


@click.command
@json_option
@with_settings(*FLAGS)  # a key is no flag: every user of a machine can read command lines
def config(settings: Settings, as_json: bool) -> None:
    """Show every setting, its value, where it came from and what it means. Passwords and keys are not shown."""
    if as_json:
        print_json({one.name: {"value": one.value, "source": one.source} for one in shown(settings)})
    else:
        print_table(
            [[one.name, _words(one.value), one.source, one.help] for one in shown(settings)],
            ["setting", "value", "source", "meaning"],
        )


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
