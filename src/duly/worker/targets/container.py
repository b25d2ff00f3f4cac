"""Containers: an image and its arguments, through a container engine's program. Only images that the operator names.

Podman, docker and nerdctl take the same arguments. A container has no network unless allowed, a read-only root, no
capabilities, and is removed when it ends, whatever ended it: by the engine, else by the launcher, else by the search
for orphans (`orphans.py`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from duly.domain.errors import Refused
from duly.domain.runs.outcome import Failed, Outcome
from duly.domain.runs.run import Run
from duly.domain.targets.program_environment import check_container_environment
from duly.domain.targets.target import CONTAINER, Container
from duly.domain.tenancy.sealed_options import open_target
from duly.domain.tenancy.sealing import FindKeyring, no_keyring
from duly.worker.context import RunContext
from duly.worker.slots import Kind
from duly.worker.targets import TargetHandler, process
from duly.worker.targets.orphans import OWNER_LABEL, Engine, Owner
from duly.worker.targets.output import Output
from duly.worker.targets.process import FILE_FD, Exit, Launch
from duly.worker.targets.program import check_requested, environment_of, outcome_of, patience, stdin_of
from duly.worker.targets.sandbox import Ceiling

ENGINES = ("podman", "docker", "nerdctl")
CPUS_MAX = 1.0  # default of a container
_NOBODY = "65534:65534"
_ENGINE_FAILED = 125
_CONFINED = (
    *("--rm", "--interactive", "--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges"),
    *(f"--user={_NOBODY}", "--tmpfs=/tmp:rw,nosuid,nodev,size=64m,mode=1777", "--log-driver=none"),
)


class Containers:
    """Runs the containers of one worker."""

    def __init__(
        self,
        engine: Engine,
        allowed: Sequence[str],
        ceiling: Ceiling,
        *,
        worker: str,
        owner: Owner,
        network: bool,
        grace_seconds: float,
        keyring: FindKeyring = no_keyring,
    ) -> None:
        self._engine = engine
        self._allowed = tuple(allowed)
        self._ceiling = ceiling
        self._worker = worker
        self._owner = owner
        self._network = network
        self._grace_seconds = grace_seconds
        self._keyring = keyring
        self.under_way: set[str] = set()

    def handlers(self) -> list[TargetHandler]:
        """Return one handler for each image that is allowed."""
        return [TargetHandler(CONTAINER + image, Kind.PROCESS, self.attempt) for image in self._allowed]

    async def attempt(self, context: RunContext, run: Run) -> Outcome:
        """Run a container to its end, or until it is stopped; either way it is removed."""
        target = run.policy.target
        assert isinstance(target, Container)
        try:
            target = open_target(target, run.tenant, self._keyring)
        except Refused as error:
            return Failed(f"a secret of the container cannot be had: {error}")
        name = f"duly-{run.run_id}-{run.fence}"
        try:
            launch = self._launch_of(context, target, name)
        except Refused as error:
            return Failed(str(error), retryable=False)
        grace = patience(context, run.policy.timeout_seconds, self._grace_seconds)
        output = Output(context.log)
        self.under_way.add(name)
        try:
            ended = await process.run(launch, stdin_of(run), output.hear, grace)
        finally:
            self.under_way.discard(name)
            output.close()
        if _engine_failed(ended, target):
            return Failed(f"the container engine could not run {target.image}: {output.last_words}")
        return outcome_of(ended, target, output)

    def _launch_of(self, context: RunContext, target: Container, name: str) -> Launch:
        self._check(target)
        command, environment = self._engine.command, environment_of(context, target.environment)
        limits = (
            f"--memory={target.memory_bytes or self._ceiling.memory_bytes}",
            f"--memory-swap={target.memory_bytes or self._ceiling.memory_bytes}",
            f"--cpus={target.cpus or CPUS_MAX:g}",
            f"--pids-limit={target.processes or self._ceiling.processes}",
        )
        known_by = (
            f"--name={name}",
            f"--label=duly.worker={self._worker}",
            f"--label=duly.run={context.id}",
            f"--label=duly.fence={context.fence}",
            f"--label={OWNER_LABEL}={self._owner}",
        )
        network = () if target.network else ("--network=none",)
        variables = f"--env-file=/proc/self/fd/{FILE_FD}"
        words = (*_CONFINED, *limits, *known_by, *network, variables, "--stop-timeout=0", *self._engine.options)
        return Launch(
            (*command, "run", *words, target.image, *target.argv),
            self._engine.environment,
            file=_env_file(environment),
            is_wrapped=True,
            ends_tree=False,
            last=(*command, "rm", "--force", name),
        )

    def _check(self, target: Container) -> None:
        if target.image not in self._allowed:
            raise Refused(
                f"the image {target.image} is not allowed here; the setting `containers` lists those that are"
            )
        if target.network and not self._network:
            raise Refused(
                f"{target.image} asks for the network, which it has not here; see the setting command_network"
            )
        check_requested(
            target.memory_bytes, "bytes of memory", self._ceiling.memory_bytes, "the setting command_memory allows"
        )
        check_requested(target.processes, "processes", self._ceiling.processes, "the setting command_processes allows")
        check_container_environment(target.environment)
        check_requested(target.cpus, "CPUs", os.cpu_count() or 1, "this machine has")


def _engine_failed(ended: Exit, target: Container) -> bool:
    is_named = _ENGINE_FAILED in (*target.ok, *target.retry)
    return not ended.started or (ended.status == _ENGINE_FAILED and not is_named)


def _env_file(environment: Mapping[str, str]) -> bytes:
    """Write variables as engines read them, one a line."""
    return "".join(f"{name}={value}\n" for name, value in environment.items()).encode()
