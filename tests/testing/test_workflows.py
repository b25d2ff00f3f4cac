"""Workflows in a user's tests: nodes run in this process, one after the other, with what the others came to."""

import pytest

from duly import App, NonRetryable, ResultNotKept, Run, Workflow, WorkflowFailed
from duly.testing import environment


@pytest.fixture
def app():
    app = App()

    @app.handler
    async def extract(day: int) -> dict[str, list[int]]:
        return {"rows": [day, day + 1]}

    @app.handler
    def load(rows: list[int], factor: int = 1) -> int:
        return sum(rows) * factor

    @app.handler
    def fail() -> None:
        raise NonRetryable("broken")

    @app.handler
    def double(x: int) -> int:
        return 2 * x

    @app.handler
    async def report(run: Run) -> dict[str, object]:
        return {"node": run.node, "parents": run.parents}

    return app


async def test_workflow_runs_in_order_and_passes_results(app):
    wf = Workflow("nightly")
    first = wf.add("extract", app["extract"], day=3)
    second = wf.add("load", app["load"], rows=first.result["rows"], factor=10)
    wf.add("report", app["report"], depends_on=[second])

    async with environment(app) as env:
        handle = await wf.submit()
        fired = await env.run_due()

        assert [(fire.handler, fire.arguments) for fire in fired] == [
            ("extract", {"day": 3}),
            ("load", {"rows": [3, 4], "factor": 10}),
            ("report", {}),
        ]
        assert await handle.wait(0) == "succeeded"
        assert await handle.result(timeout=0) == {"report": {"node": "report", "parents": {"load": 70}}}


async def test_a_map_has_one_run_for_each_item_and_their_results_in_order(app):
    wf = Workflow("fan-out")
    rows = wf.add("extract", app["extract"], day=1)
    doubled = wf.map("double", app["double"], over=rows.result["rows"])
    wf.add("load", app["load"], rows=doubled.result)

    async with environment(app) as env:
        handle = await wf.submit()
        await env.run_due()

        assert await handle.result("double", timeout=0) == [2, 4]
        assert await handle.result("load", timeout=0) == 6


async def test_failure_dependent_runs_and_success_dependent_is_skipped(app):
    wf = Workflow("careful")
    broken = wf.add("broken", app["fail"])
    wf.add("never", app["double"], x=1, depends_on=[broken])
    wf.add("alarm", app["double"], x=2, depends_on=[broken.failed])
    wf.add("tidy", app["double"], x=3, depends_on=[broken.ended])

    async with environment(app) as env:
        handle = await wf.submit()
        await env.run_due()

        assert await handle.status() == "succeeded"
        states = {name: node["state"] for name, node in (await handle.nodes()).items()}
        assert states == {"broken": "failed", "never": "skipped", "alarm": "succeeded", "tidy": "succeeded"}


async def test_a_declared_workflow_is_started_by_its_schedule_and_the_run_ends_with_it(app):
    wf = Workflow("hourly")
    first = wf.add("extract", app["extract"], day=3)
    wf.add("load", app["load"], rows=first.result["rows"])
    wf.declare(every="PT1H")

    async with environment(app) as env:
        fired = await env.advance("PT2H")

        assert [fire.handler for fire in fired] == ["extract", "load"] * 3
        job = await app.job("hourly").details()
        assert (job.handler, job.state) == ("@workflow", "active")
        database = await app.connections.database()
        assert await states_of_runs(database) == ["succeeded"] * 3


async def states_of_runs(database) -> list[str]:
    """Say what became of the runs that started workflows."""
    rows = await database.fetch("select became::text from duly.attempts where handler = '@workflow' order by run_id")
    return [row[0] for row in rows]


async def test_a_node_that_has_nothing_to_add_adds_nothing(app):
    @app.handler
    async def plan(run: Run) -> list[str]:
        return await Workflow("more").add_to(run)

    @app.handler
    def plan_sync(run: Run) -> list[str]:
        return Workflow("more").add_to_sync(run)

    wf = Workflow("dynamic")
    wf.add("report", app["report"], depends_on=[wf.add("plan", plan), wf.add("sync", plan_sync)])

    async with environment(app) as env:
        handle = await wf.submit()
        await env.run_due()

        assert (await handle.result("plan"), await handle.result("sync")) == ([], [])
        assert [fire.handler for fire in env.fires][-1] == "report"


async def test_running_node_adds_nodes_that_its_dependents_wait_for(app):
    @app.handler
    async def plan(run: Run) -> int:
        more = Workflow("more")
        for number in range(2):
            more.add(f"part-{number}", app["double"], x=number)
        return len(await more.add_to(run))

    wf = Workflow("dynamic")
    planned = wf.add("plan", plan)
    wf.add("report", app["report"], depends_on=[planned])

    async with environment(app) as env:
        handle = await wf.submit()
        await env.run_due()

        assert await handle.status() == "succeeded"
        assert [fire.handler for fire in env.fires] == ["plan", "double", "double", "report"]


async def test_reference_to_an_oversized_result_fails_without_a_retry(app):
    taken = []

    @app.handler
    def large() -> str:
        return "x" * 200_000

    @app.handler
    def take(event: object) -> None:
        taken.append(event)

    wf = Workflow("nightly")
    first = wf.add("large", large)
    wf.add("take", take, event=first.result)
    wf.add("report", app["report"], depends_on=[first])

    async with environment(app) as env:
        handle = await wf.submit()
        await env.run_due()

        with pytest.raises(WorkflowFailed) as failed:
            await handle.result()
        assert taken == []
        assert "200,002 bytes and is not kept: results up to 65,536 bytes are" in (failed.value.failed["take"] or "")
        nodes = await handle.nodes()
        assert (nodes["take"]["state"], nodes["report"]["state"]) == ("failed", "succeeded")

        plain = await large.submit()
        await env.run_due()
        with pytest.raises(ResultNotKept, match="200,002 bytes and is not kept") as not_kept:
            await plain.result()
        assert "succeeded" in str(not_kept.value)
        assert (await plain.status(), not_kept.value.run_id) == ("succeeded", plain.run_id)


async def test_failed_workflow_names_its_failed_node_and_resumes_from_it(app):
    broken = [True]

    @app.handler
    def flaky() -> str:
        if broken[0]:
            raise NonRetryable("no disk")
        return "fine"

    wf = Workflow("nightly")
    first = wf.add("extract", app["extract"], day=1)
    wf.add("flaky", flaky, depends_on=[first])

    async with environment(app) as env:
        handle = await wf.submit()
        await env.run_due()
        with pytest.raises(Exception, match=r"is failed: flaky: .*no disk") as failed:
            await handle.result(timeout=0)
        broken[0] = False
        assert await handle.replay("flaky") == ["flaky"]
        await env.run_due()

        assert type(failed.value).__name__ == "WorkflowFailed"
        assert await handle.result("flaky", timeout=0) == "fine"
        assert [fire.handler for fire in env.fires] == ["extract", "flaky", "flaky"]
