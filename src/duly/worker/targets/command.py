"""Commands: a program with its arguments, never a shell, in a sandbox. Only programs that the operator names are offered."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from duly.domain.errors import Refused
from duly.domain.runs.outcome import Failed, Outcome
from duly.domain.runs.run import Run
from duly.domain.targets.program_environment import check_allowed_variables, check_command_environment
from duly.domain.targets.target import COMMAND, Command
from duly.domain.tenancy.sealed_options import open_target
from duly.domain.tenancy.sealing import FindKeyring, no_keyring
from duly.worker.context import RunContext
from duly.worker.slots import Kind
from duly.worker.targets import TargetHandler, process
from duly.worker.targets.cgroup import Group, Groups, Limits
from duly.worker.targets.output import Output
from duly.worker.targets.process import Launch
from duly.worker.targets.program import check_requested, environment_of, outcome_of, patience, stdin_of
from duly.worker.targets.sandbox import Ceiling, Sandbox

CPU_SECONDS_MAX = 10_000_000


class Commands:
    """Runs the commands of one worker: the programs that are allowed, each with the variables that its jobs may set."""

    def __init__(
        self,
        sandbox: Sandbox,
        allowed: Mapping[str, Collection[str]],
        ceiling: Ceiling,
        *,
        network: bool,
        grace_seconds: float,
        keyring: FindKeyring = no_keyring,
        groups: Groups | None = None,
    ) -> None:
        self._sandbox = sandbox
        self._allowed = dict(allowed)
        self._ceiling = ceiling
        self._network = network
        self._grace_seconds = grace_seconds
        self._keyring = keyring
        self._groups = groups

    def handlers(self) -> list[TargetHandler]:
        """Return one handler for each program that is allowed."""
        return [TargetHandler(COMMAND + program, Kind.PROCESS, self.attempt) for program in self._allowed]

    async def attempt(self, context: RunContext, run: Run) -> Outcome:
        """Run a command to its end, or until it is stopped."""
        target = run.policy.target
        assert isinstance(target, Command)
        try:
            target = open_target(target, run.tenant, self._keyring)
        except Refused as error:
            return Failed(f"a secret of the command cannot be had: {error}")
        try:
            launch = self._launch_of(context, target)
        except Refused as error:
            return Failed(str(error), retryable=False)
        grace = patience(context, run.policy.timeout_seconds, self._grace_seconds)
        output = Output(context.log)
        try:
            group = self._group_of(run, target)
        except OSError as error:
            return Failed(f"the control group of {target.argv[0]} could not be created: {error}")
        try:
            ended = await process.run(_grouped(launch, group, target), stdin_of(run), output.hear, grace)
        finally:
            output.close()
            if group is not None:
                group.remove()
        if not ended.started:
            return Failed(f"the sandbox of {target.argv[0]} could not be set up: {output.last_words}")
        return outcome_of(ended, target, output)

    def _group_of(self, run: Run, target: Command) -> Group | None:
        """Create the control group of an attempt, if possible. Raises OSError."""
        if self._groups is None:
            return None
        ceiling = self._ceiling
        limits = Limits(target.memory_bytes or ceiling.memory_bytes, target.processes or ceiling.processes)
        return self._groups.create(run.fence, limits)

    def _launch_of(self, context: RunContext, target: Command) -> Launch:
        program, ceiling = target.argv[0], self._ceiling
        if program not in self._allowed:  # the row was claimed by its handler, which could be made to differ
            raise Refused(f"the program {program} is not allowed here; the setting `commands` lists those that are")
        if target.network and not self._network:
            raise Refused(
                f"{program} asks for the network, which commands have not here; see the setting command_network"
            )
        check_requested(
            target.memory_bytes, "bytes of memory", ceiling.memory_bytes, "the setting command_memory allows"
        )
        check_requested(target.file_bytes, "bytes of files", ceiling.memory_bytes, "the setting command_memory allows")
        check_requested(target.processes, "processes", ceiling.processes, "the setting command_processes allows")
        check_requested(target.cpu_seconds, "seconds of CPU time", CPU_SECONDS_MAX, "there is no limit above")
        check_command_environment(target.environment)
        check_allowed_variables(program, target.environment, self._allowed[program])
        environment = environment_of(context, target.environment)
        return self._sandbox.launch_of(target, environment, ceiling, network=target.network)


def _grouped(launch: Launch, group: Group | None, target: Command) -> Launch:
    if group is None:
        return launch
    return msgspec.structs.replace(launch, group=group.folder, cpu_seconds=target.cpu_seconds)


async def check_sandbox(sandbox: Sandbox, ceiling: Ceiling) -> None:
    """Try the sandbox once. Raises Refused, with its error, when it does not work here."""
    heard: list[bytes] = []
    launch = sandbox.launch_of(Command((sandbox.prlimit, "--version")), {}, ceiling, network=False)
    ended = await process.run(launch, b"", lambda _, data: heard.append(data), lambda: 0.0)
    if not ended.started or ended.status != 0:
        said = b"".join(heard).decode(errors="replace").strip() or ended.words
        raise Refused(
            f"commands need a sandbox, and bubblewrap does not work here: {said}. Where this is a container, allow user"
            " namespaces; or set command_sandbox = none to do without, which lets a command see what its user may see"
        )
