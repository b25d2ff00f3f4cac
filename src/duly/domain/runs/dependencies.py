"""Dependencies of a one-shot: other jobs, and the outcome required of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from uuid import UUID

from duly.domain.errors import InvalidOption
from duly.domain.triggers.errors import shown

DEPENDENCIES_MAX = 100
ON = ("success", "failure", "always")

DependsOn = tuple[tuple[str, str], ...]  # as runs carry it: a job's id, and one of ON


def check_dependencies(requested: Iterable[tuple[UUID | str, str]]) -> DependsOn:
    """Check jobs and the outcome required of each. Raises InvalidOption."""
    pairs = tuple((_job(job), _end(on, job)) for job, on in requested)
    if len(pairs) > DEPENDENCIES_MAX:
        raise InvalidOption(
            f"depends_on names {len(pairs)} jobs; the limit is {DEPENDENCIES_MAX}. Chain some of them, or use a workflow"
        )
    named = Counter(job for job, _ in pairs)
    if (twice := next((job for job, times in named.items() if times > 1), None)) is not None:
        raise InvalidOption(f"depends_on names job {twice} twice; name it once, with on: always for any end")
    return pairs


def read_dependency(text: str) -> tuple[str, str]:
    """Parse a dependency as typed: a job's id, or with `:failure` or `:always` after it. Raises InvalidOption."""
    job, _, on = text.partition(":")
    return check_dependencies([(job, on or ON[0])])[0]


def _job(value: UUID | str) -> str:
    try:
        return str(value if isinstance(value, UUID) else UUID(value))
    except (ValueError, AttributeError, TypeError):
        raise InvalidOption(
            f"depends_on {shown(value)} is not a job id; use the id that submitting the job returned"
        ) from None


def _end(on: str, job: UUID | str) -> str:
    if on not in ON:
        raise InvalidOption(f"depends_on {job} on {shown(on)} is unknown; use success, failure or always")
    return on
