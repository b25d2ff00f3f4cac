"""`duly secrets`: the key that signing secrets are sealed with."""

from __future__ import annotations

import click

from duly.cli.say import say
from duly.clock import Rng
from duly.domain.sealing import new_key_line


@click.group
def secrets() -> None:
    """Make keys that signing secrets are sealed with."""


@secrets.command("new-key")
def new_key() -> None:
    """Write a new key, as a line of the file that DULY_SECRETS_KEY names.

    The first line of that file seals, and every line opens: put a new key in front of the others, and leave those for as
    long as something is sealed with them.
    """
    say(new_key_line(Rng().secret).reveal())
