"""The addresses that a job would call: of its webhook, of its workflow's nodes, and of its completion callbacks."""

from __future__ import annotations

from collections.abc import Iterator

from duly.domain.runs.callbacks import Callbacks
from duly.domain.runs.options import RunOptions
from duly.domain.targets.target import Target, Webhook, WorkflowTarget, target_of_node
from duly.domain.workflows.workflow import Workflow


def called_by(options: RunOptions) -> Iterator[str]:
    """Return the addresses among a job's options."""
    yield from _of_target(options.policy.target)
    yield from callback_urls(options.metadata.callbacks)


def called_in(workflow: Workflow) -> Iterator[str]:
    """Return the addresses in a workflow."""
    for node in workflow.nodes:
        yield from called_by(node.submission.options)
    yield from callback_urls(workflow.callbacks)


def callback_urls(callbacks: Callbacks | None) -> Iterator[str]:
    """Return the addresses of completion callbacks."""
    for callback in (callbacks.end, callbacks.failure) if callbacks is not None else ():
        if callback is not None and callback.url is not None:
            yield callback.url


def _of_target(target: Target | None) -> Iterator[str]:
    match target:
        case Webhook(url=url):
            yield url
        case WorkflowTarget(nodes=nodes, callbacks=callbacks):
            for node in nodes:
                yield from _of_target(target_of_node(node))
            yield from callback_urls(callbacks)
