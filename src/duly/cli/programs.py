"""Commands and containers, as the settings allow them: checked, built, and told of at the start of a worker."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from duly.cli.connect import run_loop
from duly.cli.options import span
from duly.domain.errors import Refused
from duly.domain.sealing import FindKeyring
from duly.log import Log
from duly.settings import KNOWN, Settings, engine_environment, settings_file
from duly.store.keyring import keyring_of
from duly.worker.targets import Part, TargetHandler, cgroup
from duly.worker.targets.cgroup import Groups
from duly.worker.targets.command import Commands, check_sandbox
from duly.worker.targets.container import ENGINES, Containers
from duly.worker.targets.orphans import Engine, Orphans, Owner
from duly.worker.targets.sandbox import Ceiling, Sandbox, find_sandbox


def of(settings: Settings, name: str) -> tuple[list[TargetHandler], list[Part]]:
    """Build what a worker of this name may run. Raises Refused when it is allowed and cannot work here."""
    handlers: list[TargetHandler] = []
    parts: list[Part] = []
    if settings.commands:
        handlers += _commands(settings).handlers()
    if settings.containers:
        containers, orphans = _containers(settings, name)
        handlers += containers.handlers()
        parts.append(orphans)
    return handlers, parts


def check(settings: Settings) -> None:
    """Try whether what is allowed can work here, before anything is started. Raises Refused."""
    of(settings, "")


def words(settings: Settings) -> Iterator[str]:
    """Tell what is allowed."""
    network = "with network where a job asks for it" if settings.command_network else "without network"
    if settings.commands and settings.command_sandbox == "required":
        yield f"commands: {', '.join(settings.commands)}, in a sandbox, {network}"
    elif settings.commands:
        yield f"commands: {', '.join(settings.commands)}, WITHOUT A SANDBOX: each sees what its user may see"
    if settings.commands:
        yield f"limits of commands: {limits_in_words(cgroup.look())}"
    if settings.containers:
        engine = " ".join(_engine(settings).command)
        yield f"containers: {', '.join(settings.containers)}, through {engine}, {network}"


def limits_in_words(ground: cgroup.Ground) -> str:
    """Say how far the limits of a command hold for all its processes together, and what is missing where they do not."""
    if ground.missing is None:
        return "memory, CPU time and processes of all that one starts together, by a control group of its own"
    if ground.folder is None:
        return f"of each process, by rlimits; no control groups: {ground.missing}"
    return f"CPU time of all that one starts together, by a control group; else of each process, by rlimits: {ground.missing}"


def _commands(settings: Settings) -> Commands:
    _refuse_missing(settings.commands)
    sandbox, ceiling = _sandbox(settings), _ceiling(settings)
    run_loop(check_sandbox(sandbox, ceiling))
    grace, groups = span(settings, "command_grace").total_seconds(), _groups()
    return Commands(
        sandbox,
        settings.commands,
        ceiling,
        network=settings.command_network,
        grace_seconds=grace,
        keyring=_keyring_of(settings),
        groups=groups,
    )


def _keyring_of(settings: Settings) -> FindKeyring:
    """Read the keyring once. Raises SettingsError when the file that was named cannot be read."""
    keyring = keyring_of(settings)
    return lambda: keyring


def _groups() -> Groups | None:
    """Build the control groups of commands, where they can be made, and end what was left in them."""
    ground = cgroup.prepare()
    if ground.folder is None:
        return None
    groups = Groups(ground)
    if ended := groups.end_orphans():
        Log("commands").warning("orphaned_commands_ended", groups=ended)
    return groups


def _containers(settings: Settings, name: str) -> tuple[Containers, Orphans]:
    engine, owner = _engine(settings), Owner.here()
    containers = Containers(
        engine,
        settings.containers,
        _ceiling(settings),
        worker=name,
        owner=owner,
        network=settings.command_network,
        grace_seconds=span(settings, "command_grace").total_seconds(),
        keyring=_keyring_of(settings),
    )
    return containers, Orphans(engine, owner, lambda: containers.under_way, log=Log("containers"))


def _sandbox(settings: Settings) -> Sandbox:
    return find_sandbox(
        required=settings.command_sandbox == "required",
        user=settings.command_user,
        paths=map(Path, settings.command_paths),
        hidden=_hidden(settings),
    )


def _hidden(settings: Settings) -> Iterator[Path]:
    """List what no command may see: where we are, the file of the settings, and whatever these name, keys among it."""
    yield Path.cwd()
    if (file := settings_file()) is not None:
        yield file
    for name in KNOWN:
        if isinstance(value := getattr(settings, name), Path):
            yield value


def _ceiling(settings: Settings) -> Ceiling:
    return Ceiling(settings.command_memory, settings.command_processes)


def _engine(settings: Settings) -> Engine:
    program, *rest = settings.container_command or (_first_found(),)
    found = shutil.which(program)
    if found is None:
        raise Refused(f"container_command = {program}: there is no such program; install it, or name another")
    return Engine((found, *rest), settings.container_options, engine_environment())


def _first_found() -> str:
    for program in ENGINES:
        if shutil.which(program):
            return program
    raise Refused(f"containers need one of {', '.join(ENGINES)}, and none is installed; install one, such as podman")


def _refuse_missing(commands: tuple[str, ...]) -> None:
    for program in commands:
        if shutil.which(program) is None:
            raise Refused(
                f"commands: {program} is not a program that can be run here; install it, or take it off the list"
            )
