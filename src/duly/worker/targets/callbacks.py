"""What a webhook carries so that its receiver may settle the run later, and what becomes of the run when it will."""

from __future__ import annotations

from collections.abc import Mapping

from duly.domain.runs.callback_token import HEADER, CallbackTokens
from duly.domain.runs.outcome import Awaited
from duly.domain.runs.run import Run
from duly.domain.targets.checks import callback_seconds
from duly.domain.targets.target import Webhook

WITHIN_SECONDS_DEFAULT = 86_400.0


class ReceiverCallbacks:
    """Gives each attempt a token, by which its receiver may say what it came to."""

    def __init__(self, tokens: CallbackTokens) -> None:
        self._tokens = tokens

    async def headers_for(self, run: Run, target: Webhook) -> Mapping[str, str]:
        """Give the header with the token."""
        return {HEADER: self._tokens.make(run.run_id, run.fence)}

    def awaited(self, run: Run, target: Webhook) -> Awaited:
        """Leave the run open for as long as its target says."""
        within = target.callback_within_seconds
        return Awaited(WITHIN_SECONDS_DEFAULT if within is None else callback_seconds(within))
