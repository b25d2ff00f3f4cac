"""Groups of commands that cost nothing until they are used."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click

Table = Mapping[str, Mapping[str, tuple[str, str]]]  # section → name → (module:attribute, one line of help)


class LazyGroup(click.Group):
    """Imports a command when it is called; the list of commands, with its help, needs none of them."""

    def __init__(self, *args: Any, sections: Table, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._sections = sections
        self._modules = {name: module for section in sections.values() for name, (module, _) in section.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands, in the order of the help."""
        return list(self._modules)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        if cmd_name not in self._modules:
            return None
        module, _, attribute = self._modules[cmd_name].partition(":")
        try:
            command = getattr(import_module(module), attribute)
        except ModuleNotFoundError as error:
            if error.name is None or not module.startswith(error.name):
                raise
            raise click.UsageError(f"`{cmd_name}` is not part of this install of Duly") from None
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands by section, from the table alone."""
        for title, commands in self._sections.items():
            with formatter.section(title):
                formatter.write_dl([(name, text) for name, (_, text) in commands.items()])


class ListingGroup(click.Group):
    """A group that lists when no command is named: `duly jobs --json` is `duly jobs list --json`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put `list` in front when the first word is a flag, or there is none."""
        if not args or (args[0].startswith("-") and args[0] not in self.get_help_option_names(ctx)):
            args = ["list", *args]
        return super().parse_args(ctx, args)
