"""What a job runs, as it is told: a workflow with its nodes, any other target as it is asked for."""

from __future__ import annotations

from typing import Any

from duly.domain.jobs.manifest_export import told_workflow
from duly.domain.runs.run import target_of
from duly.domain.targets import shapes
from duly.domain.targets.target import WorkflowTarget


def told_of(handler: str, options: str | None) -> dict[str, Any]:
    """Tell what runs, from its row, without secrets; of what this version cannot read, no more than its type."""
    target = target_of(options)
    return told_workflow(target) if isinstance(target, WorkflowTarget) else shapes.told_of(handler, options)
