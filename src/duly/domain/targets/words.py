"""Descriptions of targets, for people: what runs, and which worker would run it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from duly.domain.runs.run import QUEUE_DEFAULT
from duly.domain.targets.target import COMMAND, CONTAINER, NOTIFICATION, WEBHOOK, WORKFLOW
from duly.domain.targets.webhook_url import shown_url


def described(target: Mapping[str, Any]) -> str:
    """Describe a target as responses have it, whole or in short, without possible secrets."""
    match target:
        case {"type": "webhook", "url": str(url)}:
            return f"webhook {shown_url(url)}"
        case {"type": "command", "argv": [program, *_]}:
            return f"command {program}"
        case {"type": "container", "image": image}:
            return f"container {image}"
        case {"type": "workflow", "name": str(name)}:
            return f"workflow {name}"
    return str(target.get("handler") or target["type"])


def unroutable_remedy(handler: str, queue: str, app: str = "module:app") -> str:
    """Describe the worker that would run a handler: for a function one of its app, for other targets one that allows it."""
    flag = "" if queue == QUEUE_DEFAULT else f" --queue {queue}"
    if handler == WEBHOOK:
        return f"start a worker that sends webhooks: duly worker --webhooks 500{flag}"
    if handler == NOTIFICATION:
        return "start a worker that sends webhooks, which delivers notifications, too: duly worker --webhooks 500"
    if handler == WORKFLOW:
        return f"start any worker for its queue: duly worker {app}{flag}"
    for beginning, setting in ((COMMAND, "commands"), (CONTAINER, "containers")):
        if handler.startswith(beginning):
            name = handler.removeprefix(beginning)
            allowing = f"DULY_{setting.upper()}={name} duly worker{flag}"
            return f"allow {name} in the setting {setting} of a worker: {allowing}"
    return f"start a worker for the app that has it: duly worker {app}{flag}"
