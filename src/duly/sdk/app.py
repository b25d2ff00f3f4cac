"""The app: the handlers of a program, and the address of its database."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, Unpack, overload
from uuid import UUID

from duly.domain.diagnosis.apps import SEPARATOR, check_app_name
from duly.domain.duration import Duration
from duly.domain.errors import InvalidOption, UnknownQueue
from duly.domain.jobs.declaration import Declarations
from duly.domain.jobs.job import check_name
from duly.domain.runs.run import PRIORITY_DEFAULT, QUEUE_DEFAULT, TENANT_DEFAULT
from duly.domain.targets import building
from duly.moves.schedules.calendars import put_calendar
from duly.sdk.background import Background
from duly.sdk.choices import UncheckedWork, handler_options
from duly.sdk.connections import Connections
from duly.sdk.declaration import Declaration, name_of
from duly.sdk.handler import Decorator, Handler
from duly.sdk.job import Job
from duly.sdk.keywords import Declared, ExecutorName, check_known, shape_of
from duly.sdk.run_handle import RunHandle
from duly.sdk.target import Target, check_list
from duly.sdk.workflow_handle import WorkflowHandle
from duly.worker.context import RunContext
from duly.worker.handlers import Handler as Registered
from duly.worker.handlers import Registry, suggestion

Q = ParamSpec("Q")
T = TypeVar("T")


class App:
    """A program's handlers. The database is `url`, else `DULY_DATABASE_URL`, else that of `duly up` in this folder.

    `queues` are those the app uses; with `strict` any other is refused at submit. Nothing is opened before it is needed.
    An app with a `name` calls its handlers by it, `shop:send` for `send`, so that another app may have one of the same name.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        name: str | None = None,
        queues: Sequence[str] | None = None,
        strict: bool = False,
        tenant: int = TENANT_DEFAULT,
    ) -> None:
        if strict and not queues:
            raise InvalidOption("a strict app names its queues: App(queues=[…], strict=True)")
        if isinstance(queues, str):
            raise InvalidOption(f"queues {queues!r} is one text; give a list: App(queues=[{queues!r}])")
        self.name = None if name is None else check_app_name(name)
        self.registry = Registry(prefix="" if name is None else f"{name}{SEPARATOR}")
        self.tenant = tenant
        self.strict = strict
        self.connections = Connections(url)
        self.background = Background()
        self._queues = tuple(check_name(queue, "queue") for queue in queues or ())
        self._handlers: dict[Registered, Handler[Any, Any, Any, Any]] = {}
        self._declared: dict[str, Declaration] = {}

    @overload
    def handler(
        self, function: Callable[Concatenate[RunContext, Q], Coroutine[Any, Any, T]], /
    ) -> Handler[Concatenate[RunContext, Q], Q, Coroutine[Any, Any, T], T]: ...
    @overload
    def handler(self, function: Callable[Q, Coroutine[Any, Any, T]], /) -> Handler[Q, Q, Coroutine[Any, Any, T], T]: ...
    @overload
    def handler(
        self, function: Callable[Concatenate[RunContext, Q], T], /
    ) -> Handler[Concatenate[RunContext, Q], Q, T, T]: ...
    @overload
    def handler(self, function: Callable[Q, T], /) -> Handler[Q, Q, T, T]: ...
    @overload
    def handler(
        self,
        /,
        *,
        name: str | None = None,
        aliases: Sequence[str] = (),
        executor: ExecutorName | None = None,
        resources: Mapping[str, Any] | None = None,
        **declared: Unpack[Declared],
    ) -> Decorator: ...
    def handler(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        aliases: Sequence[str] = (),
        executor: ExecutorName | None = None,
        resources: Mapping[str, Any] | None = None,
        **declared: Unpack[Declared],
    ) -> Any:
        """Register a function under its own name, or under `name`; `aliases` are names it had before, `tags` words to
        find its runs by. `expires_after`: a run that has not started so long after its scheduled moment ends as
        expired. `redact`: parts of the payload that are shown as `***`, such as "$.card", and `on_end` and `on_failure`,
        completion callbacks for every end, or for dead letters, a URL or a job's name: of what this app submits or
        declares. `executor="ray"`: its attempts run on the Ray cluster of the workers, each with `resources` of a node, as
        Ray names them: `num_cpus` (1 by default), `num_gpus`, `memory`, `accelerator_type` and, for your own, `resources`.

        Its parameters are filled from JSON by their annotations; one annotated `duly.Run` and standing first is the
        run. With `cron`, `every`, `when` or `schedule` it has a schedule of its own, which workers register when they
        start, and which calls it with the arguments in `payload`. Raises InvalidOption when it cannot be a handler,
        UnknownQueue when the app is strict; for its schedule TriggerError, InvalidSchedule and InvalidArguments.
        """
        check_known(declared, Declared, "a handler")
        options, shape, payload = handler_options(declared), shape_of(declared), declared.get("payload")
        queue, priority = declared.get("queue"), declared.get("priority")
        if payload is not None and shape is None:
            raise InvalidOption("payload= belongs to a schedule; give cron=, every=, when= or schedule= as well")

        def register(function: Callable[..., Any]) -> Handler[Any, Any, Any, Any]:
            registered = Registered(
                function,
                name=name,
                queue=QUEUE_DEFAULT if queue is None else queue,
                priority=PRIORITY_DEFAULT if priority is None else priority,
                options=options,
                aliases=aliases,
                prefix=self.registry.prefix,
                executor=executor,
                resources=resources,
            )
            declared = None if shape is None else Declaration(name_of(registered), registered, shape, payload)
            return self._register(registered, declared)

        return register if function is None else register(function)

    def webhook(
        self,
        url: str,
        *,
        method: str = "POST",
        headers: Mapping[str, str] | None = None,
        final: Sequence[int] = (),
        retry: Sequence[int] = (),
        callback_within: Duration | None = None,
        queue: str = QUEUE_DEFAULT,
    ) -> Target:
        """Return a webhook to submit: a signed request to `url`, with the payload as its body. Raises InvalidOption.

        `final` and `retry` list statuses to treat otherwise than by default. A receiver that answers 202 may take
        `callback_within` to settle the run.
        """
        webhook = building.webhook(
            url, method=method, headers=headers, final=final, retry=retry, callback_within=callback_within
        )
        return Target(self, webhook, queue)

    def command(
        self,
        argv: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        network: bool = False,
        memory_bytes: int | None = None,
        cpu_seconds: float | None = None,
        processes: int | None = None,
        file_bytes: int | None = None,
        ok: Sequence[int] = (0,),
        retry: Sequence[int] = (75,),
        queue: str = QUEUE_DEFAULT,
    ) -> Target:
        """Return a command to submit: a program by its absolute path, and its arguments; no shell reads them.

        Workers run it if their operator allows the program by name. Exit codes in `ok` are a success, by default 0;
        those in `retry` are retried, by default 75; all others are final. Raises InvalidOption.
        """
        command = building.command(
            check_list(argv, "argv"),
            environment=environment,
            network=network,
            memory_bytes=memory_bytes,
            cpu_seconds=cpu_seconds,
            processes=processes,
            file_bytes=file_bytes,
            ok=ok,
            retry=retry,
        )
        return Target(self, command, queue)

    def container(
        self,
        image: str,
        argv: Sequence[str] = (),
        *,
        environment: Mapping[str, str] | None = None,
        network: bool = False,
        memory_bytes: int | None = None,
        cpus: float | None = None,
        processes: int | None = None,
        ok: Sequence[int] = (0,),
        retry: Sequence[int] = (75,),
        queue: str = QUEUE_DEFAULT,
    ) -> Target:
        """Return a container to submit: an image that workers run if their operator allows it by name. Raises InvalidOption."""
        container = building.container(
            image,
            check_list(argv, "argv"),
            environment=environment,
            network=network,
            memory_bytes=memory_bytes,
            cpus=cpus,
            processes=processes,
            ok=ok,
            retry=retry,
        )
        return Target(self, container, queue)

    def __getitem__(self, name: str) -> Handler[..., ..., Any, Any]:
        """Return the handler of a name or alias. Raises UnknownHandler, naming the nearest."""
        return self._handlers[self.registry[name]]

    def job(self, job: UUID | str) -> Job[Any]:
        """Return a recurring job, by its name or its id; nothing is read before it is used. Raises InvalidOption."""
        return Job(self, job)

    def run(self, run_id: UUID | str) -> RunHandle[Any]:
        """Return a handle on a run, by its id; whether it exists is checked on use."""
        return RunHandle(self, UncheckedWork("a run"), UUID(str(run_id)), "unknown")

    def workflow(self, workflow_id: UUID) -> WorkflowHandle:
        """Return a handle on a submitted workflow, by its id; nothing is read before it is used."""
        return WorkflowHandle(self, workflow_id)

    async def put_calendar(self, calendar: Mapping[str, Any]) -> int:
        """Store a calendar, new or changed, for schedules to name. Returns how many were rearmed.

        Raises TriggerError when it is invalid, or blocks a job that uses it for 400 days.
        """
        kept = await put_calendar(await self.connections.database(), calendar, self.tenant)
        return kept.schedules

    def put_calendar_sync(self, calendar: Mapping[str, Any]) -> int:
        """Store a calendar, from a plain function."""
        return self.background.run(self.put_calendar(calendar))

    @property
    def queues(self) -> list[str]:
        """The queues this app uses: those it declares, and those of its handlers."""
        return list(dict.fromkeys([*self._queues, *(handler.queue for handler in self.registry)])) or [QUEUE_DEFAULT]

    def declarations(self, source: str) -> Declarations:
        """Return the schedules that the app declares, for a program named `module:app`."""
        return Declarations(self.tenant, source, [declared.job(source) for declared in self._declared.values()])

    def check_queue(self, queue: str) -> None:
        """Refuse a queue that a strict app does not declare. Raises UnknownQueue."""
        if self.strict and queue not in self._queues:
            meant = suggestion(queue, self._queues)
            stop = "" if meant.endswith("?") else "."
            raise UnknownQueue(
                f"this app has no queue {queue!r}; {meant}{stop} A new queue is declared in App(queues=[…])"
            )

    def locate(self) -> str:
        """Return the database's address. Raises DatabaseUnusable, naming the remedy."""
        return self.connections.locate()

    def suggest(self, url: str) -> None:
        """Set the database, unless the app was given an address: what its handlers submit goes where they run."""
        self.connections.suggest(url)

    async def close(self) -> None:
        """Close every connection; the next use opens them again."""
        self.background.close_idle()
        await self.connections.close()

    def close_sync(self) -> None:
        """Close every connection, from a plain function, and end the thread of the sync methods."""
        self.background.run(self.close())
        self.background.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _register(self, registered: Registered, declared: Declaration | None) -> Handler[Any, Any, Any, Any]:
        handler: Handler[Any, Any, Any, Any] = Handler(self, registered)
        if declared is not None:
            self._check_declared(declared)
        self.registry.add(registered)
        if declared is not None:
            self._declared[declared.name] = declared
        self._handlers[registered] = handler
        return handler

    def declare(self, declared: Declaration) -> None:
        """Add a schedule that workers register when they start. Raises InvalidOption when its name is taken."""
        self._check_declared(declared)
        self._declared[declared.name] = declared

    def _check_declared(self, declared: Declaration) -> None:
        if declared.name in self._declared:
            raise InvalidOption(f"two schedules are called {declared.name!r}; give one of them another name")
