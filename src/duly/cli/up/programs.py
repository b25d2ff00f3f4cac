"""Commands and containers, as the settings allow them: checked, built, and described at the start of a worker."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from duly.cli.flags.settings import span
from duly.domain.errors import InvalidOption, Refused
from duly.domain.targets.program_environment import check_command_environment
from duly.domain.tenancy.sealing import FindKeyring
from duly.log import Log
from duly.postgres.account import account_for
from duly.settings import KNOWN, Settings, engine_environment, settings_file
from duly.store.tenancy.keyring import keyring_of
from duly.worker import loop
from duly.worker.targets import Part, TargetHandler, cgroup
from duly.worker.targets.cgroup import Groups
from duly.worker.targets.command import Commands, check_sandbox
from duly.worker.targets.container import ENGINES, Containers
from duly.worker.targets.orphans import Engine, Orphans, Owner
from duly.worker.targets.sandbox import Ceiling, Sandbox, account_of, find_sandbox

LIMITS_PAGE = "docs/reference/command-sandbox.md#control-groups"


def of(settings: Settings, name: str) -> tuple[list[TargetHandler], list[Part]]:
    """Build the programs of a worker of this name. Raises Refused when they are allowed and cannot work here."""
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
    """Check that allowed programs can work beside an embedded PostgreSQL, before anything is started. Raises Refused."""
    of(settings, "")
    _refuse_shared_account(settings)


def words(settings: Settings) -> Iterator[str]:
    """Describe the allowed programs."""
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
    """Describe how far the limits of a command apply to all its processes together."""
    if "memory" in ground.controllers:
        return "memory and CPU time of all its processes together"
    if ground.folder is None:
        return f"memory and CPU time of each process alone; see {LIMITS_PAGE}"
    return f"CPU time of all its processes together, memory of each alone; see {LIMITS_PAGE}"


def _commands(settings: Settings) -> Commands:
    _refuse_missing(settings.commands)
    _refuse_loaders(settings.commands)
    sandbox, ceiling = _sandbox(settings), _ceiling(settings)
    loop.run(check_sandbox(sandbox, ceiling))
    grace, groups = span(settings, "command_grace").total_seconds(), _groups(settings)
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


def _groups(settings: Settings) -> Groups | None:
    """Build the control groups of commands, where they can be created, and end what was left in them. Raises Refused."""
    ground = cgroup.prepare()
    if settings.command_cgroup == "required" and "memory" not in ground.controllers:
        raise Refused(
            f"commands need a control group, or else their memory has no limit as a whole: {ground.missing};"
            f" or set command_cgroup = optional to limit each process alone; see {LIMITS_PAGE}"
        )
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
    """Return the paths that no command may see: our folder, the settings file, and the files it names, keys among them."""
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


def _refuse_loaders(commands: Mapping[str, Iterable[str]]) -> None:
    """Refuse variables that no job may set, even if allowed. Raises Refused."""
    for program, variables in commands.items():
        try:
            check_command_environment(dict.fromkeys(variables, ""))
        except InvalidOption as error:
            raise Refused(f"commands: {program}: {error}") from None


def _refuse_shared_account(settings: Settings) -> None:
    """Refuse to run commands without a sandbox as the account that runs the embedded PostgreSQL. Raises Refused."""
    if not settings.commands or settings.command_sandbox == "required" or settings.database_url is not None:
        return
    account = account_of(settings.command_user)
    if account is not None and account.uid == account_for(settings.data / "postgres").uid:
        raise Refused(
            f"commands run as {account.name}, which also runs the embedded PostgreSQL, and without a sandbox they could"
            " read the database: set command_user to another account"
        )


def _refuse_missing(commands: Iterable[str]) -> None:
    for program in commands:
        if shutil.which(program) is None:
            raise Refused(
                f"commands: {program} is not a program that can be run here; install it, or take it off the list"
            )
