"""Subtasks: a handler submits more work in the name of its run; and a hand on a run tells how far it has come."""

from uuid import UUID, uuid4

import pytest

from duly import App, InvalidOption, ParentEnded, Progress, Run
from duly.moves.cancel import CancelAnswer
from duly.store.boxes import runs
from duly.testing import environment
from tests.builders import runs_listed


@pytest.fixture
def made():
    """An app whose handler splits its work, and what its parts saw."""
    app, seen = App(), list[tuple[int, UUID | None]]()

    @app.handler
    async def part(run: Run, number: int) -> None:
        seen.append((number, run.parent))

    @app.handler
    async def split(run: Run, parts: int) -> None:
        for number in range(parts):
            await part.options(parent=run, key=f"{run.id}/{number}").submit(number)
            await run.progress(number + 1, parts, f"part {number}")

    @app.handler
    def split_plainly(run: Run) -> None:
        part.options(parent=run.id).submit_sync(0)
        part.options(parent=run, queue="later", delay=60).submit_many_sync([{"number": 1}, {"number": 2}])

    return app, seen


async def test_a_handler_submits_subtasks_that_know_it_and_shows_how_far_it_has_come(made):
    app, seen = made
    async with environment(app) as env:
        handle = await app["split"].submit(3)
        await env.run_due()
        database = await app.connections.database()

        assert sorted(seen) == [(number, handle.run_id) for number in range(3)]
        assert len(await runs_listed(database, f"parent:{handle.run_id}")) == 3
        progress = await handle.progress()
        assert isinstance(progress, Progress)
        assert (progress.done, progress.total, progress.fraction, progress.note) == (3, 3, 1.0, "part 2")
        with pytest.raises(ParentEnded, match=f"run {handle.run_id} is not under way"):
            await app["part"].options(parent=handle.run_id).submit(9)


async def test_from_a_plain_function_and_many_at_once(made):
    app, seen = made
    async with environment(app) as env:
        handle = await app["split_plainly"].submit()
        await env.run_due()
        database = await app.connections.database()

        assert seen == [(0, handle.run_id)]
        listed = await runs_listed(database, f"parent:{handle.run_id}")
        assert sorted(run["state"] for run in listed) == ["scheduled", "scheduled", "succeeded"]


async def test_cancel_includes_subtasks_when_requested(made):
    app, _ = made
    async with environment(app):
        parent = await app["split"].options(delay=60).submit(1)
        child = await app["part"].options(parent=parent.run_id, delay=60).submit(1)
        database = await app.connections.database()

        assert await parent.cancel(children=True) is CancelAnswer.CANCELLED
        found = await runs.find(database, child.run_id)
        assert found
        assert (found["state"], found["parent"]) == ("cancelled", parent.run_id)


async def test_invalid_parent_is_refused(made):
    app, _ = made
    part = app["part"]
    with pytest.raises(InvalidOption, match="parent 'x' is not a run"):
        part.options(parent="x")
    with pytest.raises(InvalidOption, match=r"parent is for one-shots; leave out .*schedule"):
        part.options(parent=uuid4(), every=60)
    async with environment(app):
        with pytest.raises(ParentEnded):
            await part.options(parent=uuid4()).submit(1)
