"""Many jobs in one request. Plain one-shots go in together; each line that cannot be taken is answered by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec

from duly.api.operations import Call, Routes
from duly.api.problems import Refusal, found_in
from duly.api.response import NDJSON, OCTETS, Response
from duly.api.routes.jobs import carried_by, due_of
from duly.domain.errors import QuotaReached, Refused
from duly.domain.jobs.compile import compile_spec
from duly.domain.jobs.job import Recurring, Submission, check_key
from duly.domain.jobs.when import is_for_now
from duly.domain.tenancy.audit import Action
from duly.domain.triggers.on_event import NEVER
from duly.domain.triggers.schedule.summary import only_run_id
from duly.moves import submit as moves
from duly.moves.submit import Accepted, record_jobs
from duly.store.connection.hints import DUE
from duly.store.tables.jobs import Submitted
from duly.wire.jobs.batches import BATCH_BYTES_MAX, LINES_MAX, LineRefused, LineResult
from duly.wire.jobs.jobs import NewJob
from duly.wire.schema.reading import read_body
from duly.wire.schema.shapes import Nothing

routes = Routes("jobs", reads="jobs:read", writes="jobs:write")
_YIELD_EVERY = 500  # lines read before other tasks on this loop run
_TOGETHER = 5_000
_encoder = msgspec.json.Encoder()


class _Line(msgspec.Struct, frozen=True):
    number: int
    job: Submission | Recurring
    key: str | None

    @property
    def goes_together(self) -> bool:
        """Return whether it is a plain one-shot without a key of its own."""
        return self.key is None and isinstance(self.job, Submission)


@routes.add(
    "POST /v1/jobs:batch",
    media_type=NDJSON,
    responses={200: LineResult},
    response_type=NDJSON,
    refuses=("rate_limited", "quota_reached"),
    body_bytes_max=BATCH_BYTES_MAX,
    seconds_max=60.0,
    audits=(Action.JOB_CREATED,),
)
async def create_jobs(call: Call[Nothing, bytes]) -> Response:
    """Create up to 50,000 jobs, one a line (NDJSON).

    Each line of the response has the result of the line of that number: a job, durable when this answers, or why it was
    refused, such as `shed` where its queue is overloaded. Refused lines do not delay the others. If the request fails
    as a whole, no line was accepted.
    """
    lines = call.body.split(b"\n", LINES_MAX + 1)  # What is more is not split: it may be nothing but ends of lines.
    if len(lines) > LINES_MAX + 1 or (len(lines) == LINES_MAX + 1 and lines[-1]):
        raise Refusal("body_too_large", f"The body has more than {LINES_MAX} lines.", remedy="Send several requests.")
    numbered = [(number, line) for number, line in enumerate(lines, start=1) if line and not line.isspace()]
    if numbered:
        await call.admit(len(numbered))
    answers = await _take(call, numbered)
    await record_jobs(call.database, call.tenant, sum(one.error is None and not one.replayed for one in answers))
    answers.sort(key=lambda answer: answer.line)
    refused = sum(answer.error is not None for answer in answers)
    headers = {"Duly-Accepted": str(len(answers) - refused), "Duly-Refused": str(refused)}
    named = call.headers.get("content-type", "").partition(";")[0].strip().lower()
    return Response(200, _encoder.encode_lines(answers), headers, media_type=OCTETS if named == OCTETS else NDJSON)


async def _take(call: Call[Any, bytes], lines: Sequence[tuple[int, bytes]]) -> list[LineResult]:
    """Take the lines in: while the store has some, the next are read. Those that go in by themselves come last."""
    answers: list[LineResult] = []
    alone: list[_Line] = []
    key = call.key or str(call.services.rng.uuid())
    storing: asyncio.Task[list[LineResult]] | None = None
    try:
        for start in range(0, len(lines), _TOGETHER):
            read = await _read(call, lines[start : start + _TOGETHER], answers)
            together = [line for line in read if line.goes_together]
            alone += [line for line in read if not line.goes_together]
            if storing is not None:
                answers += await storing
            storing = asyncio.create_task(_submit_together(call, together, f"{key}/{start}"), name="duly-batch")
        if storing is not None:
            answers += await storing
    finally:
        if storing is not None and not storing.done():  # It is using the session, which is about to end.
            storing.cancel()
            await asyncio.gather(storing, return_exceptions=True)
    for line in alone:
        answers.append(await _submit_alone(call, line, f"{key}:{line.number}"))
    return answers


async def _read(call: Call[Any, bytes], lines: Sequence[tuple[int, bytes]], answers: list[LineResult]) -> list[_Line]:
    read: list[_Line] = []
    now, extra = call.now, call.run_metadata
    await call.services.shedding.look()
    for number, line in lines:
        if number % _YIELD_EVERY == 0:
            await call.clock.sleep(0)
        try:
            requested = read_body(line, NewJob)
            job = call.services.allowed.admitted(compile_spec(requested, now, carried=carried_by(requested) | extra))
            if isinstance(job, Submission) or is_for_now(requested):
                at = due_of(job, now) if isinstance(job, Submission) else None
                call.services.shedding.check(call.tenant, job.queue, job.priority, at, now)
            key = None if requested.idempotency_key is None else check_key(requested.idempotency_key)
            read.append(_Line(number, job, key))
        except Refused as error:
            answers.append(_refused(number, error))
    return read


async def _submit_together(call: Call[Any, bytes], lines: Sequence[_Line], key: str) -> list[LineResult]:
    """Submit plain one-shots; where one cannot be taken, find it by halves."""
    if not lines:
        return []
    shots = [line.job for line in lines if isinstance(line.job, Submission)]
    try:
        async with call.database.transaction():
            created = await moves.submit_many(call.unnamed, shots, key=key, tenant=call.tenant)
    except QuotaReached:
        raise  # That is no fault of a line.
    except Refused as error:
        if len(lines) == 1:
            return [_refused(lines[0].number, error)]
        middle = len(lines) // 2
        first = await _submit_together(call, lines[:middle], f"{key}a")
        return first + await _submit_together(call, lines[middle:], f"{key}b")
    for queue in {shot.queue for shot, one in zip(shots, created, strict=True) if one.needs_hint}:
        call.wake(queue)
    return [_created(line.number, one) for line, one in zip(lines, created, strict=True)]


async def _submit_alone(call: Call[Any, bytes], line: _Line, key: str) -> LineResult:
    chosen = line.key or key
    try:
        async with call.database.transaction():
            if isinstance(line.job, Submission):
                created = await moves.submit(call.unnamed, line.job, key=chosen, tenant=call.tenant)
                if created.needs_hint:
                    call.wake(line.job.queue)
                return _created(line.number, created)
            accepted = await moves.submit_recurring(call.unnamed, line.job, key=chosen, tenant=call.tenant)
            call.wake(DUE)  # which costs one look, due or not
            return _created(line.number, accepted)
    except Refused as error:
        return _refused(line.number, error)


def _created(number: int, created: Submitted) -> LineResult:
    first = None if created.scheduled_at == NEVER else created.scheduled_at
    run_id: UUID | None = created.job_id
    if isinstance(created, Accepted):
        run_id = only_run_id(created.schedule, created.job_id, created.scheduled_at)
    return LineResult(line=number, job_id=created.job_id, run_id=run_id, next_run_at=first, replayed=created.replayed)


def _refused(number: int, error: Refused) -> LineResult:
    found = found_in(error, "/schedule")
    if found is None:
        raise error
    return LineResult(line=number, error=LineRefused(code=found.code, detail=found.detail, errors=found.errors))
