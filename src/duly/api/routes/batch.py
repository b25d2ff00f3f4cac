"""Many jobs in one request. Plain one-shots go in together; each line that cannot be taken is answered by itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from duly.api import definitions
from duly.api.operations import NDJSON, Answer, Call, Routes
from duly.api.refusals import Refusal, found_in
from duly.api.routes.jobs import extra_of, now_of
from duly.domain.errors import Refused
from duly.domain.job import Recurring, Submission, check_key
from duly.domain.triggers.on_event import NEVER
from duly.moves import submit as moves
from duly.store.jobs import Submitted
from duly.wire.batches import BATCH_BYTES_MAX, LINES_MAX, LineAnswer, LineRefused
from duly.wire.jobs import NewJob
from duly.wire.reading import read_body
from duly.wire.shapes import Nothing

routes = Routes("jobs")
_TURN = 500  # lines read before others on this loop have their turn
_TOGETHER = 5_000
_encoder = msgspec.json.Encoder()


class _Line(msgspec.Struct, frozen=True):
    number: int
    job: Submission | Recurring
    key: str | None


@routes.add(
    "POST",
    "/v1/jobs:batch",
    scope="jobs:write",
    body=bytes,
    media_type=NDJSON,
    answers={200: LineAnswer},
    answer_type=NDJSON,
    refuses=("rate_limited", "quota_reached"),
    body_bytes_max=BATCH_BYTES_MAX,
    seconds_max=60.0,
)
async def create_jobs(call: Call[Nothing, bytes]) -> Answer:
    """Create up to 50,000 jobs, one a line (NDJSON).

    Each line of the answer tells what became of the line of that number: a job, durable when this answers, or why it was
    refused. Lines that are refused do not hold up the others. Should the request fail as a whole, none was taken.
    """
    lines = call.body.split(b"\n", LINES_MAX + 1)  # What is more is not split: it may be nothing but ends of lines.
    if len(lines) > LINES_MAX + 1 or (len(lines) == LINES_MAX + 1 and lines[-1]):
        raise Refusal("body_too_large", f"The body has more than {LINES_MAX} lines.", remedy="Send several requests.")
    answers: list[LineAnswer] = []
    read = await _read(call, lines, answers)
    if read:
        await call.admit(len(read))
    await _submit(call, read, answers)
    answers.sort(key=lambda answer: answer.line)
    refused = sum(answer.error is not None for answer in answers)
    headers = {"Duly-Accepted": str(len(answers) - refused), "Duly-Refused": str(refused)}
    return Answer(200, _encoder.encode_lines(answers), headers, media_type=NDJSON)


async def _read(call: Call[Any, bytes], lines: Sequence[bytes], answers: list[LineAnswer]) -> list[_Line]:
    read: list[_Line] = []
    now, extra = now_of(call), extra_of(call)
    for number, line in enumerate(lines, start=1):
        if number % _TURN == 0:
            await call.clock.sleep(0)
        if not line or line.isspace():
            continue
        try:
            asked = read_body(line, NewJob)
            plain = definitions.is_plain(asked)
            job = definitions.one_shot(asked, extra) if plain else definitions.recurring(asked, now, extra)
            job = definitions.admitted(job, call.allowed)
            key = None if asked.idempotency_key is None else check_key(asked.idempotency_key)
            read.append(_Line(number, job, key))
        except Refused as error:
            answers.append(_refused(number, error))
    return read


async def _submit(call: Call[Any, bytes], lines: Sequence[_Line], answers: list[LineAnswer]) -> None:
    together = [line for line in lines if isinstance(line.job, Submission) and line.key is None]
    key = call.key or str(call.rng.uuid())
    for start in range(0, len(together), _TOGETHER):
        some = together[start : start + _TOGETHER]
        shots = [line.job for line in some if isinstance(line.job, Submission)]
        made = await moves.submit_many(call.database, shots, key=f"{key}/{start}", tenant=call.tenant)
        answers += [_made(line.number, one) for line, one in zip(some, made, strict=True)]
    for line in lines:
        if isinstance(line.job, Recurring) or line.key is not None:
            answers.append(await _submit_alone(call, line, f"{key}:{line.number}"))
    for queue in {line.job.queue for line in lines if isinstance(line.job, Submission)}:
        call.wake(queue)


async def _submit_alone(call: Call[Any, bytes], line: _Line, key: str) -> LineAnswer:
    chosen = line.key or key
    try:
        async with call.database.transaction():
            if isinstance(line.job, Submission):
                return _made(line.number, await moves.submit(call.database, line.job, key=chosen, tenant=call.tenant))
            accepted = await moves.submit_recurring(call.database, line.job, key=chosen, tenant=call.tenant)
            return _made(line.number, accepted)
    except Refused as error:
        return _refused(line.number, error)


def _made(number: int, made: Submitted) -> LineAnswer:
    first = None if made.scheduled_at == NEVER else made.scheduled_at
    return LineAnswer(line=number, job_id=made.job_id, next_run_at=first, replayed=made.replayed)


def _refused(number: int, error: Refused) -> LineAnswer:
    found = found_in(error, "/schedule")
    if found is None:
        raise error
    return LineAnswer(line=number, error=LineRefused(code=found.code, detail=found.detail, errors=found.errors))
