"""`duly completion`: the script that teaches a shell our commands."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

_USE = {
    "bash": 'eval "$(duly completion bash)"          # in ~/.bashrc',
    "zsh": 'eval "$(duly completion zsh)"           # in ~/.zshrc',
    "fish": "duly completion fish | source           # in ~/.config/fish/config.fish",
}


@click.command(epilog="\b\n" + "\n".join(_USE.values()))
@click.argument("shell", type=click.Choice(list(_USE)))
def completion(shell: str) -> None:
    """Print the completion script of SHELL."""
    from duly.cli.main import cli

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(cli, {}, "duly", "_DULY_COMPLETE").source())
