"""Workflows, built in Python: nodes, their dependencies, and the results that they pass on."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Unpack

import msgspec

from duly.domain.counting import some
from duly.domain.errors import InvalidArguments, InvalidOption, InvalidWorkflow
from duly.domain.fields import non_defaults
from duly.domain.jobs.job import check_key, check_name, check_priority, check_tags
from duly.domain.jobs.spec_of import workflow_spec_of
from duly.domain.runs.callbacks import check_callbacks
from duly.domain.runs.options import options_of
from duly.domain.runs.run import PRIORITY_DEFAULT, QUEUE_DEFAULT
from duly.domain.targets.addresses import called_by, called_in
from duly.domain.targets.target import WORKFLOW
from duly.domain.triggers.errors import shown
from duly.domain.workflows.references import Reference as KnownReference
from duly.domain.workflows.target import target_for
from duly.domain.workflows.workflow import Edge as KnownEdge
from duly.domain.workflows.workflow import Node as KnownNode
from duly.domain.workflows.workflow import On, check_node_name, check_workflow
from duly.domain.workflows.workflow import Workflow as Known
from duly.moves.workflows.workflows import add_nodes, submit_workflow
from duly.sdk.choices import Choices, UncheckedWork
from duly.sdk.declaration import Declaration
from duly.sdk.keywords import CallbackTarget, When, check_known, shape_of
from duly.sdk.references import Edge, Fault, Item, OfNode, Reference, placeholders, written
from duly.sdk.submitter import Submitter, send_until_answered
from duly.sdk.workflow_handle import WorkflowHandle
from duly.worker.context import RunContext

if TYPE_CHECKING:
    from duly.sdk.app import App

# Options that say when a job runs, or identify it: a node runs when its parents have ended.
_NOT_OF_A_NODE = (
    *("at", "delay", "every", "cron", "when", "schedule", "tz", "mode", "start", "end", "max_runs", "jitter"),
    *("misfire", "overlap", "calendars", "pause_on_failure", "name", "key", "on_end", "on_failure", "parent"),
    *("connection", "tenant", "depends_on"),
)


class Node:
    """A node of a workflow. In `depends_on` it stands for its success, `failed` for its failure, `ended` for either."""

    __slots__ = ("_owner", "name")

    def __init__(self, owner: Workflow, name: str) -> None:
        self._owner = owner
        self.name = name

    @property
    def result(self) -> Reference:
        """Its result, for the arguments of others; `result["rows"][0]` is a part of it."""
        return Reference(self._owner, self.name)

    @property
    def error(self) -> Fault:
        """Its error, for the arguments of a node that depends on its failure or its end.

        An object with `state`, `class`, `message` and `attempts`; `error["message"]` is a part of it. Null when there
        is none.
        """
        return Fault(self._owner, self.name)

    @property
    def succeeded(self) -> Edge:
        """The condition that it has succeeded."""
        return Edge(self._owner, self.name, "success")

    @property
    def failed(self) -> Edge:
        """The condition that it has failed, was cancelled or has expired."""
        return Edge(self._owner, self.name, "failure")

    @property
    def ended(self) -> Edge:
        """The condition that it has ended in any way, also as skipped."""
        return Edge(self._owner, self.name, "always")

    def __repr__(self) -> str:
        return f"<Node {self.name} of {self._owner.name}>"


class Workflow:
    """A workflow of handlers and targets of one app.

    It may be submitted any number of times, and declared as a schedule.

    `on_end` and `on_failure`: a URL, or the name of a job, that is notified of its end, or of its failure.
    """

    item = Item()
    """The placeholder, in the arguments of a mapped node, for the item of a run."""

    def __init__(
        self,
        name: str,
        *,
        app: App | None = None,
        tags: Sequence[str] = (),
        on_end: CallbackTarget | None = None,
        on_failure: CallbackTarget | None = None,
    ) -> None:
        self.name = check_name(name, "workflow")
        self._app = app
        self._tags = check_tags(tags)
        self._callbacks = check_callbacks(on_end, on_failure)
        self._nodes: dict[str, KnownNode] = {}

    def add(
        self,
        name: str,
        work: Submitter[..., Any],
        /,
        *args: Any,
        depends_on: Sequence[Node | Edge] = (),
        **kwargs: Any,
    ) -> Node:
        """Add a node: a handler or a target, as it is or with `.options(…)`, and its arguments.

        An argument may be, or contain, the `result` of another node, which then must succeed first, or its `error`:
        then it must fail, unless `depends_on` says otherwise. `depends_on` names further nodes to depend on. Raises
        InvalidWorkflow, InvalidArguments, InvalidPayload, InvalidOption, UnknownQueue.
        """
        return self._add(name, work, args, kwargs, depends_on, None)

    def map(
        self,
        name: str,
        work: Submitter[..., Any],
        /,
        *args: Any,
        over: Reference,
        depends_on: Sequence[Node | Edge] = (),
        **kwargs: Any,
    ) -> Node:
        """Add a node with one run for each item of a list that is another node's result; its own result is the list of
        theirs.

        The item is the first argument, unless `item` is among the arguments. Raises as `add` does.
        """
        if not isinstance(over, Reference):
            raise InvalidArguments(
                f"over {shown(over)} is no result of a node; give one, such as listing.result, or add a node for each"
            )
        if not any(isinstance(one, Item) for one in placeholders([args, kwargs])):
            args = (self.item, *args)
        return self._add(name, work, args, kwargs, depends_on, over)

    def spec(self) -> dict[str, Any]:
        """Return the body of `POST /v1/workflows` and the input of `duly workflows submit`. Raises InvalidWorkflow."""
        return non_defaults(workflow_spec_of(self._checked()))

    async def submit(self, *, key: str | None = None) -> WorkflowHandle:
        """Submit it whole: durable when this returns.

        Submitted again under the same `key` within a day, it is stored once.

        Raises InvalidWorkflow, DatabaseUnusable, or Unavailable when the outcome is unknown.
        """
        app, workflow = self.app, self._checked()
        app.connections.check_calls(called_in(workflow))
        chosen = secrets.token_urlsafe(16) if key is None else check_key(key)
        created = await send_until_answered(
            await app.connections.database(is_audited=False),
            lambda database, key: submit_workflow(database, app.tenant, key, workflow),
            chosen,
            "workflow",
        )
        waker = await app.connections.waker()
        for queue in {node.submission.queue for node in workflow.nodes if not node.depends_on}:
            waker.wake(queue)
        return WorkflowHandle(app, created.workflow_id, self.name, replayed=created.replayed)

    def submit_sync(self, *, key: str | None = None) -> WorkflowHandle:
        """Submit it, from a plain function."""
        return self.app.background.run(self.submit(key=key))

    async def add_to(self, run: RunContext) -> list[str]:
        """Add these nodes to the workflow of a running node, under its fence. Returns their names.

        Those without `depends_on` depend on the running node, and its children wait for them. Without any, nothing is done.
        Nodes that it has added before, in another attempt, are left as they are. Raises InvalidWorkflow,
        WorkflowChanged, NotFound when the run is no node.
        """
        if not self._nodes:
            return []
        nodes = tuple(self._nodes.values())
        self.app.connections.check_calls(url for node in nodes for url in called_by(node.submission.options))
        return await add_nodes(await self.app.connections.database(), self.app.tenant, run.id, run.fence, nodes)

    def add_to_sync(self, run: RunContext) -> list[str]:
        """Add these nodes to the workflow of a running node, from a plain function."""
        return self.app.background.run(self.add_to(run)) if self._nodes else []

    def declare(
        self,
        name: str | None = None,
        *,
        queue: str = QUEUE_DEFAULT,
        priority: int = PRIORITY_DEFAULT,
        **when: Unpack[When],
    ) -> None:
        """Give it a schedule, under its own name or another, which the app's workers register when they start.

        Each occurrence starts it, and is active until it has ended: `overlap` covers the whole workflow. Raises
        InvalidOption, InvalidWorkflow, UnknownQueue, TriggerError, InvalidSchedule.
        """
        check_known(when, When, "a schedule")
        chosen, shape, workflow = name or self.name, shape_of(when), self._checked()
        if shape is None:
            raise InvalidOption(f"the schedule {chosen!r} does not say when; give cron=, every=, when= or schedule=")
        self.app.check_queue(check_name(queue, "queue"))
        options = options_of(
            target=target_for(msgspec.structs.replace(workflow, callbacks=None)),
            tags=self._tags,
            callbacks=self._callbacks,
        )
        self.app.declare(
            Declaration(chosen, UncheckedWork(WORKFLOW, options, queue, check_priority(priority)), shape, None)
        )

    @property
    def app(self) -> App:
        """The app of its handlers and targets. Raises InvalidWorkflow while it has none."""
        if self._app is None:
            raise InvalidWorkflow(f"workflow {self.name!r} has no nodes; add one: wf.add(name, handler)")
        return self._app

    def __repr__(self) -> str:
        return f"<Workflow {self.name} of {some(len(self._nodes), 'node')}>"

    def _add(
        self,
        name: str,
        work: Submitter[..., Any],
        args: Sequence[Any],
        kwargs: dict[str, Any],
        depends_on: Sequence[Node | Edge],
        over: Reference | None,
    ) -> Node:
        if isinstance(name, Submitter):
            raise InvalidWorkflow(f"the name of a node comes first: wf.add('a name', {name!r}, …)")
        if check_node_name(name) in self._nodes:
            raise InvalidWorkflow(f"two nodes of {self.name} are called {name!r}; give one of them another name")
        self._check_work(name, work)
        given = [*placeholders([args, kwargs]), *(() if over is None else (over,))]
        edges = self._edges(name, depends_on, [one for one in given if isinstance(one, OfNode)])
        shot = work._choices.shot(work._work.encode_open(args, kwargs, written))
        reference = None if over is None else KnownReference(over.node, over.path)
        self._nodes[name] = KnownNode(name, shot, edges, reference)
        return Node(self, name)

    def _check_work(self, name: str, work: Submitter[..., Any]) -> None:
        """Refuse work of another app. Raises InvalidWorkflow, InvalidOption."""
        if not isinstance(work, Submitter):
            raise InvalidWorkflow(
                f"node {name!r}: {shown(work)} is neither a handler nor a target of an app; decorate it with @app.handler"
            )
        if self._app is not None and work._app is not self._app:
            raise InvalidWorkflow(f"node {name!r}: {work._work.name} is of another app; a workflow is of one")
        _check_choices(name, work._choices)
        self._app = work._app

    def _edges(
        self, name: str, depends_on: Sequence[Node | Edge], references: Sequence[OfNode]
    ) -> tuple[KnownEdge, ...]:
        """Return the dependencies of a node: the named ones, and those that its arguments refer to."""
        if isinstance(depends_on, Node | Edge | str) or not isinstance(depends_on, Iterable):
            raise InvalidWorkflow(
                f"node {name!r}: depends_on= takes a list of nodes, such as depends_on=[extract]; given is {shown(depends_on)}"
            )
        found: dict[str, Edge] = {}
        for one in depends_on:
            edge = one.succeeded if isinstance(one, Node) else one
            if not isinstance(edge, Edge):
                raise InvalidWorkflow(
                    f"node {name!r}: after {shown(one)} is no node; give nodes that add() gave, or their .failed or .ended"
                )
            self._check_own(name, edge)
            found[edge.node] = edge
        for reference in references:
            self._check_own(name, reference)
            found.setdefault(
                reference.node, Edge(self, reference.node, "failure" if isinstance(reference, Fault) else "success")
            )
        return tuple(KnownEdge(edge.node, On(edge.on)) for edge in found.values())

    def _check_own(self, name: str, other: Edge | OfNode) -> None:
        if other.owner is not self:
            raise InvalidWorkflow(
                f"node {name!r}: {other.node!r} is a node of another workflow; a node waits for nodes of its own"
            )

    def _checked(self) -> Known:
        nodes = tuple(self._nodes.values())
        workflow = Known(self.name, nodes, self._tags, self._callbacks)
        check_workflow(workflow)
        return workflow


def _check_choices(name: str, choices: Choices) -> None:
    """Refuse options that say when a job runs. Raises InvalidOption."""
    said = [option for option in _NOT_OF_A_NODE if option in choices.given]
    if said:
        raise InvalidOption(
            f"node {name!r}: {said[0]}= is no option of a node, which runs when those before it have ended; leave it out"
        )
