"""`after=`: a one-shot is submitted behind others, by their handles."""

from uuid import UUID, uuid4

import pytest

from duly import App, InvalidOption, Retry
from duly.store.boxes import runs
from duly.testing import environment


@pytest.fixture
def made():
    """An app whose handlers note that they ran; one of them always fails."""
    app, seen = App(), list[str]()

    @app.handler
    async def note(word: str) -> None:
        seen.append(word)

    @app.handler
    async def fail() -> None:
        raise RuntimeError("no")

    return app, seen


async def test_handles_are_followed_also_those_that_have_ended(made):
    app, seen = made
    note = app["note"]
    async with environment(app) as env:
        ended = await note.submit("ended")
        await env.run_due()
        first = await note.options(delay="PT1M").submit("first")
        second = await note.options(depends_on=[first, ended.job_id]).submit("second")
        await note.options(depends_on=[(second, "always")]).submit_many([{"word": "third"}, {"word": "third"}])
        await env.run_due()
        assert seen == ["ended"]

        await env.advance("PT2M")

        assert seen == ["ended", "first", "second", "third", "third"]


async def test_dependent_on_success_is_skipped_and_on_failure_runs_after_a_failure(made):
    app, seen = made
    async with environment(app) as env:
        failing = await app["fail"].options(retry=Retry(max_attempts=1)).submit()
        never = await app["note"].options(depends_on=[failing]).submit("never")
        await app["note"].options(depends_on=[(failing, "failure")]).submit("alarm")
        await env.run_due()
        database = await app.connections.database()
        found = await runs.find(database, never.job_id)

    assert seen == ["alarm"]
    assert found is not None
    assert (found["state"], found["depends_on"]) == ("skipped", ((str(failing.job_id), "success"),))


ANY = UUID(int=1)


@pytest.mark.parametrize(
    ("chosen", "words"),
    [
        ({"depends_on": "x"}, "not a list"),
        ({"depends_on": ["x"]}, "is not a job id; use the id"),
        ({"depends_on": [object()]}, "is not a job id; use the id"),
        ({"depends_on": [(ANY, "maybe")]}, "success, failure or always"),
        ({"depends_on": [ANY, ANY]}, "twice"),
        ({"depends_on": [uuid4() for _ in range(101)]}, "limit is 100"),
        ({"depends_on": [ANY], "every": 60}, "on_end"),
    ],
)
def test_invalid_dependency_is_refused_by_options(made, chosen, words):
    app, _ = made
    with pytest.raises(InvalidOption, match=words):
        app["note"].options(**chosen)
