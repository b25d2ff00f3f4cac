"""Sealing: no credential of a target is written in clear text. Every move that writes a definition seals it first.

The database that is passed to a move names the keyring, as it names the actor. Without secrets it is not needed.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from duly.domain.errors import InvalidOption, InvalidWorkflow
from duly.domain.jobs.declaration import Declarations
from duly.domain.jobs.job import Recurring, Submission
from duly.domain.jobs.unmasked import unmasked
from duly.domain.runs.options import NO_OPTIONS, RunOptions, options_of
from duly.domain.tenancy.sealed_options import seal_options
from duly.domain.tenancy.sealing import FindKeyring, no_keyring
from duly.domain.workflows.workflow import Node, Workflow

J = TypeVar("J", Submission, Recurring)


def sealed(connection: Any, tenant: int, job: J, standing: RunOptions = NO_OPTIONS) -> J:
    """Return a job with its secrets sealed; `***` stands for the value in the stored options.

    Raises InvalidOption, and InvalidPayload where a new payload has the mark of a redacted value.
    """
    if job.options.metadata.redact:
        job = unmasked(job)  # Of a change, marks were replaced before.
    options = seal_options(job.options, tenant, keyring_of(connection), standing)
    return job if options is job.options else msgspec.structs.replace(job, options=options)


def sealed_workflow(connection: Any, tenant: int, workflow: Workflow) -> Workflow:
    """Return a workflow with its secrets sealed. Raises InvalidOption, InvalidWorkflow."""
    nodes = tuple(sealed_node(connection, tenant, node) for node in workflow.nodes)
    callbacks = workflow.callbacks
    if callbacks is not None:
        callbacks = seal_options(options_of(callbacks=callbacks), tenant, keyring_of(connection)).metadata.callbacks
    return msgspec.structs.replace(workflow, nodes=nodes, callbacks=callbacks)


def sealed_node(connection: Any, tenant: int, node: Node) -> Node:
    """Return a node with its secrets sealed. Raises InvalidWorkflow."""
    try:
        shot = sealed(connection, tenant, node.submission)
    except InvalidOption as error:
        raise InvalidWorkflow(f"node {node.name!r}: {error}", ("nodes", node.name)) from None
    return node if shot is node.submission else msgspec.structs.replace(node, submission=shot)


def sealed_declarations(find: FindKeyring, declarations: Declarations) -> Declarations:
    """Return a program's declarations with their secrets sealed, equally in each of its workers. Raises InvalidOption."""
    jobs = [
        msgspec.structs.replace(job, options=seal_options(job.options, declarations.tenant, find))
        for job in declarations.jobs
    ]
    return msgspec.structs.replace(declarations, jobs=jobs)


def keyring_of(connection: Any) -> FindKeyring:
    """Return how the keyring is found; a connection that names none has none."""
    find: FindKeyring = getattr(connection, "keyring", no_keyring)
    return find
