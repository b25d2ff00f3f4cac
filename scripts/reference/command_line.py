"""The page of the command line, from click's commands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import click

from duly.cli.main import SECTIONS, cli
from scripts.reference.markdown import document, prose, table

_HEAD = """
Every command of `duly`, with its arguments and options; `duly COMMAND --help` prints the same. A command talks to the Duly that
`--url` or `DULY_URL` names, else to the `duly up` of this folder, else to the database of `--database-url` or
`DULY_DATABASE_URL`. [Exit codes](exit-codes.md) has the codes.
"""
_COMMON = """
## Common options

Many commands take these; they are not repeated below. Those that name a [setting](settings.md) can be set there as well.
"""
_COLUMNS = ("option", "meaning")
_COMMON_MIN = 20  # commands with the same option


def page() -> str:
    """Write the page."""
    with click.Context(cli, info_name="duly", max_content_width=110) as context:
        sections = {
            title: [one for name in names for one in _commands(context, name)] for title, names in SECTIONS.items()
        }
        found = Counter(option for commands in sections.values() for one in commands for option in one.options)
        common = [option for option, count in found.items() if count >= _COMMON_MIN]
        parts = [
            part
            for title, commands in sections.items()
            for part in (f"## {title}", *(one.written(common) for one in commands))
        ]
    return document("Command line", _HEAD, _COMMON, table(_COLUMNS, common), *parts)


@dataclass
class Command:
    """One command, as the page shows it."""

    path: str
    usage: str
    said: str
    options: list[tuple[str, str]]

    def written(self, common: Sequence[tuple[str, str]]) -> str:
        """Write its section, without the options that many commands have."""
        own = [option for option in self.options if option not in common]
        parts = [f"### {self.path}", f"`{self.usage}`", self.said, table(_COLUMNS, own) if own else ""]
        return "\n\n".join(part for part in parts if part)


def _commands(parent: click.Context, name: str) -> Iterator[Command]:
    assert isinstance(parent.command, click.Group)
    command = parent.command.get_command(parent, name)
    assert command
    with click.Context(command, info_name=name, parent=parent) as context:
        usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
        said = prose((command.help or "").split("\f")[0].replace("\b\n", ""))
        options = [row for row in (_option(context, one) for one in command.params) if row]
        yield Command(context.command_path, usage, said, options)
        if isinstance(command, click.Group):
            for inner in command.list_commands(context):
                yield from _commands(context, inner)


def _option(context: click.Context, parameter: click.Parameter) -> tuple[str, str] | None:
    record = parameter.get_help_record(context)
    if record is None or parameter.name == "help":
        return None
    return f"`{record[0]}`", record[1].replace("*", "\\*").replace("<", "&lt;")
