"""Targets: a run calls a function, sends a webhook, runs a command or a container, or starts a workflow.

A function is identified by its name. Every other target is kept whole among the run's options, so that it moves with the
row; the run's handler is then a name that begins with `@`, which only workers that allow such targets claim.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, assert_never

import msgspec

from duly.domain.errors import InvalidOption
from duly.domain.runs.callbacks import Callbacks
from duly.domain.targets.program_environment import check_allowed_variables
from duly.domain.triggers.errors import shown

if TYPE_CHECKING:
    from duly.domain.jobs.job import Recurring, Submission

J = TypeVar("J", bound="Submission | Recurring")

RESERVED = "@"  # prefix of the handlers of targets; never of a function's
WEBHOOK = "@webhook"
COMMAND = "@command:"
CONTAINER = "@container:"
WORKFLOW = "@workflow"
NOTIFICATION = "@notification"  # delivers notifications; no target that anybody submits
_UNSIGNED = (
    "webhooks cannot be signed: the server has no key to seal their secrets with; create one:"
    " `duly secrets new-key > FILE`, and name that file in DULY_SECRETS_KEY"
)

FUNCTION = "function"  # the type of a function target


class Webhook(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="webhook"):
    """A request to a URL. `final` and `retry` list statuses to treat otherwise than by default."""

    url: str
    method: str = "POST"
    headers: Mapping[str, str] = {}
    final: tuple[int, ...] = ()
    retry: tuple[int, ...] = ()
    callback_within_seconds: float | None = None  # how long a receiver that answered 202 may take to settle the run
    sealed_url: str | None = None  # the whole URL, sealed, if the query of `url` has its secrets removed


class Command(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="command"):
    """A program with its arguments, without a shell. Exit codes other than `ok` and `retry` are final."""

    argv: tuple[str, ...]
    environment: Mapping[str, str] = {}
    network: bool = False
    memory_bytes: int | None = None
    cpu_seconds: float | None = None
    processes: int | None = None
    file_bytes: int | None = None
    ok: tuple[int, ...] = (0,)
    retry: tuple[int, ...] = (75,)


class Container(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="container"):
    """An image and its arguments. Exit codes mean the same as a command's."""

    image: str
    argv: tuple[str, ...] = ()
    environment: Mapping[str, str] = {}
    network: bool = False
    memory_bytes: int | None = None
    cpus: float | None = None
    processes: int | None = None
    ok: tuple[int, ...] = (0,)
    retry: tuple[int, ...] = (75,)


class WorkflowTarget(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="workflow"):
    """A workflow that the run starts, and whose outcome it takes. `domain/workflows/target.py` writes its nodes."""

    name: str
    nodes: tuple[Mapping[str, Any], ...]
    tags: tuple[str, ...] = ()
    callbacks: Callbacks | None = None


Target = Webhook | Command | Container | WorkflowTarget


def handler_of(target: Target) -> str:
    """Return the handler that a worker must have to claim runs of this target."""
    match target:
        case Webhook():
            return WEBHOOK
        case Command(argv=argv):
            return COMMAND + argv[0]
        case Container(image=image):
            return CONTAINER + image
        case WorkflowTarget():
            return WORKFLOW


def target_of_node(node: Mapping[str, Any]) -> Target | None:
    """Return the target of a workflow target's node, unless it is a function."""
    found = (node.get("options") or {}).get("target")
    return None if found is None else msgspec.convert(found, Target)


def type_of(handler: str) -> str:
    """Return the target type of a handler."""
    return handler[len(RESERVED) :].partition(":")[0] if is_reserved(handler) else FUNCTION


def is_reserved(handler: str) -> bool:
    """Return whether a handler's name stands for a target other than a function."""
    return handler.startswith(RESERVED)


def check_handler(name: str) -> str:
    """Check the name of a function. Raises InvalidOption."""
    if is_reserved(name):
        raise InvalidOption(
            f"handler {shown(name)} begins with {RESERVED}, which is reserved; name a function,"
            " or use a target of type webhook, command, container or workflow"
        )
    return name


class Allowed(msgspec.Struct, frozen=True):
    """The programs, each with the variables that jobs may set, the images and the schemes of Apprise that an operator
    allows; webhooks, if signed.

    `check_call` refuses addresses that no worker would call, judging by the address alone.
    """

    commands: Mapping[str, Collection[str]] = {}
    containers: frozenset[str] = frozenset()
    webhooks: bool = True
    apprise_schemes: frozenset[str] = frozenset()
    check_call: Callable[[str], None] | None = None

    def admitted(self, job: J) -> J:
        """Return a job whose target and callbacks are all allowed here. Raises InvalidOption."""
        self.check_callbacks_allowed(job.options.metadata.callbacks)
        self.check(job.options.policy.target)
        return job

    def check(self, target: Target | None) -> None:
        """Refuse a target that is not allowed here. Raises InvalidOption."""
        match target:
            case Webhook() if not self.webhooks:
                raise InvalidOption(_UNSIGNED)
            case Webhook(url=url):
                self.check_url(url)
            case Command(argv=argv) if argv[0] not in self.commands:
                raise _not_allowed("command", argv[0], "commands")
            case Command(argv=argv, environment=environment):
                check_allowed_variables(argv[0], environment, self.commands[argv[0]])
            case Container(image=image) if image not in self.containers:
                raise _not_allowed("container image", image, "containers")
            case WorkflowTarget(nodes=nodes):
                for node in nodes:
                    self.check(target_of_node(node))
            case Container() | None:
                pass
            case _:  # a new kind of target passes only with a case above
                assert_never(target)

    def check_callbacks_allowed(self, callbacks: Callbacks | None) -> None:
        """Refuse callback URLs where webhooks are not allowed. Raises InvalidOption."""
        if callbacks is None:
            return
        for name, callback in (("on_end", callbacks.end), ("on_failure", callbacks.failure)):
            if callback is None or callback.url is None:
                continue
            if not self.webhooks:
                raise InvalidOption(f"{name} names a URL, and {_UNSIGNED}")
            self.check_url(callback.url)

    def check_url(self, url: str) -> None:
        """Refuse an address that no worker would call. Raises InvalidOption."""
        if self.check_call is not None:
            self.check_call(url)


def _not_allowed(what: str, name: str, setting: str) -> InvalidOption:
    return InvalidOption(
        f"{what} {shown(name)} is not allowed; the operator allows each by name,"
        f" in the setting {setting} of the API and of the workers that run it"
    )
