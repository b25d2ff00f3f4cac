"""Apprise: one notification through one of its services, in a child process that may do nothing but call out.

The operator allows schemes by name. The child gets nothing of our environment and no keys, and each of its connections is held to
the egress rules (`apprise_process.py`); it is killed at the deadline. Of its output no word is passed on: it may quote
the URL, which is secret.
"""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Collection
from contextlib import suppress

import msgspec

from duly.outbound.apprise_process import Order, Report
from duly.outbound.calling import DeadlinePassed
from duly.outbound.egress import Egress
from duly.outbound.errors import BadAnswer, NoAnswer, NotAllowed

PROCESSES_MAX = 4
# All that the child gets: where requests looks for passwords, there are none.
_ENVIRONMENT = {"NETRC": os.devnull}


class Apprise:
    """Sends through Apprise, a few at once. Lives on one loop."""

    def __init__(self, schemes: Collection[str], egress: Egress) -> None:
        self._schemes = frozenset(schemes)
        self._egress = egress
        self._slots = asyncio.Semaphore(PROCESSES_MAX)

    async def deliver(self, scheme: str, url: str, title: str, body: str, *, seconds: float) -> None:
        """Send a notification within `seconds`, which do not include the wait for a free process. Raises OutboundError."""
        if scheme not in self._schemes:
            raise NotAllowed(
                f"Apprise scheme {scheme} is not allowed; the operator allows each in the setting apprise_schemes"
            )
        allowances = tuple((str(one.network), one.port) for one in self._egress.allowances)
        order = Order(url, title, body, tuple(self._egress.ports), allowances, self._egress.loopback)
        async with self._slots:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-m", "duly.outbound.apprise_process"),
                stdin=PIPE, stdout=PIPE, stderr=DEVNULL, env=_ENVIRONMENT, cwd="/",
            )  # fmt: skip
            try:
                async with asyncio.timeout(seconds):
                    output, _ = await process.communicate(msgspec.json.encode(order))
            except TimeoutError:
                raise DeadlinePassed(f"Apprise has not answered within {seconds:g} s") from None
            finally:
                if process.returncode is None:
                    with suppress(ProcessLookupError):
                        process.kill()
                    await process.wait()
        _check(output, process.returncode)


def _check(output: bytes, status: int | None) -> None:
    try:
        report = msgspec.json.decode(output, type=Report)
    except msgspec.MsgspecError:
        raise BadAnswer(f"Apprise ended with status {status} and no answer") from None
    if report.problem == "refused":
        raise NotAllowed("the service of the channel needs an address or a file that is not allowed", report.detail)
    if report.problem == "missing":
        raise BadAnswer("Apprise is not installed on the worker; install duly[notify] there")
    if report.problem == "unreadable":
        raise BadAnswer("Apprise cannot read the URL of the channel; its list of services says how to write it")
    if report.problem is not None:
        raise NoAnswer("the service of the channel did not take the notification")
