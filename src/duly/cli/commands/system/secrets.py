"""`duly secrets`: the keys that secrets are sealed with."""

from __future__ import annotations

import click
import msgspec

from duly.cli.connect import opened
from duly.cli.flags.settings import with_settings
from duly.cli.render.output import json_option, print_json
from duly.cli.render.say import say
from duly.clock import Rng
from duly.domain.errors import Refused
from duly.domain.tenancy.sealing import Keyring, new_key_line
from duly.moves.admin.reseal import Resealed, reseal
from duly.settings import Settings
from duly.store.tenancy.keyring import MISSING, keyring_of
from duly.worker import loop


@click.group
def secrets() -> None:
    """Create sealing keys, and rotate them."""


@secrets.command("new-key")
def new_key() -> None:
    """Write a new key, as a line of the file that DULY_SECRETS_KEY names.

    The first line of that file seals, and every line opens: put a new key in front of the others, and keep those until
    `duly secrets rotate` has sealed everything with the new one.
    """
    say(new_key_line(Rng().secret).reveal())


@secrets.command
@json_option
@with_settings("pooler", "secrets_key")
def rotate(settings: Settings, as_json: bool) -> int:
    """Seal all secrets with the first key of the keyring: signing secrets, and those of jobs, runs, workflows and history.

    Every process must know that key before. Schedulers, workers and APIs go on meanwhile. Interrupted, or with runs under
    way that have older secrets, run it again; it exits with 1 while something is left.
    """
    keyring = keyring_of(settings)
    if keyring is None:
        raise Refused(MISSING)
    done = loop.run(_rotate(settings, keyring))
    if as_json:
        print_json({"key_id": keyring.key_id, **msgspec.structs.asdict(done)})
    else:
        _print_result(done, keyring.key_id)
    return 1 if done.left or done.unopened else 0


def _print_result(done: Resealed, key_id: str) -> None:
    say(f"sealed anew with key {key_id}: {done.rows:,} rows")
    if done.unopened:
        say(f"{done.unopened:,} rows do not open, and stay as they are: {done.why}")
    if (held := done.left - done.unopened) > 0:
        say(f"{held:,} runs under way have secrets under another key; run this again when they have ended")
    if not done.left and not done.unopened:
        say("nothing is sealed with another key; the other lines may go from the file, and every process be restarted")


async def _rotate(settings: Settings, keyring: Keyring) -> Resealed:
    async with opened(settings) as database:
        return await reseal(database, keyring, Rng())
